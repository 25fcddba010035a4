/**
 * What the switches make of a rule before it is asked about, and of what came back. The switches that came with the answer
 * may be newer than those it was asked under: what has been turned down counts at once, what has been turned up from
 * the next request, which is asked under it. Pure.
 */
import type { Rule } from '../config/compile-rule.ts'
import { type CountedRule, modeFor } from '../limiter/count.ts'
import { type Decision, enforced } from '../limiter/decide.ts'
import type { Evaluation, Outcome, Verdict } from '../limiter/wire.ts'
import type { Switches } from './switches.ts'

/**
 * How a rule counts for whom is counted in a state: as it is switched, else as the config has it.
 * @param name under which it is switched
 */
export function switchedMode(rule: Rule, key: string, switches: Switches, name = rule.name): Rule['mode'] {
  if (switches.kill) return 'off'
  const { mode = rule.mode, share = rule.enforcedShare } = switches.rules.get(name) ?? {}
  return mode === 'off' ? mode : modeFor({ name: rule.name, mode, enforcedShare: share }, key)
}

/** Whether a rule is enforced for anybody. */
export function isEnforced({ name, mode }: Rule, { kill, rules }: Switches): boolean {
  return !kill && (rules.get(name)?.mode ?? mode) === 'enforce'
}

/**
 * An outcome under newer switches. Where nothing is left that refuses, a refused request is admitted: nothing was spent.
 * @param nameOf a rule, under which it is switched
 */
export function relax(
  outcome: Outcome,
  { rules, who }: Evaluation,
  switches: Switches,
  nameOf = ({ name }: Rule) => name,
): Outcome {
  if (outcome.status !== 'admitted' && outcome.status !== 'refused') return outcome
  const refusing = enforced(outcome.verdicts).filter(({ allowed }) => !allowed)
  // A refusal of guesses comes before it is said whether the credential is good, and whether its consumer is blocked.
  if (refusing.some(({ rule }) => rule.on === 'auth-failure')) return outcome

  const asked = new Map(rules.map(counted => [counted.rule.tag, counted]))
  const verdicts = outcome.verdicts.flatMap((verdict): Verdict[] => {
    const counted = asked.get(verdict.rule.tag)
    return counted ? relaxed(verdict, counted, switches, nameOf(counted.rule)) : [verdict]
  })
  const isRefused = enforced(verdicts).some(({ allowed }) => !allowed)
  if (outcome.status === 'admitted' || isRefused) return { ...outcome, verdicts }
  // Who has no plan nobody has vouched for: the slot that knows has not answered.
  if (who && !outcome.plan) return outcome
  return { ...outcome, status: 'admitted', verdicts }
}

function relaxed(verdict: Verdict, counted: CountedRule, switches: Switches, name: string): Verdict[] {
  const mode = switchedMode(counted.rule, counted.key, switches, name)
  if (mode === 'off') return []
  // What enforces a rule that was asked as a shadow is an override of the consumer; a switch goes before it.
  const isTurnedDown = mode === 'shadow' && (counted.mode === 'enforce' || switches.rules.has(name))
  return [isTurnedDown ? { ...verdict, mode } : verdict]
}

/** What passes under the kill switch says so: to the caller, and to the origin. */
export function marked(decision: Decision, { kill }: Switches): Decision {
  if (!kill || decision.kind !== 'allowed' || decision.degraded) return decision
  const degraded = { cause: 'kill-switch', detail: '' } as const
  return { ...decision, degraded, isUncounted: true }
}
