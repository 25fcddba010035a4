/**
 * Keeps what requests of this isolate have reserved, until their cost is known. Then a settlement replaces the reserved units by the cost
 * (outbox.ts). Longer requests renew their reservation at half of its `ttl`, with the same messages. Each request renews its own, so that
 * those of a request that the platform has ended run out.
 *
 * A request that reserves is always decided by the store, or by the fallbacks. They count its estimate, and nothing settles it. If only
 * the reply is lost, what the store may have reserved is given back by the id of the reservation.
 */
import type { Background } from '../../background.ts'
import type { Timer } from '../../clock.ts'
import type { RememberedCaller } from '../../credentials/caller-memory.ts'
import type { Evaluation } from '../../script/evaluation.ts'
import type { SettleResult } from '../../script/settle.ts'
import type { Rider } from '../../trips/rider.ts'
import type { Trips } from '../../trips/trips.ts'
import type { Answers } from '../answers/answers.ts'
import type { CallGuard } from '../call-guard.ts'
import { type Degraded, toDegraded } from '../evaluate.ts'
import type { Stake } from '../keeper.ts'
import { prepareSettle, runCall } from '../prepared-call.ts'
import { renewUntilOver } from '../renew-until-over.ts'
import { createOutbox, type OutboxOptions, settlementOf } from './outbox.ts'
import {
  type ActualOf,
  amountsOf,
  firstEndMs,
  lastEndMs,
  lostReservationOf,
  newReservationId,
  type Reservation,
  reservationOf,
  type Settling,
} from './reservation.ts'
import { type CountReservations, createReservationStatistics } from './reservation-statistics.ts'

export type Settlements = ReturnType<typeof createSettlements>

export interface SettlementsOptions extends Omit<OutboxOptions, 'stats'> {
  timer: Timer
  /** Creates ids of reservations; simulations pass their own. */
  newId?: (() => string) | undefined
  /** Absent: there are no statistics. */
  count?: CountReservations | undefined
}

/** How far the clock of this machine can be behind that of the store (ms). */
const MAX_CLOCK_DIFFERENCE_MS = 60_000

/** A renewal that is not confirmed is checked again after this share of the `ttl`. */
const RENEWAL_CHECK_SHARE = 0.1

export function createSettlements({
  timer,
  newId = newReservationId,
  count,
  ...options
}: SettlementsOptions) {
  const { now, wallClock, writeAt } = options
  const stats = createReservationStatistics(count)
  const outbox = createOutbox({ ...options, stats })
  /** How long ago a partial reservation was made, at most (ms). Its `ttl` can have been shorter than that of now, so it can end at any time. */
  const lostForMsOf = (reservation: Reservation) => {
    const { isPartial, spentAt } = reservation
    if (!isPartial) return undefined
    return Math.max(lastEndMs(reservation), wallClock() - spentAt / 1e3) + MAX_CLOCK_DIFFERENCE_MS
  }
  const requestOf = ({ id, spentAt }: Reservation) => ({ id, spentAt })

  function queue(reservation: Reservation, actualOf: ActualOf | undefined, until: number): void {
    const amounts = amountsOf(reservation, actualOf)
    stats.cost(reservation, amounts)
    const lostForMs = lostForMsOf(reservation)
    const lostAt = lostForMs && now() - lostForMs
    outbox.add(reservation, { request: { ...requestOf(reservation), amounts }, until, lostAt })
  }

  /**
   * Gives back what the store may have reserved for a decision whose reply was lost: the fallbacks have decided the request, and count
   * it instead.
   * @param sentAt when the decision was sent (ms)
   */
  function giveBackLost(evaluation: Evaluation, seen: RememberedCaller | undefined, sentAt: number): void {
    const lost = lostReservationOf(evaluation, seen)
    if (!lost) return
    const request = { ...requestOf(lost), amounts: amountsOf(lost, () => 0) }
    outbox.add(lost, { request, lostAt: sentAt, until: now() + lastEndMs(lost) })
  }

  /**
   * Renews a reservation until its request is over.
   * @returns a function to be called once, when the request is over
   */
  function keep(
    reservation: Reservation,
    trips: Pick<Trips, 'schedule'>,
    background: Background,
  ): (settling?: Settling) => void {
    const ttlMs = firstEndMs(reservation)
    let renewedAt = now()
    let isRenewing = false
    let isOver = false
    const endsAt = () => renewedAt + lastEndMs(reservation)
    const dueInMs = () => renewedAt + ttlMs / 2 - now()
    function renew(): void {
      const amounts = amountsOf(reservation, undefined)
      isRenewing = outbox.add(reservation, {
        request: { ...requestOf(reservation), amounts, isRenewal: true },
        until: endsAt(),
        isObsolete: () => isOver,
        onConfirmed(sentAt, isGone) {
          renewedAt = sentAt
          isRenewing = false
          // Another process may have settled it, and this one may never know.
          if (isGone) endRenewals()
        },
      })
    }
    const endRenewals = renewUntilOver(
      timer,
      background,
      RENEWAL_CHECK_SHARE * ttlMs,
      () => (now() < endsAt() ? dueInMs() : undefined),
      () => {
        if (dueInMs() <= 0 && !isRenewing) renew()
        // Also if a message waits already: the request that was to send it may have ended.
        trips.schedule(background)
      },
    )
    return settling => {
      isOver = true
      endRenewals()
      if (settling !== 'unsettled') queue(reservation, settling, endsAt())
      trips.schedule(background)
    }
  }

  return {
    rider: outbox.rider,
    get backlog() {
      return outbox.backlog
    },

    /**
     * Makes the stake of a request that reserves.
     * @param permits the stake of its units in flight, if it takes any: both end together
     */
    stakeOf(request: Evaluation, permits: Stake | undefined): Stake {
      const reservationId = newId()
      const evaluation = { ...request, reservationId }
      const sentAt = now()
      let reservation: Reservation | undefined
      let isResolved = false
      return {
        forStore: { ...permits?.forStore, reservationId },
        get reservation() {
          return reservation
        },
        resolve(outcome) {
          isResolved = true
          permits?.resolve(outcome)
          reservation = reservationOf(evaluation, outcome)
          if (reservation) stats.made(reservation)
        },
        markUndecided(fate, seen) {
          const mayBeLost = !isResolved && fate === 'may-have-run'
          isResolved = true
          if (mayBeLost) giveBackLost(evaluation, seen, sentAt)
          return permits?.markUndecided(fate)
        },
        holdLocally: decision => permits?.holdLocally(decision),
        keep(trips, background) {
          const release = permits?.keep(trips, background)
          const settle = reservation && keep(reservation, trips, background)
          if (!settle) return release
          return (settling, isFollowed) => {
            release?.(settling, isFollowed)
            settle(settling)
          }
        },
      }
    },

    keep,

    /** Settles at once. If the store fails, the settlement is repeated in the background. @returns the states afterwards */
    async settleNow(
      { trips, answers }: { trips: Pick<Trips, 'store' | 'schedule'>; answers: Answers | undefined },
      reservation: Reservation,
      actualOf: ActualOf | undefined,
      background: Background,
      guard?: CallGuard,
    ): Promise<SettleResult | Degraded> {
      const amounts = amountsOf(reservation, actualOf)
      const lostForMs = lostForMsOf(reservation)
      const settlement = settlementOf(reservation, { amounts, lostForMs }, wallClock(), writeAt?.())
      const store = guard?.on(trips.store) ?? trips.store
      const settled = await runCall(store, prepareSettle(settlement)).catch(toDegraded)
      if ('cause' in settled) {
        guard?.passFailure(settled)
        queue(reservation, actualOf, now() + lastEndMs(reservation))
      } else {
        options.onReport?.(reservation.rules, settled)
        stats.answered(reservation, settlement.requests, settled)
        if (settled.applied > 0) stats.cost(reservation, amounts)
      }
      // The units that were given back may make room for others.
      const keys = reservation.rules.map(({ key }) => key)
      answers?.forget(keys, 'refund')
      trips.schedule(background)
      return settled
    },

    /** Sends what waits, before a process ends. */
    flush: (send: (rider: Rider) => Promise<boolean>) =>
      outbox.flush(send, ms => new Promise<void>(resolve => timer(ms, resolve))),
  }
}
