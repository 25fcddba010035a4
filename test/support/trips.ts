/** Trips of tests: with some riders, and without a breaker or a queue. */
import type { Timer } from '../../src/clock.ts'
import type { Store, StoreCall } from '../../src/store/store.ts'
import { withRiders } from '../../src/trips/carry.ts'
import type { Load, Rider, TripInfo } from '../../src/trips/rider.ts'
import { createTrips, type Trips } from '../../src/trips/trips.ts'

/** A trip that leaves now, with decisions that the rider need not know. */
export const TRIP: TripInfo = { calls: [], isAlone: false, isAnswering: true, keysPerCall: 50 }

export const tripsOn = (
  store: Store,
  riders: readonly (Rider | undefined)[],
  clock: { now(): number; timer: Timer },
): Trips => createTrips(store, { riders, probe: async () => {}, sleep: async () => {}, ...clock })

/** Makes a trip for the rider alone. @returns whether it had anything to send */
export const sendAlone = (rider: Rider, store: Store): Promise<boolean> =>
  withRiders(store, [rider]).carryAlone(rider, store.run)

export const call = (key: string): StoreCall => ({ command: 'GET', key })

/** A rider that sends its name with each trip, and notes the replies. */
export function riderNamed(name: string, rider: Partial<Rider> & Pick<Load, 'isFirst'> = {}) {
  const { isFirst, ...others } = rider
  const replies: unknown[] = []
  const trips: TripInfo[] = []
  const load = (trip: TripInfo): Load => {
    trips.push(trip)
    return {
      calls: [call(name)],
      ...(isFirst && { isFirst }),
      done: each => void replies.push(...each),
    }
  }
  return { load, replies, trips, ...others }
}
