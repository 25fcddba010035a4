/** The wire of refund.lua. The contract is described there. */
import type { ScriptCall } from '../store/store.ts'
import type { BoundRule, Verdict } from './evaluation.ts'
import { REFUND } from './scripts.generated.ts'
import { checkStanding, familyOf, invalid, isField, keysOf, placeOf, rowsOf, textOf } from './wire.ts'

/** What one request has spent, and how much of it is given back. */
export interface Refund {
  rules: readonly RefundedRule[]
  /** When the request was admitted, by the clock of the store (µs). */
  spentAt: number
  /** Key of the record of the consumer that the rules are counted for: its overrides apply. */
  consumerKey?: string | undefined
  /** µs since the epoch; absent: the clock of the store. */
  now?: number | undefined
}

export interface RefundedRule extends Pick<BoundRule, 'rule' | 'key' | 'logKey' | 'ends' | 'mode'> {
  /** Units to give back; 0: it only reports how things stand. */
  units: number
  /** Units of that request that are still spent, `units` included. */
  spent: number
}

/** How things stand after a change. */
export interface Changed {
  /** When it was made, by the clock of the store (µs). */
  at: number
  verdicts: readonly Verdict[]
}

export function encodeRefund({ rules, spentAt, consumerKey, now }: Refund): ScriptCall {
  const places = keysOf(consumerKey === undefined ? [] : [consumerKey], rules)
  const { keys, whole } = places
  const args = [textOf(now), String(spentAt), String(whole), consumerKey === undefined ? '' : 'consumer']
  for (const refunded of rules) {
    const { units, spent } = refunded
    args.push(...placeOf(refunded, places), String(units), String(spent), familyOf(refunded))
  }
  return { script: REFUND, keys, args }
}

/** @throws GatewayError ERR_STORE_REPLY_INVALID for any reply that refund.lua cannot have sent */
export function decodeRefund(reply: unknown, { rules }: Refund): Changed {
  if (!Array.isArray(reply)) throw invalid('no list')
  const [at, ...fields] = reply as unknown[]
  if (!isField(at) || at < 0) throw invalid('no time')
  const rows = rowsOf(fields)
  if (rows.length !== rules.length) throw invalid(`${rows.length} rows for ${rules.length} rules`)
  const verdicts = rules.map(({ rule, mode }, i): Verdict => {
    checkStanding(rows[i]!)
    const [, remaining, resetAfter] = rows[i]!
    return { rule, mode, allowed: true, remaining, resetAfter, retryAfter: 0, delay: 0 }
  })
  return { at, verdicts }
}
