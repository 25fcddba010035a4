/**
 * Keeps the stakes of requests: what each has in the store until it is over. These are units in flight (units/) and reserved units
 * (reservations/). The engine has one keeper. If its rules need both, the keeper of reservations calls that of units in flight, and the
 * two share one stake.
 */
import type { Background } from '../background.ts'
import type { RememberedCaller } from '../credentials/caller-memory.ts'
import type { CallFate } from '../errors.ts'
import type { BoundRule, Evaluation, Outcome } from '../script/evaluation.ts'
import type { Rider } from '../trips/rider.ts'
import type { Trips } from '../trips/trips.ts'
import type { Decision } from './decision.ts'
import type { Reservation, Settling } from './reservations/reservation.ts'

/** A request that the store is about to decide. */
export interface UndecidedRequest {
  readonly evaluation: Evaluation
  /** As in `Demand`: the store is not asked. */
  readonly failure?: unknown
  /** As in `DecideOptions`. */
  readonly isFinal?: boolean | undefined
}

export interface Keeper {
  /** Tells the store what has become of stakes, with calls before the decisions of a trip. */
  readonly firstRider?: Rider | undefined
  /** The same, with calls after them. */
  readonly rider?: Rider | undefined
  /** Makes the stake of a request, right before the store decides it; undefined: the request has none. */
  stakeOf(request: UndecidedRequest): Stake | undefined
}

/** The stake of one request. It is resolved once, by `resolve` or `markUndecided`. */
export interface Stake {
  /** What the store has to know about it. */
  readonly forStore: Partial<Evaluation>
  /** What the request has reserved. */
  readonly reservation?: Reservation | undefined
  /** Resolves it by the outcome. */
  resolve(outcome: Outcome): void
  /**
   * Resolves it if the store has not decided.
   * @param seen the last answers of the store about the credential
   * @returns the rules with the units that the isolate holds for sure, so that it can decide by itself; undefined: without a change
   */
  markUndecided(fate: CallFate, seen?: RememberedCaller): readonly BoundRule[] | undefined
  /** Notes how the isolate has decided by itself. */
  holdLocally(decision: Decision): void
  /**
   * Keeps in the store what the request has got, by renewals, until the request is over.
   * @returns a function to be called once, when the request is over; undefined if it has got nothing. `isFollowed`: as in `Decided.finish`
   */
  keep(
    trips: Pick<Trips, 'sendAlone' | 'schedule'>,
    background: Background,
  ): ((settling?: Settling, isFollowed?: boolean) => void) | undefined
}
