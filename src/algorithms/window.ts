/** Shared by the windows, the log and `concurrency`: they count units, up to the limit. */
import type { Quota } from './algorithm.ts'

/** Of a sliding window: the counts of both windows share one number of the record. */
export const MAX_WINDOW_COUNT = 2 ** 23 - 1

/** @param period µs */
export function toWindowQuota({ limit }: { readonly limit: number }, period: number): Quota {
  return { rate: limit, period, burst: limit }
}

/** The quota for a share of the limit. @param limit the units of this share */
export function shareOfWindow(quota: Quota, limit: number): Quota {
  return { ...quota, rate: limit, burst: limit }
}
