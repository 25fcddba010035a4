/** Identifies the refunds of one call, so that the store gives its units back once. Pure. */
import type { Rule } from '../../config/compile-rule.ts'
import type { RefundOnce } from '../../script/refund.ts'
import { refundsKey } from '../../store/keys.ts'

/**
 * Refunds of calls that were decided longer ago than this (µs) have no effect: the window is over, the bucket has drained. The store keeps
 * one record of the refunds for all calls of an identity within each time of this length.
 */
const lengthOf = ({ quota: { rate, period, burst } }: Rule) =>
  Math.max(2 * period, Math.ceil((burst * period) / rate))

/**
 * @param at when the call was decided, by the clock of the store (µs)
 * @param keyed all rules of the limit, with the keys of the identity
 */
export function refundOnce(
  id: string,
  at: number,
  keyed: readonly { rule: Rule; key: string }[],
): RefundOnce {
  const length = Math.max(...keyed.map(({ rule }) => lengthOf(rule)))
  const key = refundsKey(keyed[0]!.key, Math.floor(at / length))
  return { key, id, keepSeconds: Math.ceil((2 * length) / 1e6) }
}
