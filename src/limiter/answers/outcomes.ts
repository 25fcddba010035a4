/** The outcomes that follow from an earlier answer of the store: with its times counted down, or a refusal after it. Pure. */
import { countsInFlight, type Rule } from '../../config/compile-rule.ts'
import { type BoundRule, type Outcome, type Verdict, withAgreement } from '../../script/evaluation.ts'

/** The outcome with its times counted down. @param elapsed µs since the store answered */
export function countDown(outcome: Outcome, elapsed: number): Outcome {
  const verdicts = outcome.verdicts.map(verdict => ({
    ...verdict,
    resetAfter: Math.max(0, verdict.resetAfter - elapsed),
    retryAfter: verdict.retryAfter > 0 ? Math.max(1, verdict.retryAfter - elapsed) : verdict.retryAfter,
  }))
  return { ...outcome, verdicts }
}

/**
 * A refusal as the store would repeat it. Refused requests spend nothing, so a rule whose own retry time has passed admits again, even
 * while another rule still refuses. Otherwise a shadow rule that refills quickly would count too many requests as limited.
 * @param elapsed µs since the store answered
 * @param rules of the request that gets the refusal
 * @param costs the costs of the refused request, in the order of the rules. For a higher cost the retry time is unknown, unless the rule
 *   never admits it
 */
export function repeatRefusal(
  outcome: Outcome,
  elapsed: number,
  rules: readonly BoundRule[],
  costs: readonly number[],
): Outcome {
  const counted = countDown(outcome, elapsed)
  // True one microsecond later than needed, so that rounding cannot end the refusal itself.
  const hasPassed = (wait: number) => wait > 0 && elapsed > wait
  // An override has other numbers.
  const isNever = ({ rule }: Verdict) =>
    rules.some(bound => bound.rule === rule && bound.cost > rule.quota.burst)
  const isChanged = (verdict: Verdict) =>
    hasPassed(verdict.retryAfter) || hasPassed(verdict.resetAfter) || isNever(verdict)
  if (!outcome.verdicts.some(isChanged)) return counted
  const verdicts = counted.verdicts.map((verdict, i) => {
    const { rule, allowed, remaining } = verdict
    const { retryAfter, resetAfter } = outcome.verdicts[i]!
    // Units in flight become free when requests end. That can be earlier or later.
    if (countsInFlight(rule)) return verdict
    const at = rules.findIndex(bound => bound.rule.name === rule.name)
    const isSameCost = at >= 0 && rules[at]!.cost === costs[at]
    const admitsAgain = hasPassed(retryAfter) && isSameCost
    return {
      ...verdict,
      ...(isNever(verdict)
        ? { allowed: false, retryAfter: -1 }
        : { allowed: allowed || admitsAgain, retryAfter: admitsAgain ? 0 : verdict.retryAfter }),
      remaining: hasPassed(resetAfter)
        ? rule.quota.burst
        : Math.max(remaining, admitsAgain ? rules[at]!.cost : 0),
    }
  })
  return { ...counted, verdicts: withAgreement(verdicts) }
}

/**
 * The refusal that a request with the same costs would get right after an admission that leaves too little for it.
 * @param rules of the admitted request
 * @returns undefined if it would be admitted. A `retryAfter` of 0 of a rule that refuses means that the admission does not say how long
 */
export function refusalAfter(outcome: Outcome, rules: readonly BoundRule[]): Outcome | undefined {
  // The isolate may serve further requests from its lease.
  if (outcome.granted) return undefined
  const costOf = (rule: Rule) => rules.find(bound => bound.rule === rule)?.cost
  const usedUp = outcome.verdicts.filter(
    ({ rule, allowed, remaining }) => allowed && remaining < (costOf(rule) ?? 0),
  )
  if (!usedUp.some(({ mode }) => mode === 'enforce')) return undefined
  // Units in flight can become free at any moment. An override has other numbers.
  if (usedUp.some(({ rule }) => countsInFlight(rule))) return undefined
  if (outcome.verdicts.some(({ rule }) => costOf(rule) === undefined)) return undefined
  const verdicts = outcome.verdicts.map((verdict): Verdict => {
    if (!usedUp.includes(verdict)) return { ...verdict, delay: 0 }
    const { rule } = verdict
    const retryAfter = rule.counting.waitFor?.(rule.quota, verdict, costOf(rule)!) ?? 0
    return { ...verdict, allowed: false, retryAfter, delay: 0 }
  })
  return { ...outcome, status: 'refused', verdicts: withAgreement(verdicts) }
}
