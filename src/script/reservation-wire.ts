/**
 * What reservations add to the wire format of decisions (decide.ts): the keys of the reservations, the reservationId, the number of
 * reservations that were settled, and two columns. A Worker whose rules reserve nothing does not carry this file.
 */
import type { Rule } from '../config/compile-rule.ts'
import { reservedKey } from '../store/keys.ts'
import { ALL_SPENT, ROWS_AT, rowsOf } from './decide.ts'
import type { BoundRule } from './evaluation.ts'
import { PER_SETTLED, type ReservationWire, type RuleSet, type ScriptsOf } from './rule-set-shape.ts'

/** Adds the wire format to rule sets with a rule that is settled later. @param scriptsOf compiles their scripts, or finds those that were built */
export const withReservations =
  (scriptsOf: ScriptsOf): ScriptsOf =>
  shape =>
    shape.entries.some(({ settlement }) => settlement)
      ? Object.setPrototypeOf({ reservations: RESERVATION_WIRE }, scriptsOf(shape))
      : scriptsOf(shape)

export const RESERVATION_WIRE: ReservationWire = {
  keysOf: reservedKeys,

  addTo: ({ call, decode }, { ruleSet, rules, reservationId = '' }) => ({
    call: {
      ...call,
      keys: [...call.keys, ...reservedKeys(ruleSet, rules)],
      args: withReservationId(call.args, reservationId, ruleSet),
    },
    decode(reply) {
      const outcome = decode(Array.isArray(reply) ? [statusIn(reply), ...reply.slice(1)] : reply)
      const verdicts = outcome.verdicts.map(verdict => ({
        ...verdict,
        ...(verdict.rule.settlement && columnsOf(reply as unknown[], ruleSet, verdict.rule)),
      }))
      return { ...outcome, verdicts }
    },
  }),
}

/** The keys of the reservations, in the order of the identities. */
export function reservedKeys(
  { entries, entryOf }: RuleSet,
  rules: readonly Pick<BoundRule, 'rule' | 'key'>[],
): string[] {
  const byIdentity: string[] = []
  for (const { rule, key } of rules) {
    const { identity } = entries[entryOf(rule)]!
    if (entries.some(each => each.identity === identity && each.settlement))
      byIdentity[identity] = reservedKey(key)
  }
  // Identities without a key are left out.
  return Object.values(byIdentity)
}

/** The place of the reservationId in ARGV. */
export const reservationAt = ({ entries }: RuleSet) => 5 + entries.filter(({ argument }) => argument).length

function withReservationId(call: readonly string[], id: string, ruleSet: RuleSet): string[] {
  const args = [...call]
  const place = reservationAt(ruleSet)
  while (args.length < place) args.push('')
  args.splice(place, 0, id)
  while (args.at(-1) === '') args.pop()
  return args
}

/** The status without the reservations that the decision has settled. */
const statusIn = ([first]: readonly unknown[]) =>
  typeof first === 'number' && first > 0 ? first % PER_SETTLED : first

/** The columns behind those of every rule: the units that were reserved, and the units above the limit. @param reply checked, if it has rows */
function columnsOf(reply: readonly unknown[], ruleSet: RuleSet, rule: Rule) {
  const { rowStarts, standingAt } = rowsOf(ruleSet, statusIn(reply) === ALL_SPENT)
  const at = ROWS_AT + rowStarts[ruleSet.entryOf(rule)]! + standingAt + 2
  const [reserved, debt] = reply.slice(at, at + 2) as [number, number]
  return { reserved, debt }
}

/** How many reservations a decision has settled. For each request, that is one for each of its identities. @param reply not decoded yet */
export const settledIn = (reply: unknown): number =>
  Array.isArray(reply) && reply[0] > 0 ? Math.floor(reply[0] / PER_SETTLED) : 0

/** The debt of each rule after the decision. @param reply of a decision that has settled reservations */
export function debtsIn(
  reply: unknown,
  { ruleSet, rules }: { ruleSet: RuleSet; rules: readonly { rule: Rule }[] },
): { debt: number }[] {
  return rules.map(({ rule }) => ({ debt: columnsOf(reply as unknown[], ruleSet, rule).debt }))
}
