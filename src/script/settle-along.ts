/**
 * Settlements that come with a decision. A decision reads and writes the state of its identities anyway, so a settlement there takes no script call of
 * its own: the script settles first, and then decides. They follow the reservationId of the request in its argument, the newest reservation first,
 * because the script finds them faster in their order in the state. Each has as many characters:
 *
 *     7 letters  the end of the reservationId
 *     4 digits   the lower 24 bits of when it was admitted (µs)
 *                then for each rule of the rule set with a settlement
 *     5 digits   the units that it has cost
 *     3 letters  the tag under which it has spent, if the numbers of the rule depend on the caller
 *
 * Digits are of base 75, from the character 0 on. The status in the reply is greater by four for each reservation that was settled. A refused request
 * settles as well. Settled is only what is in the state of an identity, for rules that are part of the request. An isolate
 * sends all others in a message of their own (settle.ts). As the records of a reservation are removed when it is settled, it is settled at most
 * once, whatever is sent.
 */
import type { ScriptCall, StoreCall } from '../store/store.ts'
import { reservationAt } from './reservation-wire.ts'
import type { RuleEntry } from './rule-set-shape.ts'
import type { SettledRequest, SettledRule, Settlement } from './settle.ts'

/** Ids have as many letters of base 62; others, as tests have them, are not in the state. */
export const ID_LETTERS = 12
/** A record has only these of the id (reserved-records.ts). */
export const LAST_LETTERS = 7
/** A record has the lower bits of a time apart. */
export const TIME_DIGITS = 4
export const COST_DIGITS = 5
export const TAG_LETTERS = 3
/** All letters and digits are in a range of as many characters, from this one on. */
export const BASE = 75
export const FIRST_DIGIT = 48

const variesByCaller = ({ takesOverrides, variants }: Pick<RuleEntry, 'takesOverrides' | 'variants'>) =>
  takesOverrides || variants.length > 1

/**
 * Where the part of a rule begins in a settlement.
 * @param settled the rules of the rule set with a settlement
 * @param index in them; after the last one: the length of a settlement
 */
export const partAt = (settled: readonly Pick<RuleEntry, 'takesOverrides' | 'variants'>[], index: number) =>
  settled
    .slice(0, index)
    .reduce(
      (at, rule) => at + COST_DIGITS + (variesByCaller(rule) ? TAG_LETTERS : 0),
      LAST_LETTERS + TIME_DIGITS,
    )

/** What the decision has to have in common with the requests. */
type Settled = Pick<Settlement, 'ruleSet' | 'consumerKey' | 'plan' | 'requests'> & {
  rules: readonly Pick<SettledRule, 'rule' | 'key' | 'written'>[]
}

/**
 * Lets a decision that was not sent yet settle reservations.
 * @returns whether it can: it is about the same rules, consumer and identities. If not, it stays as it is
 */
export function settleAlong(call: StoreCall, settled: Settled): boolean {
  const { ruleSet, requests } = settled
  const place = reservationAt(ruleSet)
  if (!('args' in call) || !isAbout(call, settled) || call.args[place]?.length !== ID_LETTERS) return false
  if (!requests.every(canSettle)) return false
  const texts = requests.toSorted((a, b) => b.spentAt - a.spentAt).map(request => textOf(request, settled))
  Object.assign(call, { args: call.args.with(place, call.args[place] + texts.join('')) })
  return true
}

/** Whether the decision uses what the requests were counted under. What it looks up in the store, the script checks. */
function isAbout(
  { script, keys, args }: ScriptCall,
  { ruleSet, rules, consumerKey, plan = '' }: Settled,
): boolean {
  const { entries, entryOf } = ruleSet
  const identities = new Set(rules.map(({ rule }) => entries[entryOf(rule)]!.identity))
  const [verb, , subject = '', planOfCall = ''] = args
  const isSameCaller =
    consumerKey === undefined ? subject === '' && planOfCall === plan : keys[0] === consumerKey
  // Units that are given back at the end are not in the state.
  const isReleased = entries.some(
    ({ identity, settlement }) => settlement?.onUnsettled === 'release' && identities.has(identity),
  )
  // Under another override, such a rule has another record.
  const isOverridden = rules.some(({ rule, written }) => written && rule.counting.state === 'time')
  return (
    script === ruleSet.decide &&
    verb !== 'peek' &&
    isSameCaller &&
    !isReleased &&
    !isOverridden &&
    rules.every(({ key }) => keys.includes(key))
  )
}

const canSettle = ({ id, isRenewal, lostForMs }: SettledRequest) =>
  id.length === ID_LETTERS && !isRenewal && lostForMs === undefined

function textOf({ id, spentAt, amounts }: SettledRequest, { ruleSet, rules }: Settled): string {
  const parts = ruleSet.entries.map((entry, place) => {
    if (!entry.settlement) return ''
    // A rule with numbers for several plans is in `rules` once for each of them, and only one has reserved.
    const i = rules.findIndex(({ rule }, i) => ruleSet.entryOf(rule) === place && amounts[i]!.reserved > 0)
    const cost = i === -1 ? 0 : amounts[i]!.actual
    return digits(cost, COST_DIGITS) + (variesByCaller(entry) ? (rules[i]?.rule.tag ?? '---') : '')
  })
  return id.slice(-LAST_LETTERS) + digits(spentAt % 2 ** 24, TIME_DIGITS) + parts.join('')
}

const digits = (value: number, length: number): string =>
  length === 0
    ? ''
    : digits(Math.floor(value / BASE), length - 1) + String.fromCharCode(FIRST_DIGIT + (value % BASE))
