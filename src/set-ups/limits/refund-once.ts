/** Identifies the refunds of one call, so that the store gives its units back once. Pure. */
import type { Rule } from '../../config/compile-rule.ts'
import type { RefundOnce } from '../../script/refund.ts'
import { limitStateKey, refundsKey } from '../../store/keys.ts'
import type { RefundableDecision } from './limiter-shape.ts'

/** The store keeps one record of the refunds for all calls of an identity that were decided within this time (µs). */
const BUCKET = 60e6

/** Refunds of calls that were decided longer ago than this (µs) have no effect: the window is over, the bucket has drained. */
const lengthOf = ({ quota: { rate, period, burst } }: Rule) =>
  Math.max(2 * period, Math.ceil((burst * period) / rate))

/**
 * The key depends on the decision alone, so that later deployments, whatever rules they have, find what earlier ones have given back.
 * Decisions of earlier versions, which have no records, have the key that these versions use.
 * @param keyed all rules of the limit, with the keys of the identity
 */
export function refundOnce(
  { limit, identity, at, records }: RefundableDecision,
  id: string,
  keyed: readonly { rule: Rule; key: string }[],
): RefundOnce {
  const length = Math.max(...keyed.map(({ rule }) => lengthOf(rule)))
  const parts = Object.entries(identity).map(([part, value]) => [part, String(value)] as const)
  const key = records
    ? refundsKey(limitStateKey(limit, parts.sort()), Math.floor(at / BUCKET))
    : refundsKey(keyed[0]!.key, Math.floor(at / length))
  return { key, id, keepSeconds: Math.ceil((length + BUCKET) / 1e6) }
}
