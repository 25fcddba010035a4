/**
 * The renewal of a lease: one request asks the store to spend for the next requests, too. It begins early enough for its answer to come
 * before the units or the time run out. Requests that find no units meanwhile wait for this answer, as far as its units will last.
 */
import { isWithin } from '../../trips/turn.ts'

/** A renewal that is on its way. It belongs to the request that has started it; other requests only read and count. */
export interface Renewal {
  /** ms */
  readonly startedAt: number
  /** For how many requests the store is asked to spend. */
  readonly wanted: number
  /** How many more requests can wait for its units. */
  places: number
}

/** A lease is renewed at the latest when this part of its units or of its time is left. */
const LATEST_SHARE = 1 / 4

/** A renewal begins this many trip times before the lease runs out. */
const MARGIN = 1.5

/** A request waits for renewals at most this many trip times, then it makes a trip of its own. */
const MAX_WAIT_TRIPS = 2

/** The shortest pause between two checks of a waiting request (ms). */
const MIN_PAUSE_MS = 4

/** A renewal without an answer after this time is considered lost (ms). */
export const TRIP_TIMEOUT_MS = 2000

export interface TripTime {
  /** How long a slow trip takes (ms); 0 before the first answer. */
  readonly ms: number
  record(ms: number): void
}

/** Estimates how long trips take: follows slower trips at once, and faster ones gradually. */
export function createTripTime(): TripTime {
  let ms = 0
  return {
    get ms() {
      return ms
    },
    record(tookMs) {
      ms = tookMs > ms ? tookMs : ms + (tookMs - ms) / 8
    },
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

/**
 * @param wanted requests that the store is asked to spend for
 * @param grantedShare the part of its wanted requests that the last renewal has got. Close to a limit the store grants few, and a
 *   request that waits in vain takes the time of two trips
 */
export const startRenewal = (startedAt: number, wanted: number, grantedShare: number): Renewal => ({
  startedAt,
  wanted,
  places: Math.floor(wanted * Math.min(1, 2 * grantedShare)) - 1,
})

export const isOnItsWay = (renewal: Renewal | undefined, time: number): renewal is Renewal =>
  renewal !== undefined && isWithin(TRIP_TIMEOUT_MS, renewal.startedAt, time)

/** The waiting of one request for renewals. */
export interface RenewalWait {
  /**
   * @param renewal the renewal that is on its way now
   * @returns ms until the request should check again whether it can be served; 0: it has to make a trip
   */
  pause(renewal: Renewal | undefined, time: number): number
  /** Whether the last wait was for this renewal. */
  isFor(renewal: Renewal | undefined): boolean
}

export function createRenewalWait(trip: TripTime): RenewalWait {
  let waitsFor: Renewal | undefined
  let until: number | undefined
  return {
    pause(renewal, time) {
      if (!isOnItsWay(renewal, time)) return 0
      until ??= time + MAX_WAIT_TRIPS * trip.ms
      if (time >= until) return 0
      if (waitsFor !== renewal) {
        if (renewal.places <= 0) return 0
        renewal.places -= 1
        waitsFor = renewal
      }
      // The answer is due after a trip's time. If it is late, the request checks a few more times.
      const dueIn = renewal.startedAt + trip.ms - time
      const pause = Math.max(MIN_PAUSE_MS, dueIn > 0 ? dueIn : trip.ms / 4)
      return Math.min(pause, until - time)
    },
    isFor: renewal => renewal !== undefined && renewal === waitsFor,
  }
}
