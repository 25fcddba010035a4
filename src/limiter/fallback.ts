/**
 * Decides a request that the store has not decided. Each rule has its own policy (`onStoreFailure`), and so have
 * credentials, which cannot be checked then: docs/security.md describes the risks. An error in limiting code is handled the
 * same way. A flood must not switch the limits off: rules that are `open` are counted in the isolate, as with `local`, until
 * the store has really failed.
 */
import type { OnStoreFailure } from '../config/check/rule-schema.ts'
import type { Credentials } from '../config/compile-credentials.ts'
import type { RememberedCaller } from '../credentials/caller-memory.ts'
import type { DecideVerb } from '../script/decide.ts'
import type { BoundRule, Evaluation, Subject } from '../script/evaluation.ts'
import type { GuardedStore } from '../store/breaker.ts'
import { UNKNOWN_CONSUMER_TAG } from '../store/keys.ts'
import { allowed, type Decision, type DegradedCause, denied } from './decision.ts'
import type { Degraded } from './evaluate.ts'
import type { LocalLimiter } from './local.ts'

export interface FallbackSettings {
  credentials: Credentials['onStoreFailure']
  local: LocalLimiter
  store: Pick<GuardedStore, 'isOutageConfirmed'>
}

/** In the place of an isolate's own counts, where every rule refuses without the store. */
export const NO_LOCAL: LocalLimiter = {
  decide: () => ({ admitted: true, verdicts: [] }),
  hasSpent: () => false,
  handOver: async () => {},
}

/** Which keys each policy for credentials accepts while the store cannot verify them. */
const ACCEPTED: Record<Credentials['onStoreFailure'], { verifiedBefore: boolean; unknown: boolean }> = {
  recent: { verifiedBefore: true, unknown: false },
  refuse: { verifiedBefore: false, unknown: false },
  unchecked: { verifiedBefore: true, unknown: true },
}

/** Whether a rule admits a request when nothing can be counted, not even in the isolate. */
export function admitsUncounted(policy: OnStoreFailure): boolean {
  switch (policy) {
    case 'open':
    case 'local':
      return true
    case 'closed':
      return false
  }
}

/** Whether the isolate may have to count a rule by itself. With `open` it does until an outage is confirmed. */
export function isCountedLocally(policy: OnStoreFailure): boolean {
  switch (policy) {
    case 'open':
    case 'local':
      return true
    case 'closed':
      return false
  }
}

/**
 * @param evaluation that the store has not answered
 * @param seen the last answers of the store about this credential
 */
export function fallBack(
  { policy, subject, rules }: Evaluation,
  { cause, detail }: Degraded,
  seen: RememberedCaller | undefined,
  { credentials, local, store }: FallbackSettings,
  verb: DecideVerb = 'decide',
): Decision {
  const degraded = { cause, detail }
  // A blocked consumer stays blocked.
  if (seen?.isBlocked) return { kind: 'blocked' }
  const accepted = ACCEPTED[credentials]
  const isKnown = seen?.plan !== undefined && accepted.verifiedBefore
  if (subject && subject.kind !== 'token' && !isKnown && !accepted.unknown) {
    return { kind: 'unavailable', what: 'credential', degraded }
  }

  const claimed = subject?.kind === 'token' ? subject.plan : undefined
  const plan = subject && planOf([claimed, seen?.plan], policy.plans)
  const applying = rules.filter(
    ({ rule: { on, match }, mode }) =>
      // Bad credentials cannot be recognized now, and only the store evaluates shadows.
      on === 'request' &&
      mode === 'enforce' &&
      (match.plans === undefined || match.plans.includes(plan ?? '')),
  )
  const hasFailed = hasStoreFailed(cause, store)
  const counted: BoundRule[] = []
  for (const bound of applying) {
    switch (bound.rule.onStoreFailure) {
      case 'closed':
        return { kind: 'unavailable', what: 'limits', degraded }
      case 'local':
        counted.push(named(bound, subject, seen))
        break
      case 'open':
        if (!hasFailed) counted.push(named(bound, subject, seen))
        break
      default:
        return bound.rule.onStoreFailure satisfies never
    }
  }

  // The plan that an earlier answer of the store, or a signature, vouches for.
  const own = isKnown && plan ? { plan } : {}
  const { admitted, verdicts } = local.decide(policy, counted, verb)
  if (!admitted) return { ...denied(verdicts), degraded, ...own }
  return {
    ...allowed(verdicts),
    degraded,
    ...(counted.length < applying.length && { isUncounted: true }),
    ...own,
    ...(isKnown && seen.consumer !== undefined && { consumer: seen.consumer }),
  }
}

/** Whether the store has really failed. An answer may also be late because the isolate is flooded. */
function hasStoreFailed(cause: DegradedCause, store: FallbackSettings['store']): boolean {
  switch (cause) {
    case 'overload':
      return false
    case 'store-timeout':
    case 'breaker-open':
      return store.isOutageConfirmed()
    case 'store-unreachable':
    case 'store-refused':
    case 'store-quota':
    case 'store-reply-invalid':
    case 'internal':
    case 'kill-switch':
      return true
  }
}

/** A plan that the config does not know counts as the first. */
function planOf(candidates: readonly (string | undefined)[], plans: readonly string[]): string {
  return candidates.find(plan => plan !== undefined && plans.includes(plan)) ?? plans[0]!
}

/** Where only the store knows the consumer: the one in its last answer, else each credential is counted by itself. */
function named(
  bound: BoundRule,
  subject: Subject | undefined,
  seen: RememberedCaller | undefined,
): BoundRule {
  if (subject?.kind !== 'pointer') return bound
  const digest = /\{k:[0-9a-f]+\}/.exec(subject.pointerKey)?.[0] ?? UNKNOWN_CONSUMER_TAG
  const tag = seen?.consumer === undefined ? digest : `{c:${seen.consumer}}`
  return { ...bound, key: bound.key.replace(UNKNOWN_CONSUMER_TAG, tag) }
}
