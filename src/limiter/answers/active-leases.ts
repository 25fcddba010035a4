/**
 * The leases of an isolate that hold units. When a lease ends, or after 250 ms without a request, its unused units are given back. They
 * travel with the next decision. A trip for them alone is made only if leases have saved one before, so leases never cost more trips than
 * requests without leases.
 */
import type { Timer } from '../../clock.ts'
import { GatewayError } from '../../errors.ts'
import { encodeRefund, type Refund } from '../../script/refund.ts'
import type { StoreCall } from '../../store/store.ts'
import type { Rider } from '../../trips/rider.ts'
import { isOnItsWay, LOST_AFTER_MS } from './asked.ts'
import type { KnownAnswers, Lease } from './known.ts'
import { canGiveBack, type LeaseGrant, refundOf } from './lease-units.ts'

export interface LeaseOptions {
  timer: Timer
  /** The time to write by (µs). Absent, as always in production: the clock of the store. */
  writeAt?: (() => number) | undefined
  /** Builds the call that gives units back; simulations pass their own. */
  buildRefundCall?: (refund: Refund) => StoreCall
}

/** After this time without a request (ms), unused units are given back. */
const IDLE_MS = 250

/** How often the isolate checks whether units are to be given back (ms). */
const RETURN_CHECK_MS = 100

/** How often a process that stops checks for replies that are still on their way (ms). */
const STOP_CHECK_MS = 10

/** Refunds in one HTTP request, and refunds that wait for one. */
const MAX_RETURNS_PER_TRIP = 20
const MAX_RETURNS_DUE = 1000

/** How long refunds wait for another request if no saved trip is left for them (ms). Then they are dropped. */
const MAX_RETURN_WAIT_MS = 10_000

export class ActiveLeases {
  /** Trips that leases have saved, minus those that were made to give units back. */
  savedTrips = 0
  /** Trips that have not ended: decisions and refunds. */
  openTrips = 0
  /** Set once no new lease is allowed. */
  isStopped = false
  readonly #known: KnownAnswers
  readonly #options: LeaseOptions
  readonly #leases = new Set<Lease>()
  /** Grants of leases that have ended, with units to give back. */
  #returnsDue: { grant: LeaseGrant; since: number }[] = []

  constructor(known: KnownAnswers, options: LeaseOptions) {
    this.#known = known
    this.#options = options
  }

  add(lease: Lease): void {
    this.#leases.add(lease)
  }

  end(lease: Lease): void {
    const since = this.#known.now()
    for (const grant of lease.grants)
      if (grant.units.some(canGiveBack)) this.#returnsDue.push({ grant, since })
    this.#returnsDue = this.#returnsDue.slice(-MAX_RETURNS_DUE)
    lease.grants = []
    lease.lastAnswer = undefined
    this.#leases.delete(lease)
  }

  /** Whether no request may use the units any more. While a renewal is on its way they are kept, because its answer makes them valid again. */
  isOver({ lastAnswer, renewal }: Lease, time: number): boolean {
    if (!lastAnswer || lastAnswer.asOf < this.#known.setBackAt) return true
    return time >= lastAnswer.keptUntil && !isOnItsWay(renewal, time)
  }

  /** Gives back the unused units of leases that have ended, with the next trips. */
  readonly returns: Rider = {
    isMeasured: true,
    isOptional: true,
    load: ({ isAlone }) => {
      const taken = this.#returnsDue.splice(0, MAX_RETURNS_PER_TRIP)
      if (taken.length === 0) return undefined
      if (isAlone) this.savedTrips -= 1
      this.openTrips += 1
      const { buildRefundCall = encodeRefund, writeAt } = this.#options
      return {
        calls: taken.map(({ grant }) => buildRefundCall(refundOf(grant, writeAt?.()))),
        // If a refund may have arrived, it is not sent again: the units stay spent.
        done: replies => {
          this.openTrips -= 1
          this.#returnsDue.unshift(...taken.filter((_, i) => wasNotSent(replies[i])))
        },
      }
    },
    aloneAfterMs: () => {
      this.#endExpired()
      const [oldest] = this.#returnsDue
      const wait =
        oldest && this.savedTrips > 0 ? oldest.since + RETURN_CHECK_MS - this.#known.now() : RETURN_CHECK_MS
      return this.#leases.size > 0 || oldest ? Math.max(0, wait) : undefined
    },
  }

  /**
   * Ends all leases and allows no new ones. Gives back all unused units, including those of replies that are still on their way.
   * @param send makes a trip for the returns; false: none can be made now
   */
  async giveBack(send: (returns: Rider) => Promise<boolean>): Promise<void> {
    this.isStopped = true
    for (const lease of this.#leases) this.end(lease)
    for (
      let waitedMs = 0;
      this.#returnsDue.length > 0 || (this.openTrips > 0 && waitedMs < LOST_AFTER_MS);
      waitedMs += STOP_CHECK_MS
    ) {
      while (this.#returnsDue.length > 0) {
        const isSent = await send(this.returns).catch(error => !wasNotSent(error))
        // No trip can be made now, so the units stay spent.
        if (!isSent) this.#returnsDue = []
      }
      if (this.openTrips > 0) await new Promise<void>(resolve => this.#options.timer(STOP_CHECK_MS, resolve))
    }
  }

  /** Discards the leased units of these keys, because their state was reset: they must not be given back. */
  discard(keys: readonly string[]): void {
    const isKept = ({ units }: LeaseGrant) => !units.some(({ bound }) => keys.includes(bound.key))
    this.#returnsDue = this.#returnsDue.filter(({ grant }) => isKept(grant))
    for (const lease of this.#leases) {
      lease.grants = lease.grants.filter(isKept)
      if (lease.grants.length === 0) this.#leases.delete(lease)
    }
  }

  #endExpired(): void {
    const time = this.#known.now()
    for (const lease of this.#leases)
      if (time >= lease.lastUsedAt + IDLE_MS || this.isOver(lease, time)) this.end(lease)
    this.#returnsDue = this.#returnsDue.filter(({ since }) => time - since < MAX_RETURN_WAIT_MS)
  }
}

const wasNotSent = (reply: unknown) => reply instanceof GatewayError && reply.fate === 'not-sent'
