/**
 * Decides a request for which the store has not answered. Each rule has its policy (`onStoreFailure`), and so have credentials,
 * which cannot be checked then: docs/security.md has the risks. A bug of ours is handled the same way. A flood must not switch
 * the limits off: rules with `open` are counted in the isolate, as with `local`, until the store has really failed.
 */
import type { Credentials } from '../config/compile-credentials.ts'
import type { Seen } from '../credentials/seen.ts'
import type { GuardedStore } from '../store/breaker.ts'
import { UNKNOWN_CONSUMER_TAG } from '../store/keys.ts'
import type { CountedRule } from './count.ts'
import type { Decision } from './decide.ts'
import type { Degraded, DegradedCause } from './evaluate.ts'
import type { LocalLimiter } from './local.ts'
import type { Evaluation, Who } from './wire.ts'

export interface FallbackSettings {
  credentials: Credentials['onStoreFailure']
  local: LocalLimiter
  store: Pick<GuardedStore, 'isOutageConfirmed'>
}

/**
 * @param asked what the store was asked, or should have been
 * @param seen what the store has said of the credential before
 */
export function fallBack(
  asked: Evaluation,
  { cause, detail }: Degraded,
  seen: Seen | undefined,
  { credentials, local, store }: FallbackSettings,
): Decision {
  const { who, plans } = asked
  const degraded = { cause, detail }
  // The last word on somebody who is blocked stands.
  if (seen?.isBlocked) return { kind: 'forbidden', what: 'consumer' }
  const isKnown = seen?.plan !== undefined && credentials !== 'refuse'
  if (who && who.kind !== 'token' && !isKnown && credentials !== 'unchecked') {
    return { kind: 'unavailable', what: 'credential', degraded }
  }

  const claimed = who?.kind === 'token' ? who.plan : undefined
  const plan = who && planOf([claimed, seen?.plan], plans)
  const applying = asked.rules.filter(
    ({ rule: { on, match }, mode }) =>
      // Nobody can tell a guess now. Shadows are watched by the store alone.
      on === 'request' &&
      mode === 'enforce' &&
      (match.plans === undefined || match.plans.includes(plan ?? '')),
  )
  if (applying.some(({ rule }) => rule.onStoreFailure === 'closed'))
    return { kind: 'unavailable', what: 'limits', degraded }

  // Vouched for by what the store has said before, or by a signature.
  const own = isKnown && plan ? { plan } : {}
  const hasFailed = isStoreFailure(cause, store)
  const counted = applying.filter(({ rule }) => rule.onStoreFailure === 'local' || !hasFailed)
  const { admitted, verdicts } = local.count(counted.map(rule => named(rule, who, seen)))
  if (!admitted) {
    const violated = verdicts.filter(({ allowed }) => !allowed)
    const waits = violated.map(({ retryAfter }) => retryAfter)
    const retryAfter = waits.includes(-1) ? -1 : Math.max(...waits)
    return { kind: 'denied', verdicts, violated, retryAfter, degraded, ...own }
  }
  return {
    kind: 'allowed',
    verdicts,
    delay: Math.max(0, ...verdicts.map(({ delay }) => delay)),
    degraded,
    ...(counted.length < applying.length && { isUncounted: true }),
    ...own,
    ...(isKnown && seen.consumer !== undefined && { consumer: seen.consumer }),
  }
}

/** Whether the store has failed, as far as is known. What was late may have been late because the isolate is flooded. */
function isStoreFailure(cause: DegradedCause, store: FallbackSettings['store']): boolean {
  switch (cause) {
    case 'overload':
      return false
    case 'store-timeout':
    case 'breaker-open':
      return store.isOutageConfirmed()
    default:
      return true
  }
}

/** A plan that nobody knows counts as the first. */
function planOf(told: readonly (string | undefined)[], plans: readonly string[]): string {
  return told.find(plan => plan !== undefined && plans.includes(plan)) ?? plans[0]!
}

/** Of a consumer that only the store knows: as it said before, else each credential for itself. */
function named(counted: CountedRule, who: Who | undefined, seen: Seen | undefined): CountedRule {
  if (who?.kind !== 'pointer') return counted
  const digest = /\{k:[0-9a-f]+\}/.exec(who.pointerKey)?.[0] ?? UNKNOWN_CONSUMER_TAG
  const tag = seen?.consumer === undefined ? digest : `{c:${seen.consumer}}`
  return { ...counted, key: counted.key.replace(UNKNOWN_CONSUMER_TAG, tag) }
}
