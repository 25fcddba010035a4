/**
 * The records in which a decision was counted, so that a later deployment gives its units back to these and to no others. Pure.
 *
 * A record belongs to the family of a rule (its name, algorithm, period and unit), and the record of a rate also to its limit and burst. The
 * window within it follows from the time of the decision. Behind a space follow the limit and burst of the override that it was made under.
 */
import type { LimitRule, Rule } from '../../config/compile.ts'
import { type Verdict, verdictOf } from '../../script/evaluation.ts'
import { writtenNumbers } from '../../script/wire.ts'
import type { LimitDecision } from './limiter-shape.ts'

/** The text in `records`. */
const recordOf = ({ family, tag }: Rule) => family + tag

/** By rule name. @param verdicts of the decision */
export const recordsOf = (
  rules: readonly Rule[],
  verdicts: readonly Verdict[],
): Readonly<Record<string, string>> =>
  Object.fromEntries(
    rules.map(rule => {
      const written = writtenNumbers(verdictOf(rule, verdicts)?.rule ?? rule, rule)
      return [rule.name, written === undefined ? recordOf(rule) : `${recordOf(rule)} ${written}`]
    }),
  )

type Decided = Pick<LimitDecision, 'records'>

const partsOf = ({ name }: LimitRule, { records = {} }: Decided): readonly (string | undefined)[] =>
  Object.hasOwn(records, name) ? records[name]!.split(' ') : []

/** The limit and burst of the override that a decision was made under, for what it gives back. Undefined: of none. */
export const writtenIn = (rule: LimitRule, decision: Decided): string | undefined =>
  partsOf(rule, decision)[1]

/** Whether a rule still counts in the record of a decision. Those of earlier versions do not say in which they were counted. */
export const isSameRecord = (rule: LimitRule, decision: Decided): boolean =>
  decision.records === undefined || partsOf(rule, decision)[0] === recordOf(rule)

/** Whether it at least belongs to the same family, whose reservations it settles. */
export const isSameFamily = (rule: LimitRule, { records }: Pick<LimitDecision, 'records'>): boolean =>
  records === undefined || (Object.hasOwn(records, rule.name) && records[rule.name]!.startsWith(rule.family))

/** `changedRules` of a refund or a settlement, if there are any. @param names of the rules that have spent */
export function changedRulesOf(
  decision: Pick<LimitDecision, 'records'>,
  names: readonly string[],
  rules: readonly LimitRule[],
): Pick<LimitDecision, 'changedRules'> {
  const same = rules.filter(rule => isSameRecord(rule, decision)).map(({ name }) => name)
  const changedRules = names.filter(name => !same.includes(name))
  return changedRules.length > 0 ? { changedRules } : {}
}
