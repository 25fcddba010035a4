/**
 * The live switches, applied to a rule before the store is asked, and to the outcome. The switches that came with the reply
 * may be newer than those that the store was asked under: a rule that was turned down meanwhile no longer refuses, and a
 * rule that was turned up counts from the next request. Pure.
 */
import type { Rule } from '../config/compile-rule.ts'
import {
  type BoundRule,
  type Evaluation,
  enforced,
  type Outcome,
  type Verdict,
} from '../script/evaluation.ts'
import type { Switches } from '../switches/switches.ts'
import { modeFor } from './bind-rule.ts'
import type { Decision } from './decision.ts'

/**
 * The mode of a rule for one identity: as it is switched, else as the config says.
 * @param key of the state of the identity, or who is asked where the rule counts all together (`BoundRule.place`)
 * @param name under which the rule is switched
 */
export function switchedMode(
  rule: Pick<Rule, 'name' | 'mode' | 'enforcedShare' | 'switchedAs'>,
  key: string,
  switches: Switches,
  name: string,
): Rule['mode'] {
  if (switches.kill) return 'off'
  const { mode = rule.mode, share = rule.enforcedShare } = switches.rules.get(name) ?? {}
  return mode === 'off'
    ? mode
    : modeFor({ name: rule.switchedAs ?? rule.name, mode, enforcedShare: share }, key)
}

/** Whether a rule is enforced for any identity. */
export function isEnforced(rule: Rule, { kill, rules }: Switches, name: string): boolean {
  return !kill && (rules.get(name)?.mode ?? rule.mode) === 'enforce'
}

/**
 * An outcome under newer switches. Where no rule is left that refuses, a refused request is admitted: nothing was spent.
 * @param switchName the name under which a rule is switched
 */
export function relax(
  outcome: Outcome,
  { rules, subject }: Pick<Evaluation, 'rules' | 'subject'>,
  switches: Switches,
  switchName: (rule: Rule) => string,
): Outcome {
  if (outcome.status !== 'admitted' && outcome.status !== 'refused') return outcome
  const refusing = enforced(outcome.verdicts).filter(({ allowed }) => !allowed)
  // A refusal of guesses comes before anything is said about the credential or its consumer.
  if (refusing.some(({ rule }) => rule.on === 'auth-failure')) return outcome

  const boundRules = new Map(rules.map(bound => [bound.rule.tag, bound]))
  const verdicts = outcome.verdicts.flatMap((verdict): Verdict[] => {
    const bound = boundRules.get(verdict.rule.tag)
    return bound ? relaxed(verdict, bound, switches, switchName(bound.rule)) : [verdict]
  })
  const isRefused = enforced(verdicts).some(({ allowed }) => !allowed)
  if (outcome.status === 'admitted' || isRefused) return { ...outcome, verdicts }
  // Without a plan the credential has not been vouched for: the slot that knows it has not answered.
  if (subject && !outcome.plan) return outcome
  return { ...outcome, status: 'admitted', verdicts }
}

function relaxed(verdict: Verdict, bound: BoundRule, switches: Switches, name: string): Verdict[] {
  const mode = switchedMode(bound.rule, bound.place ?? bound.key, switches, name)
  if (mode === 'off') return []
  // A rule that was bound as a shadow and enforced all the same was enforced by an override of the consumer. A switch takes
  // precedence over it.
  const isTurnedDown = mode === 'shadow' && (bound.mode === 'enforce' || switches.rules.has(name))
  return [isTurnedDown ? { ...verdict, mode } : verdict]
}

/** Marks a request that passes under the kill switch, for its caller and for the origin. */
export function marked(decision: Decision, { kill }: Switches): Decision {
  if (!kill || decision.kind !== 'allowed' || decision.degraded) return decision
  const degraded = { cause: 'kill-switch', detail: '' } as const
  return { ...decision, degraded, isUncounted: true }
}
