/** Trips of tests: with some riders, and without a breaker or a queue. */
import type { Timer } from '../../src/clock.ts'
import type { Store } from '../../src/store/store.ts'
import { withRiders } from '../../src/trips/carry.ts'
import type { Rider, TripInfo } from '../../src/trips/rider.ts'
import { createTrips, type Riders, type Trips } from '../../src/trips/trips.ts'

/** A trip that leaves now, with decisions that the rider need not know. */
export const TRIP: TripInfo = { calls: [], isAlone: false, isAnswering: true, keysPerCall: 50 }

export const tripsOn = (store: Store, riders: Riders, clock: { now(): number; timer: Timer }): Trips =>
  createTrips(store, { riders, probe: async () => {}, sleep: async () => {}, ...clock })

/** Makes a trip for the rider alone. @returns whether it had anything to send */
export const sendAlone = (rider: Rider, store: Store): Promise<boolean> =>
  withRiders(store, [rider]).carryAlone(rider, store.run)
