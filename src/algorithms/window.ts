/** What the windows and the log have in common: they count units, up to the limit. */
import type { Quota } from './algorithm.ts'

export function windowOf({ limit }: { readonly limit: number }, period: number): Quota {
  return { rate: limit, period, burst: limit }
}

/** A share of the limit in each period. */
export function shareOfWindow(quota: Quota, limit: number): Quota {
  return { ...quota, rate: limit, burst: limit }
}
