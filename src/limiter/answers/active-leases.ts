/**
 * The leases of an isolate that hold units. When a lease ends, or after 250 ms without a request, its unused units are given back. They
 * travel with the next decision. A trip for them alone is made only if leases have saved one before, so leases never cost more trips than
 * requests without leases.
 */
import type { Timer } from '../../clock.ts'
import { GatewayError } from '../../errors.ts'
import type { Log } from '../../log.ts'
import { encodeRefund, type Refund } from '../../script/refund.ts'
import type { StoreCall } from '../../store/store.ts'
import type { Rider } from '../../trips/rider.ts'
import { isOnItsWay, LOST_AFTER_MS } from './asked.ts'
import type { KnownAnswers, Lease } from './known.ts'
import { canGiveBack, type LeaseGrant, refundOfGrant } from './lease-units.ts'

export interface LeaseOptions {
  timer: Timer
  log: Log
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

/** Refunds beside decisions, which wait for them, and in a trip of their own; about 40 µs of Redis each. */
const MAX_RETURNS_BESIDE = 20
const MAX_RETURNS_ALONE = 100

/** Refunds that wait for a trip: more than an isolate has leases (known.ts), because all of them can end at once. */
const MAX_RETURNS_DUE = 10_000

/**
 * How long refunds wait (ms), if the store does not answer or no saved trip is left for them. Then they are dropped: a refund of units that
 * were leased before a reset can admit as many requests again, so it must not come late. In this time, trips of their own take as many as
 * can wait.
 */
const MAX_RETURN_WAIT_MS = 10_000

const DROPPED = {
  late: `For ${MAX_RETURN_WAIT_MS / 1000} s, no trip could take them to the store.`,
  many: `More than ${MAX_RETURNS_DUE} leases wait for a trip that takes their units to the store.`,
  failed: 'Their trip has failed. If its reply was lost, the store may have taken them.',
  stopped: 'This process ends, and the store does not answer.',
}

export function createActiveLeases(
  known: KnownAnswers,
  { timer, log, writeAt, buildRefundCall = encodeRefund }: LeaseOptions,
) {
  const leases = new Set<Lease>()
  /** Grants of leases that have ended, with units to give back. */
  let returnsDue: { grant: LeaseGrant; since: number }[] = []
  let lastTripAloneAt = Number.NEGATIVE_INFINITY
  /** What no line of the log has said yet. */
  let dropped: { leases: number; units: number; why: keyof typeof DROPPED } | undefined

  /** Drops returns. Their units stay spent, and become free as those of requests do: by time. */
  function drop(returns: typeof returnsDue, why: keyof typeof DROPPED): void {
    for (const { grant } of returns) {
      const units = grant.units.filter(canGiveBack).reduce((sum, { left }) => sum + left, 0)
      dropped = { leases: (dropped?.leases ?? 0) + 1, units: (dropped?.units ?? 0) + units, why }
    }
  }

  function logDropped(): void {
    if (!dropped) return
    const { why, ...numbers } = dropped
    const detail = `Unused units of leases are not given back. They stay spent, as those of requests do. ${DROPPED[why]}`
    if (log('warn', 'returns-dropped', { ...numbers, detail })) dropped = undefined
  }

  function end(lease: Lease): void {
    const since = known.now()
    for (const grant of lease.grants) if (grant.units.some(canGiveBack)) returnsDue.push({ grant, since })
    drop(returnsDue.splice(0, returnsDue.length - MAX_RETURNS_DUE), 'many')
    lease.grants = []
    lease.lastAnswer = undefined
    leases.delete(lease)
  }
  known.onDroppedLease = end

  /** Whether no request may use the units any more. While a renewal is on its way they are kept, because its answer makes them valid again. */
  function isOver({ lastAnswer, renewal }: Lease, time: number): boolean {
    if (!lastAnswer || lastAnswer.asOf < known.setBackAt) return true
    return time >= lastAnswer.keptUntil && !isOnItsWay(renewal, time)
  }

  function endExpired(): void {
    const time = known.now()
    for (const lease of leases) if (time >= lease.lastUsedAt + IDLE_MS || isOver(lease, time)) end(lease)
    const isLate = ({ since }: { since: number }) => time - since >= MAX_RETURN_WAIT_MS
    drop(returnsDue.filter(isLate), 'late')
    returnsDue = returnsDue.filter(each => !isLate(each))
    logDropped()
  }

  /** Gives back the unused units of leases that have ended, with the next trips. */
  const returns: Rider = {
    isMeasured: true,
    isOptional: true,
    load: ({ isAlone }) => {
      const taken = returnsDue.splice(0, isAlone ? MAX_RETURNS_ALONE : MAX_RETURNS_BESIDE)
      if (taken.length === 0) return undefined
      if (isAlone) {
        active.savedTrips -= 1
        lastTripAloneAt = known.now()
      }
      active.tripsUnderWay += 1
      return {
        calls: taken.map(({ grant }) => buildRefundCall(refundOfGrant(grant, writeAt?.()))),
        // If a refund may have arrived, it is not sent again: the units stay spent.
        done: replies => {
          active.tripsUnderWay -= 1
          returnsDue.unshift(...taken.filter((_, i) => wasNotSent(replies[i])))
          drop(
            taken.filter((_, i) => replies[i] instanceof GatewayError && !wasNotSent(replies[i])),
            'failed',
          )
          logDropped()
        },
      }
    },
    aloneAfterMs: () => {
      endExpired()
      const [oldest] = returnsDue
      const isPaid = oldest && active.savedTrips > 0
      const since = isPaid ? Math.max(oldest.since, lastTripAloneAt) : known.now()
      const wait = since + RETURN_CHECK_MS - known.now()
      return leases.size > 0 || oldest ? Math.max(0, wait) : undefined
    },
  }

  const active = {
    /** Trips that leases have saved, minus those that were made to give units back. */
    savedTrips: 0,
    /** Trips that have not ended: decisions and refunds. */
    tripsUnderWay: 0,
    /** Set once no new lease is allowed. */
    isStopped: false,
    add: (lease: Lease) => void leases.add(lease),
    end,
    isOver,
    returns,

    /**
     * Ends all leases and allows no new ones. Gives back all unused units, including those of replies that are still on their way.
     * @param send makes a trip for the returns; false: none can be made now
     */
    async giveBack(send: (returns: Rider) => Promise<boolean>): Promise<void> {
      active.isStopped = true
      leases.forEach(end)
      const isExpected = (waitedMs: number) => active.tripsUnderWay > 0 && waitedMs < LOST_AFTER_MS
      for (let waitedMs = 0; returnsDue.length > 0 || isExpected(waitedMs); waitedMs += STOP_CHECK_MS) {
        while (returnsDue.length > 0) {
          const isSent = await send(returns).catch(error => !wasNotSent(error))
          if (!isSent) drop(returnsDue.splice(0), 'stopped')
          logDropped()
        }
        if (active.tripsUnderWay > 0) await new Promise<void>(resolve => timer(STOP_CHECK_MS, resolve))
      }
    },

    /** Discards the leased units of these keys, because their state was reset: they must not be given back. */
    discard(keys: readonly string[]): void {
      const isKept = ({ units }: LeaseGrant) => !units.some(({ bound }) => keys.includes(bound.key))
      returnsDue = returnsDue.filter(({ grant }) => isKept(grant))
      for (const lease of leases) {
        lease.grants = lease.grants.filter(isKept)
        if (lease.grants.length === 0) leases.delete(lease)
      }
    },
  }
  return active
}

const wasNotSent = (reply: unknown) => reply instanceof GatewayError && reply.fate === 'not-sent'
