/**
 * The trips of an isolate to its store. A trip is one HTTP request. It carries one or many decisions, and the riders that have something
 * to send (rider.ts):
 *
 *     decision ─► queue ─► breaker ─► riders ─► store        queue-for-trips.ts, breaker.ts, carry.ts
 *     rider alone ───────► breaker ─► riders ─► store        if the breaker measures it
 *     rider alone ───────────────────────────► store         if not
 *     probe ──────────────────────► riders ─► store          without messages about units in flight (`isOffProbes`)
 *
 * If a trip is lost, the fate of each of its calls (errors.ts) decides what is said again:
 *
 *                                     not sent, or answered      may have run, or the platform has
 *                                     with an error              ended its request
 *     decision                        the fallbacks of its rules decide; if the store may have counted units in
 *                                     flight, the next message corrects them; what it may have reserved is given back
 *     switches                        the next trip reads them again
 *     settlements                     repeated until the store has answered: it settles each reservation at most once
 *     hand-overs (of an outage)       sent again                 count as handed over: never twice
 *     messages about units in flight  the next message says all of it again: its numbers are absolute
 *     returns (of leased units)       given back later           the units stay spent
 *     guesses                         lost: they are not counted
 *     signals (of the origin)         lost: the next report has new measurements
 */
import type { Background } from '../background.ts'
import type { Sleep, Timer } from '../clock.ts'
import type { Config } from '../config/compile.ts'
import type { Store } from '../store/store.ts'
import { type StoreChange, withBreaker } from './breaker.ts'
import { withRiders } from './carry.ts'
import { withTripLimit } from './queue-for-trips.ts'
import type { Rider } from './rider.ts'
import { createScheduler } from './scheduler.ts'

export interface TripsOptions {
  /** In the order of their calls. Absent ones are left out. */
  riders: readonly (Rider | undefined)[]
  /** Checks whether a store that has failed can decide again. */
  probe(store: Store): Promise<void>
  breaker?: Config['breaker'] | undefined
  tripLimit?: Config['tripLimit'] | undefined
  onStoreChange?: ((change: StoreChange) => void) | undefined
  /** ms */
  now(): number
  timer: Timer
  /** Used by decisions that wait for their turn at the store. */
  sleep: Sleep
}

/** The most trips for one rider before an isolate stops. */
const MAX_LAST_TRIPS = 500

export type Trips = ReturnType<typeof createTrips>

export function createTrips(
  bareStore: Store,
  { riders, probe, breaker, tripLimit, onStoreChange, now, timer, sleep }: TripsOptions,
) {
  const present = riders.filter(rider => rider !== undefined)
  const carrier = withRiders(bareStore, present)
  const probeStore = () => probe(carrier.forProbes)
  const behindBreaker = withBreaker(carrier, breaker, probeStore, { now, onChange: onStoreChange })
  const store = withTripLimit(behindBreaker, tripLimit, { sleep })

  /** Makes a trip for a rider alone, now. @returns whether anything was sent @throws GatewayError as Store.run */
  async function sendAlone(rider: Rider): Promise<boolean> {
    if (!rider.isMeasured) return await carrier.carryAlone(rider, bareStore.run)
    // If the isolate gets no other requests, only this trip can find out that the store is back.
    if (behindBreaker.isProbeDue()) await behindBreaker.probe()
    if (behindBreaker.isOpen()) return false
    return await carrier.carryAlone(rider, behindBreaker.run)
  }

  const scheduler = createScheduler(
    now,
    timer,
    present.map(rider => ({
      isOptional: rider.isOptional,
      isRepeated: rider.isRepeated,
      dueInMs: () => (rider.isMeasured || !behindBreaker.isOpen() ? rider.aloneAfterMs?.() : undefined),
      run: () => sendAlone(rider),
    })),
  )

  return {
    /** The trips of decisions. */
    store,
    /** The same, without waiting for a turn: for calls that must not be given up because of a flood. */
    storeWithoutQueue: behindBreaker,
    sendAlone,
    /** Sends what these riders have, before the isolate stops. Never rejects: what the store does not take is lost. */
    async sendRest(riders: readonly (Rider | undefined)[]): Promise<void> {
      // After a lost trip, riders wait until the store has answered another one.
      if (!carrier.isAnswering()) await behindBreaker.probe()
      for (const rider of riders) {
        for (let trips = 0; rider && trips < MAX_LAST_TRIPS; trips++)
          if (!(await sendAlone(rider).catch(() => false))) break
      }
    },
    /** Probes the store if that is due, and makes the trips that riders have waited for long enough, in the background. */
    schedule(background: Background): void {
      if (behindBreaker.isProbeDue()) background(behindBreaker.probe())
      scheduler.schedule(background)
    },
  }
}
