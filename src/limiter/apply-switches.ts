/**
 * Applies the live switches: to each rule before the trip, and to the outcome after it. The reply of the store may bring newer
 * switches than those that the rules were bound under. A rule that was switched to `shadow` or `off` meanwhile no longer refuses;
 * a rule that was switched to `enforce` is enforced from the next request on. Pure.
 */
import { type Rule, switchNameOf } from '../config/compile-rule.ts'
import { finalizeHash, fnv1a } from '../hash.ts'
import { type BoundRule, type Evaluation, type Outcome, onlyEnforced } from '../script/evaluation.ts'
import { isConsumerKnown } from '../store/keys.ts'
import type { Switches } from '../switches/switches.ts'
import { type Decision, refusesGuesses } from './decision.ts'

/**
 * The mode of a rule for one identity: that of its switch, else that of the config.
 * @param key of the state of the identity, or the `shareKey` of the caller
 * @param name under which the rule is switched
 */
export function modeUnderSwitches(
  rule: Pick<Rule, 'name' | 'mode' | 'enforcedShare' | 'switchedAs'>,
  key: string,
  switches: Switches,
  name: string,
): Rule['mode'] {
  if (switches.kill) return 'off'
  const { mode = rule.mode, share = rule.enforcedShare } = switches.rules.get(name) ?? {}
  return mode === 'off' ? mode : chooseMode({ name: switchNameOf(rule), mode, enforcedShare: share }, key)
}

/**
 * The mode of a rule for this identity: `enforce` if the rule is enforced and the identity is in its share of callers. A hash of rule and
 * identity gives each identity a fixed position from 0 to 1. So a growing share keeps the identities that it had, and two rules start
 * with different callers.
 */
export function chooseMode(
  { name, mode, enforcedShare: share }: Pick<Rule, 'name' | 'mode' | 'enforcedShare'>,
  key: string,
): BoundRule['mode'] {
  if (mode !== 'enforce' || share <= 0) return 'shadow'
  if (share >= 1) return 'enforce'
  // If only the store knows the consumer, its position is unknown here, and it may be outside the share.
  const isInShare = isConsumerKnown(key) && finalizeHash(fnv1a(`${name} ${key}`)) / 2 ** 32 < share
  return isInShare ? 'enforce' : 'shadow'
}

/** Whether a rule is enforced for at least some identities. */
export function isEnforcedForAny(rule: Rule, { kill, rules }: Switches, name: string): boolean {
  return !kill && (rules.get(name)?.mode ?? rule.mode) === 'enforce'
}

/** The outcome under newer switches. If no enforced rule refuses any more, a refused request is admitted without being counted. */
export function applyNewerSwitches(
  outcome: Outcome,
  { rules, subject }: Pick<Evaluation, 'rules' | 'subject'>,
  switches: Switches,
  switchName: (rule: Rule) => string,
): Outcome {
  if (outcome.status !== 'admitted' && outcome.status !== 'refused') return outcome
  // Too many guesses are refused before the credential and its consumer are evaluated, so this refusal stands.
  if (refusesGuesses(outcome.verdicts)) return outcome

  const boundRules = new Map(rules.map(bound => [bound.rule.tag, bound]))
  const verdicts = outcome.verdicts.flatMap(verdict => {
    const bound = boundRules.get(verdict.rule.tag)!
    const name = switchName(bound.rule)
    const mode = modeUnderSwitches(bound.rule, bound.shareKey ?? bound.key, switches, name)
    if (mode === 'off') return []
    // A rule that was bound as a shadow and comes back as enforced was enforced by an override of the consumer. A switch takes
    // precedence over the override.
    const isNowShadow = mode === 'shadow' && (bound.mode === 'enforce' || switches.rules.has(name))
    return [isNowShadow ? { ...verdict, mode } : verdict]
  })
  const isRefused = onlyEnforced(verdicts).some(({ allowed }) => !allowed)
  const isPaused = outcome.pausedUntil !== undefined && verdicts.length > 0
  if (outcome.status === 'admitted' || isRefused || isPaused) return { ...outcome, verdicts }
  // Without a plan the credential is not verified: the slot that has its record has not answered.
  if (subject && !outcome.plan) return outcome
  const { pausedUntil: _, ...others } = outcome
  return { ...others, status: 'admitted', verdicts }
}

/** Marks a request that passes under the kill switch, so that its caller and the origin can see it. */
export function markKillSwitch(decision: Decision, { kill }: Switches): Decision {
  if (!kill || decision.kind !== 'allowed' || decision.degraded) return decision
  return { ...decision, degraded: { cause: 'kill-switch', detail: '' }, isUncounted: true }
}
