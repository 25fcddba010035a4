/**
 * The trips of an isolate to its store. A trip is one HTTP request (for each node, on a Redis Cluster). It carries one or many decisions,
 * and the riders that have something to send (rider.ts):
 *
 *     decision ─► queue ─► breaker ─► riders ─► store        queue-for-trips.ts, breaker.ts, carry.ts
 *     rider alone ───────► breaker ─► riders ─► store        if the breaker measures it
 *     rider alone ───────────────────────────► store         if not
 *     probe ──────────────────────► riders ─► store          without messages about units in flight (`isOffProbes`)
 *
 * If a trip is lost, each rider learns the fate of its calls (`CallFate` in errors.ts). A call that timed out may have run, and so may the
 * calls of a load whose `done` is never called, because the platform has ended the client's request.
 *
 *                                     not sent, or answered      may have run
 *                                     with an error
 *     decision                        the fallbacks decide       the same; units in flight that the store may have counted
 *                                                                are corrected by the next message, and what it may have
 *                                                                reserved is settled to 0
 *     switches                        the next trip reads them   the same
 *     settlements: what reserving     sent again                 sent again until the store answers: it settles each
 *       requests have cost                                       reservation at most once
 *     hand-overs: what the isolate    sent again                 count as handed over, so nothing is counted twice
 *       admitted in an outage
 *     units: which units in flight    the next message says      the same: its numbers are absolute. Units of an isolate
 *       the isolate holds             all of it again            that has ended expire after their ttl
 *     returns: unused units of        sent again if not sent     the units stay spent until their window ends
 *       leases
 *     guesses: bad keys that the      not counted                not counted
 *       isolate has refused
 *     signals: how busy the origin    the next report has new    the same
 *       is                            measurements
 */
import type { Background } from '../background.ts'
import type { Sleep, Timer } from '../clock.ts'
import type { Config } from '../config/compile.ts'
import type { Store } from '../store/store.ts'
import { type StoreChange, withBreaker } from './breaker.ts'
import { withRiders } from './carry.ts'
import { withTripLimit } from './queue-for-trips.ts'
import type { Rider } from './rider.ts'
import { type Chore, createScheduler } from './scheduler.ts'

export interface TripsOptions {
  /** The calls of a trip follow this order, those before its decisions (`Load.isFirst`) and those after them. Absent riders are left out. */
  riders: readonly (Rider | undefined)[]
  /** Checks whether a store that has failed can decide again. */
  probe(store: Store): Promise<void>
  breaker?: Config['breaker'] | undefined
  tripLimit?: Config['tripLimit'] | undefined
  onStoreChange?: ((change: StoreChange) => void) | undefined
  /** ms */
  now(): number
  timer: Timer
  /** Used by decisions that wait in the queue. */
  sleep: Sleep
}

/** The most trips for one rider before an isolate stops. */
const MAX_LAST_TRIPS = 500

/** A chore that another request does again if it fails. */
const once = (chore: Chore) => chore

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

  /**
   * Makes a trip for one rider, now. If the breaker measures it, other riders travel along.
   * @returns whether anything was sent
   * @throws GatewayError as Store.run
   */
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
    present.map(rider =>
      (rider.repeat ?? once)({
        isOptional: rider.isOptional,
        dueInMs: () => (rider.isMeasured || !behindBreaker.isOpen() ? rider.aloneAfterMs?.() : undefined),
        run: () => sendAlone(rider),
      }),
    ),
  )

  return {
    /** The trips of decisions. */
    store,
    /** The store without the queue: for calls that must not be given up because of a flood. */
    storeWithoutQueue: behindBreaker,
    sendAlone,
    /** Sends what these riders have, before the isolate stops. Never rejects: what the store does not take is lost. */
    async sendRest(riders: readonly (Rider | undefined)[]): Promise<void> {
      // After a lost trip, most riders have no load until the store has answered another one (`TripInfo.isAnswering`).
      if (!carrier.isAnswering()) await behindBreaker.probe()
      for (const rider of riders) {
        for (let trips = 0; rider && trips < MAX_LAST_TRIPS; trips++)
          if (!(await sendAlone(rider).catch(() => false))) break
      }
    },
    /** Probes the store if that is due, and waits for the trips that riders will need, in the background. */
    schedule(background: Background): void {
      if (behindBreaker.isProbeDue()) background(behindBreaker.probe())
      scheduler.schedule(background)
    },
  }
}
