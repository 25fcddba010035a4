/**
 * The wire format of the script that settles reservations: it replaces what requests have reserved by what they have cost.
 *
 * A decision that reserves adds records to the state of each identity (reserved-records.ts). It adds a member to the reservations
 * of the identity instead, if there is no room, if not all rules of the identity spend, or if units are given back at the end. They are a sorted set,
 * whose scores are when the members end (ms, by the clock of the store):
 *
 *     <reservationId> <spent_at> <family>=<units> <family>=<units> …
 *
 * Members with rates whose units are given back also name their records (reservation-text.ts).
 *
 * Only the removal of the records or the member settles it, in the same script. So each reservation is settled at most once, however often the
 * message is sent and by which isolate, and messages need no order. A reservation that has ended is not settled: its units stay spent, or the next
 * decision of the identity gives them back.
 *
 *     KEYS     the record of the consumer if ARGV[3] is 'consumer', or overrides as in decide.ts; then states, and reservations of the identities that have them
 *     ARGV[1]  ''
 *     ARGV[2]  marks as in decide.ts
 *     ARGV[3]  'consumer' if the rules are counted for a consumer, whose overrides then apply; else ''. Of limits by name: the numbers of the
 *              call, as in decide.ts
 *     ARGV[4]  the plan under which the requests were counted, or ''
 *     ARGV[5]  now in microseconds, or '' for the clock of the store
 *     ARGV     the arguments of rules as in decide.ts; then for each rule with a settlement that overrides can change, the limit and burst of
 *              the override under which the requests were counted, as its record has them, '' without such an override, or '?' if that
 *              is not known
 *     ARGV     for each request its reservationId, when it was admitted (µs), 'settle' or 'renew', and for each rule with a
 *              settlement the units reserved and the units that it has cost.
 *              A job has 'job' instead, is the only request of its call, and KEYS end with its key
 *              If the reply to its decision was lost: its reservationId, the most milliseconds since its decision, 'lost', and the same
 *              numbers, of which only the cost is used
 *
 *     reply    { now, the number of reservations that were settled or renewed, then for each rule with a settlement remaining, reset_after
 *              and debt }
 *
 * Fewer units than reserved are given back as by a refund, so nothing to a window that has ended. More are spent without a check.
 *
 * A job (src/limiter/reservations/jobs.ts) is a request whose reservation was settled by its estimate. Only the removal of its key settles it once more.
 *
 * If the reply was lost, the isolate knows only the id. In the set, it is the first word of a member. That has not ended before `ttl` from the decision, so the script
 * looks at the members that end later, the earliest first, until it has found all ids: those of decisions made since then, however many.
 *
 * Commands: TIME (unless now is given), one MGET, and for each identity SETEX; if a reservation is not in the state, ZMSCORE and ZREM, or for
 * renewals ZADD and PEXPIRE; now and then ZREMRANGEBYSCORE. After lost replies ZRANGEBYSCORE. For a job EXISTS, and DEL after the states.
 */

import type { ScriptCall } from '../store/store.ts'
import type { BoundRule, Verdict } from './evaluation.ts'
import { reservedKeys } from './reservation-wire.ts'
import type { RuleSet } from './rule-set-shape.ts'
import {
  checkFields,
  checkStanding,
  formatTime,
  invalidReply,
  isField,
  numbersOfCall,
  overridesKeys,
  placeRules,
  writtenOf,
} from './wire.ts'

/** The settlements of requests that were counted under the same rules, for the same identities and under the same plan. */
export interface Settlement {
  /** The rule set of the rules. */
  ruleSet: RuleSet
  rules: readonly SettledRule[]
  /** Key of the record of the consumer that the rules are counted for. Its overrides apply. */
  consumerKey?: string | undefined
  /** The plan under which the requests were counted. Absent if no rule has numbers for plans. */
  plan?: string | undefined
  /** µs since the epoch. Absent: the clock of the store. */
  now?: number | undefined
  requests: readonly SettledRequest[]
}

export interface SettledRule
  extends Pick<BoundRule, 'rule' | 'key' | 'sideKey' | 'ends' | 'holding' | 'mode'> {
  /** The limit and burst of the override under which the requests were counted (`writtenNumbers`), or `UNKNOWN_NUMBERS`. */
  written?: string | undefined
}

/** If the reply to a decision was lost, it is taken to be counted under the override of now. */
export const UNKNOWN_NUMBERS = '?'

/** A request with a reservation. */
export interface SettledRequest {
  /** Its reservationId. */
  id: string
  /** When it was admitted, by the clock of the store (µs). */
  spentAt: number
  /**
   * Set if the reply to its decision was lost, so that `spentAt` and what it has reserved are unknown: how long ago the decision was
   * made, at most (ms).
   */
  lostForMs?: number | undefined
  /** For each of the rules, in their order. */
  amounts: readonly SettledAmount[]
  /** Whether only the end of the reservation is moved: to one ttl from now. */
  isRenewal?: boolean
  /** Set if it is a job, which has no reservation any more. Then it is the only request. */
  jobKey?: string | undefined
}

export interface SettledAmount {
  /** As the store has reported. 0: nothing. */
  reserved: number
  /** What the request has cost. */
  actual: number
}

/** The states afterwards. */
export interface SettleResult {
  /** When it was done, by the clock of the store (µs). */
  at: number
  /** For how many identities of the requests it was done. Of the others, the reservation was settled before, or has ended. */
  applied: number
  verdicts: readonly Verdict[]
}

/** The indexes of the rules that have a settlement. */
const settledEntries = ({ entries }: RuleSet) =>
  entries.flatMap(({ settlement }, place) => (settlement ? place : []))

/** Encodes settlements as a call of the script. @throws Error if no rule of the rule set has a settlement */
export function encodeSettle({ ruleSet, rules, consumerKey, plan, now, requests }: Settlement): ScriptCall {
  if (!ruleSet.settle) throw new Error('No rule of this rule set has a settlement.')
  const { keys, marks, ruleArguments } = placeRules(ruleSet, rules)
  const of = consumerKey === undefined ? numbersOfCall(rules) : 'consumer'
  const settled = settledEntries(ruleSet)
  const places = rules.map(({ rule }) => settled.indexOf(ruleSet.entryOf(rule)))
  const written = writtenOf(ruleSet, rules, settled)
  const args = ['', marks, of, plan ?? '', formatTime(now), ...ruleArguments, ...written]
  for (const { id, spentAt, lostForMs, amounts, isRenewal, jobKey } of requests) {
    const row = new Array<string>(2 * settled.length).fill('0')
    for (const [i, { reserved, actual }] of amounts.entries()) {
      // A rule with numbers for several plans is in `rules` once for each of them, and only one has reserved.
      if (places[i] === -1 || (reserved === 0 && lostForMs === undefined)) continue
      row[2 * places[i]!] = String(reserved)
      row[2 * places[i]! + 1] = String(actual)
    }
    if (lostForMs !== undefined) args.push(id, String(Math.ceil(lostForMs)), 'lost', ...row)
    else args.push(id, String(spentAt), jobKey ? 'job' : isRenewal ? 'renew' : 'settle', ...row)
  }
  const records = consumerKey === undefined ? overridesKeys(ruleSet, rules) : [consumerKey]
  const jobs = requests.flatMap(({ jobKey = [] }) => jobKey)
  const allKeys = [...records, ...keys, ...reservedKeys(ruleSet, rules), ...jobs]
  return { script: ruleSet.settle, keys: allKeys, args }
}

const FIELDS = 3

/**
 * Decodes the reply to settlements.
 * @throws GatewayError ERR_STORE_REPLY_INVALID for any reply that the script cannot have sent
 */
export function decodeSettle(reply: unknown, { ruleSet, rules }: Settlement): SettleResult {
  if (!Array.isArray(reply)) throw invalidReply('no list')
  const [at, applied, ...rest] = reply as unknown[]
  if (!isField(at) || at < 0) throw invalidReply('no time')
  if (!isField(applied) || applied < 0) throw invalidReply('no number of reservations')
  const fields = checkFields(rest)
  const settled = settledEntries(ruleSet)
  if (fields.length !== settled.length * FIELDS)
    throw invalidReply(`${fields.length} fields for ${settled.length} rules`)
  const verdicts = rules.map(({ rule, mode }): Verdict => {
    const row = settled.indexOf(ruleSet.entryOf(rule)) * FIELDS
    const [remaining = 0, resetAfter = 0, debt = 0] = fields.slice(row, row + FIELDS)
    checkStanding(remaining, resetAfter, 0)
    const debtOf = rule.settlement && { debt }
    return { rule, mode, allowed: true, remaining, resetAfter, retryAfter: 0, delay: 0, ...debtOf }
  })
  return { at, applied, verdicts }
}
