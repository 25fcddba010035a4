/**
 * Decides a request that the store has not decided, by the fallbacks (`onStoreFailure`) of the rules and of the credentials.
 * docs/failure.md describes the risks. An error in limiting code is handled the same way.
 *
 * A flood must not turn the limits off. So rules with the fallback `open` are counted in the isolate, as with `local`, until a failure
 * of the store is confirmed.
 */

import type { Credentials } from '../../config/compile-credentials.ts'
import { appliesToPlan, knownPlan } from '../../config/compile-rule.ts'
import type { RememberedCaller } from '../../credentials/caller-memory.ts'
import type { DecideVerb } from '../../script/decide.ts'
import { type BoundRule, consumerKeyOf, type Evaluation, type Subject } from '../../script/evaluation.ts'
import { hashTagOf, isConsumerKnown, withConsumer, withTag } from '../../store/keys.ts'
import type { Switches } from '../../switches/switches.ts'
import type { StoreWithBreaker } from '../../trips/breaker.ts'
import { isEnforcedForAny } from '../apply-switches.ts'
import type { SwitchName } from '../bind.ts'
import { type Decision, toAllowed, toDenied } from '../decision.ts'
import type { BrokenDemand } from '../engine-shape.ts'
import { type Degraded, toDegraded } from '../evaluate.ts'
import { fallbackOf } from './fallbacks.ts'
import type { LocalLimiter } from './local.ts'

export interface FallbackSettings {
  credentials: Credentials['onStoreFailure']
  /** Absent if all rules are `closed`: nothing is counted in the isolate. */
  local: LocalLimiter | undefined
  store: Pick<StoreWithBreaker, 'isOutageConfirmed'>
}

/** Which keys each fallback for credentials accepts while the store cannot verify them. */
const ACCEPTED: Record<Credentials['onStoreFailure'], { admittedBefore: boolean; unknown: boolean }> = {
  recent: { admittedBefore: true, unknown: false },
  signed: { admittedBefore: true, unknown: false },
  refuse: { admittedBefore: false, unknown: false },
  unchecked: { admittedBefore: true, unknown: true },
}

/** Decides an evaluation that the store has not answered. @param seen the last answers of the store about this credential */
export function fallBack(
  { ruleSet, subject, rules, plan: planOfHook }: Evaluation,
  { cause, detail, inPart }: Degraded,
  seen: RememberedCaller | undefined,
  { credentials, local, store }: FallbackSettings,
  verb: DecideVerb = 'decide',
): Decision {
  const degraded = { cause, detail }
  // A consumer that was blocked before stays blocked.
  if (seen?.isBlocked) return { kind: 'blocked' }
  const accepted = ACCEPTED[credentials]
  const isKnown = seen?.plan !== undefined && accepted.admittedBefore
  // On a cluster, the slot of the consumer may have verified the key. Only that slot knows the consumer of an opaque key.
  const verified = subject?.kind === 'pointer' ? undefined : inPart?.plan
  // A signed key passes unless it was revoked before. The check of its signature has set the plan.
  const signed = subject?.kind === 'key' && !seen?.isUnknown ? subject.planInOutage : undefined
  const isVerified = isKnown || verified !== undefined || signed !== undefined
  const isAccepted = accepted.unknown && !seen?.isUnknown
  if (subject && subject.kind !== 'token' && !isVerified && !isAccepted) {
    return { kind: 'unavailable', what: 'credential', degraded }
  }

  const planOfToken = subject?.kind === 'token' ? subject.plan : undefined
  // The first plan that the config knows, else the default plan.
  const known = [verified, planOfToken, seen?.plan, signed].find(plan => ruleSet.plans.includes(plan!))
  const plan = subject && knownPlan(ruleSet.plans, known)
  const applying = rules.filter(
    ({ rule, mode }) =>
      // Slots of a cluster that have answered have counted their rules.
      !inPart?.names.has(rule.name) &&
      // Without the store, bad credentials cannot be recognized. Shadows are evaluated in the store only.
      rule.on === 'request' &&
      mode === 'enforce' &&
      appliesToPlan(rule, plan),
  )
  if (applying.some(({ rule }) => !fallbackOf(rule).admits))
    return { kind: 'unavailable', what: 'limits', degraded }
  // A late answer can also mean that the isolate has too many requests, so it only counts if the outage is confirmed.
  const isLate = cause === 'store-timeout' || cause === 'breaker-open'
  const isOutage = isLate ? store.isOutageConfirmed() : cause !== 'overload'
  const counted = applying.filter(({ rule }) => !isOutage || fallbackOf(rule).isCountedInOutage)

  // The plan is shown only if an earlier answer of the store, or its signature, has verified the credential.
  const planOfCaller = isVerified && plan ? { plan } : {}
  const consumerKey = consumerKeyOf(subject, seen?.consumer)
  const isConsumerNamed = consumerKey !== undefined && isConsumerKnown(consumerKey)
  const spender = { ...(isConsumerNamed && { consumerKey }), plan: planOfHook }
  const result = local?.decide(
    ruleSet,
    counted.map(bound => withSpender(bound, subject, seen)),
    verb,
    counted.map(bound => local.openUnits(bound, subject)),
    spender,
  )
  const verdicts = result?.verdicts ?? []
  if (result?.admitted === false) return { ...toDenied(verdicts), degraded, ...planOfCaller }
  return {
    ...toAllowed([...verdicts, ...(inPart?.verdicts ?? [])]),
    degraded,
    ...(counted.length < applying.length && { isUncounted: true }),
    ...planOfCaller,
    ...(isKnown && seen.consumer !== undefined && { consumer: seen.consumer }),
  }
}

/**
 * Decides a request whose demand could not be built. It is unknown what to count, so the isolate does not count either: enforced rules
 * with the fallback `closed` refuse.
 */
export function decideWithoutCounting(
  { candidates, subject, ruleSet, error }: BrokenDemand,
  switches: Switches,
  switchName: SwitchName,
  recall: (() => RememberedCaller | undefined) | undefined,
  settings: FallbackSettings,
): Decision {
  const degraded = toDegraded(error)
  const { cause, detail } = degraded
  const isRefused = candidates.some(
    rule => !fallbackOf(rule).admits && isEnforcedForAny(rule, switches, switchName(rule)),
  )
  if (isRefused) return { kind: 'unavailable', what: 'limits', degraded: { cause, detail } }
  const uncounted = { ruleSet, rules: [], ...(subject && { subject }) }
  const decision = fallBack(uncounted, degraded, callOrUndefined(recall), settings)
  return decision.kind === 'allowed' ? { ...decision, isUncounted: true } : decision
}

/** If only the store knows the consumer, counts for the consumer in its last answer, or else for each credential by itself. */
function withSpender(
  bound: BoundRule,
  subject: Subject | undefined,
  seen: RememberedCaller | undefined,
): BoundRule {
  if (subject?.kind !== 'pointer') return bound
  const credential = hashTagOf(subject.pointerKey)
  return { ...bound, key: withTag(withConsumer(bound.key, seen?.consumer), credential) }
}

/** The result of the lookup, or undefined if it throws: its error may be the one that broke the demand. */
function callOrUndefined<T>(lookup: (() => T | undefined) | undefined): T | undefined {
  try {
    return lookup?.()
  } catch {
    return undefined
  }
}
