/**
 * The renewal of a lease: one request asks the store to spend for the next requests, too. It begins early enough for its answer to come
 * before the units or the time run out. Requests that find no units meanwhile wait for this answer (asked.ts), as far as its units will
 * last.
 */
import type { Asked } from './asked.ts'

/** A renewal that is on its way. It belongs to the request that has started it; other requests only read and count. */
export interface Renewal extends Asked {
  /** For how many requests the store is asked to spend. */
  readonly wanted: number
}

/** A lease is renewed at the latest when this part of its units or of its time is left. */
const LATEST_SHARE = 1 / 4

/** A renewal begins this many trip times before the lease runs out. */
const MARGIN = 1.5

/** Estimates how many requests come in the time of a lease, from this interval of its duration and the one before. */
export class RequestRate {
  #interval = 0
  #requests = 0
  #previous = 0

  /** Counts a request. @returns the requests in the time of a lease @param time ms */
  count(time: number, leaseMs: number): number {
    const interval = Math.floor(time / leaseMs)
    if (interval !== this.#interval) {
      this.#previous = interval === this.#interval + 1 ? this.#requests : 0
      this.#interval = interval
      this.#requests = 0
    }
    this.#requests += 1
    return Math.floor(this.#requests + this.#previous * (1 - (time / leaseMs - interval)))
  }
}

/** The part of the lease's units or time that has to be left for a renewal to be in time: 1/4 to 1. */
export const renewalShare = (leaseMs: number, tripMs: number) =>
  Math.min(1, Math.max(LATEST_SHARE, (MARGIN * tripMs) / leaseMs))

/**
 * For how many requests a renewal asks the store to spend.
 * @param rate requests that come in the time of a lease
 * @param servable requests that the isolate can still serve
 */
export function wantedBy(rate: number, servable: number, leaseMs: number, tripMs: number): number {
  // Requests that come during the trip, and are served before the answer. If a trip takes longer than the lease, they wait for it.
  const perTrip = Math.floor((rate * tripMs) / leaseMs)
  return Math.max(1, Math.max(rate, perTrip) - Math.max(0, servable - perTrip))
}
