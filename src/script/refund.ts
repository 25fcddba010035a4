/**
 * The wire of the script that gives back what one request has spent, or parts of it.
 *
 *     KEYS     the record of the consumer if ARGV[3] says so; then states and logs as in decide.ts
 *     ARGV[1]  when the request was admitted, by the clock of the store
 *     ARGV[2]  marks as in decide.ts
 *     ARGV[3]  'consumer' where rules are counted for a consumer, whose overrides then apply; else ''
 *     ARGV[4]  the plan that the request was counted by, or ''
 *     ARGV[5]  now in microseconds, or '' for the clock of the store
 *     ARGV     what decide.ts has there; then for each rule the units to give back (0: it only
 *              reports how things stand), and the units of that request that are still spent
 *
 *     reply    { now, then for each rule remaining and reset_after }
 */
import type { ScriptCall } from '../store/store.ts'
import type { BoundRule, Verdict } from './evaluation.ts'
import type { Policy } from './policy-shape.ts'
import { checkFields, checkStanding, formatTime, invalidReply, isField, placeRules } from './wire.ts'

/** What one request has spent, and how much of it is given back. */
export interface Refund {
  /** The rules that were decided together. */
  policy: Policy
  rules: readonly RefundedRule[]
  /** When the request was admitted, by the clock of the store (µs). */
  spentAt: number
  /** Key of the record of the consumer that the rules are counted for: its overrides apply. */
  consumerKey?: string | undefined
  /** The plan that the request was counted by; absent: no rule has numbers for plans. */
  plan?: string | undefined
  /** µs since the epoch; absent: the clock of the store. */
  now?: number | undefined
}

export interface RefundedRule
  extends Pick<BoundRule, 'rule' | 'key' | 'ownKey' | 'ends' | 'holding' | 'mode'> {
  /** Units to give back; 0: it only reports how things stand. */
  units: number
  /** Units of that request that are still spent, `units` included. */
  spent: number
}

/** How things stand after a change. */
export interface ChangeResult {
  /** When it was made, by the clock of the store (µs). */
  at: number
  verdicts: readonly Verdict[]
}

export function encodeRefund({ policy, rules, spentAt, consumerKey, plan, now }: Refund): ScriptCall {
  const { bySlot, keys, marks, ruleArguments } = placeRules(policy, rules)
  const of = consumerKey === undefined ? '' : 'consumer'
  const args = [String(spentAt), marks, of, plan ?? '', formatTime(now), ...ruleArguments]
  for (const refunded of bySlot) args.push(String(refunded?.units ?? 0), String(refunded?.spent ?? 0))
  const records = consumerKey === undefined ? [] : [consumerKey]
  return { script: policy.refund, keys: [...records, ...keys], args }
}

const FIELDS = 2

/** @throws GatewayError ERR_STORE_REPLY_INVALID for any reply that the script cannot have sent */
export function decodeRefund(reply: unknown, { policy, rules }: Refund): ChangeResult {
  if (!Array.isArray(reply)) throw invalidReply('no list')
  const [at, ...rest] = reply as unknown[]
  if (!isField(at) || at < 0) throw invalidReply('no time')
  const fields = checkFields(rest)
  const expected = policy.slots.length * FIELDS
  if (fields.length !== expected)
    throw invalidReply(`${fields.length} fields for ${policy.slots.length} rules`)
  const verdicts = rules.map(({ rule, mode }): Verdict => {
    const row = policy.slotOf(rule) * FIELDS
    const [remaining = 0, resetAfter = 0] = fields.slice(row, row + FIELDS)
    checkStanding(remaining, resetAfter, 0)
    return { rule, mode, allowed: true, remaining, resetAfter, retryAfter: 0, delay: 0 }
  })
  return { at, verdicts }
}
