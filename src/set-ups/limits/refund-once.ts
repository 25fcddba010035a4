/** Identifies the refunds of one call, so that the store gives its units back once. Pure. */
import type { LimitRule } from '../../config/compile.ts'
import type { RefundOnce } from '../../script/refund.ts'
import { limitStateKey, refundsKey } from '../../store/keys.ts'
import type { RefundableDecision } from './limiter-shape.ts'
import { writtenIn } from './records-of.ts'

/** The store keeps one record of the refunds for all calls of an identity that were decided within this time (µs). */
const BUCKET = 60e6

/** Refunds of calls that were decided longer ago than this (µs) have no effect: the window is over, the bucket has drained. */
function lengthOf(rule: LimitRule, decision: RefundableDecision): number {
  const { rate, period, burst } = rule.quota
  // An override changes the limit and the burst, and not the period. A receipt that is not signed can have any text there.
  const written = writtenIn(rule, decision)?.split(',').map(Number) ?? []
  const [limit = rule.limit, units = burst] = written.every(isCount) ? written : []
  return Math.max(2 * period, Math.ceil(((units * period) / rate) * (rule.limit / limit)))
}

const isCount = (value: number) => Number.isSafeInteger(value) && value > 0

/**
 * The key depends on the decision alone, so that later deployments, whatever rules they have, find what earlier ones have given back.
 * Decisions of earlier versions, which have no records, have the key that these versions use.
 * @param keyed all rules of the limit, with the keys of the identity
 */
export function refundOnce(
  decision: RefundableDecision,
  id: string,
  keyed: readonly { rule: LimitRule; key: string }[],
): RefundOnce {
  const { limit, identity, at, records } = decision
  const length = Math.max(...keyed.map(({ rule }) => lengthOf(rule, decision)))
  const parts = Object.entries(identity).map(([part, value]) => [part, String(value)] as const)
  const key = records
    ? refundsKey(limitStateKey(limit, parts.sort()), Math.floor(at / BUCKET))
    : refundsKey(keyed[0]!.key, Math.floor(at / length))
  return { key, id, keepSeconds: Math.ceil((length + BUCKET) / 1e6) }
}
