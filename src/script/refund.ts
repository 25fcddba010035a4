/**
 * The wire format of the script that gives back all or some of the units that one request has spent.
 *
 * A refund with an id has an effect once, from whichever isolate and however often it is sent: its units are all that were given back of
 * the request so far. The store keeps these totals in a hash, and gives back only what they grow by. They are written after the states: as long as
 * a command fails, nothing is given back, and the same refund can be sent again.
 *
 *     KEYS     the record of the consumer if ARGV[3] is 'consumer', or overrides as in decide.ts; then states and logs as in decide.ts; then the hash of
 *              totals, if the refund has an id
 *     ARGV[1]  when the request was admitted, by the clock of the store (µs)
 *     ARGV[2]  marks as in decide.ts
 *     ARGV[3]  'consumer' if the rules are counted for a consumer, whose overrides then apply; else ''. Of limits by name: the numbers of the
 *              call, as in decide.ts
 *     ARGV[4]  the plan under which the request was counted, or ''
 *     ARGV[5]  now in microseconds, or '' for the clock of the store
 *     ARGV     the arguments of rules as in decide.ts, but for each queue how long the request had to wait (µs), or '' if its place is not
 *              given back; then for each rule that overrides can change, the limit and burst of the override
 *              under which the request was counted, as its record has them, or '' without such an override
 *     ARGV     then for each rule the units to give back (0: only report the state), and the units of that request that are still spent. With
 *              an id: all units that were given back so far, and all that the request had spent; then the id, and how long the totals are
 *              kept (s)
 *
 *     reply    { now, then for each rule remaining and reset_after }
 *
 * Under another override than then, a rule whose state is a time has another record. That one has not spent the units, so it gets none back.
 */
import type { ScriptCall } from '../store/store.ts'
import type { BoundRule, Verdict } from './evaluation.ts'
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

/** The units that one request has spent, and how many of them to give back. */
export interface Refund {
  /** The rule set of the rules. */
  ruleSet: RuleSet
  rules: readonly RefundedRule[]
  /** When the request was admitted, by the clock of the store (µs). */
  spentAt: number
  /** Absent: the units are given back again, if the same refund is sent again. Only for rule sets without a subject. */
  once?: RefundOnce | undefined
  /** Key of the record of the consumer that the rules are counted for. Its overrides apply. */
  consumerKey?: string | undefined
  /** The plan under which the request was counted. Absent if no rule has numbers for plans. */
  plan?: string | undefined
  /** µs since the epoch. Absent: the clock of the store. */
  now?: number | undefined
}

/** Identifies the request, so that its units are given back once. */
export interface RefundOnce {
  /** Key of the hash of totals. */
  key: string
  /** Of the request. */
  id: string
  /** How long the totals are kept (s): at least until a refund of the request can have no effect. */
  keepSeconds: number
}

export interface RefundedRule
  extends Pick<BoundRule, 'rule' | 'key' | 'sideKey' | 'ends' | 'holding' | 'mode'> {
  /** For a queue: how long the request had to wait for its turn (µs). Absent: its place is not given back. */
  wait?: number
  /** Units to give back. 0: the rule only reports its state. With an id: all units given back so far, including these. */
  units: number
  /** Units of that request that are still spent, including `units`. With an id: all that it had spent. */
  spent: number
  /** The limit and burst of the override under which the request was counted (`writtenNumbers`). */
  written?: string | undefined
}

/** The result of a refund or a reset: the states afterwards. */
export interface ChangeResult {
  /** When the change was made, by the clock of the store (µs). */
  at: number
  verdicts: readonly Verdict[]
}

/** Encodes a refund as a call of the script. @throws Error for an id with a rule set that has a subject */
export function encodeRefund(refund: Refund): ScriptCall {
  const { ruleSet, rules, spentAt, once, consumerKey, plan, now } = refund
  if (once && ruleSet.hasSubject) throw new Error('Only refunds of limits by name can have an id.')
  const { byEntry, keys, marks, ruleArguments } = placeRules(ruleSet, rules)
  const of = consumerKey === undefined ? numbersOfCall(rules) : 'consumer'
  const written = writtenOf(ruleSet, rules, ruleSet.entries.keys())
  const args = [String(spentAt), marks, of, plan ?? '', formatTime(now), ...ruleArguments, ...written]
  for (const refunded of byEntry) args.push(String(refunded?.units ?? 0), String(refunded?.spent ?? 0))
  if (once) args.push(once.id, String(once.keepSeconds))
  const records = consumerKey === undefined ? overridesKeys(ruleSet, rules) : [consumerKey]
  const reserved = ruleSet.reservations?.keysOf(ruleSet, rules) ?? []
  return {
    script: ruleSet.refund,
    keys: [...records, ...keys, ...reserved, ...(once ? [once.key] : [])],
    args,
  }
}

const FIELDS = 2

/**
 * Decodes the reply to a refund.
 * @throws GatewayError ERR_STORE_REPLY_INVALID for any reply that the script cannot have sent
 */
export function decodeRefund(reply: unknown, { ruleSet, rules }: Refund): ChangeResult {
  if (!Array.isArray(reply)) throw invalidReply('no list')
  const [at, ...rest] = reply as unknown[]
  if (!isField(at) || at < 0) throw invalidReply('no time')
  const fields = checkFields(rest)
  const expected = ruleSet.entries.length * FIELDS
  if (fields.length !== expected)
    throw invalidReply(`${fields.length} fields for ${ruleSet.entries.length} rules`)
  const verdicts = rules.map(({ rule, mode }): Verdict => {
    const row = ruleSet.entryOf(rule) * FIELDS
    const [remaining = 0, resetAfter = 0] = fields.slice(row, row + FIELDS)
    checkStanding(remaining, resetAfter, 0)
    return { rule, mode, allowed: true, remaining, resetAfter, retryAfter: 0, delay: 0 }
  })
  return { at, verdicts }
}
