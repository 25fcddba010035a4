/** Carries riders: each trip to the store takes the loads of all riders with it, in one HTTP request. */
import { GatewayError } from '../errors.ts'
import type { Store, StoreCall } from '../store/store.ts'
import { ignoringErrors } from './ignoring-errors.ts'
import { failureOf, type Load, type Rider, type TripInfo } from './rider.ts'

/** The most keys of one call, unless the store is a cluster. */
const KEYS_PER_CALL = 50

/**
 * Wraps the store. An error that a rider throws changes neither the decisions of the trip nor another rider.
 * @param riders their calls follow this order
 */
export function withRiders(store: Store, riders: readonly Rider[]) {
  const keysPerCall = store.isCluster ? 1 : KEYS_PER_CALL
  let isAnswering = true
  let tripsAnswered = 0

  function loadOf(rider: Rider, calls: readonly StoreCall[], isAlone: boolean): Load | undefined {
    const trip: TripInfo = { calls, isAlone, isAnswering, keysPerCall }
    return ignoringErrors(() => rider.load(trip))
  }

  /** Sends the calls with the loads before and after them. @returns the replies to the calls */
  async function send(calls: readonly StoreCall[], loads: readonly Load[]): Promise<unknown[]> {
    const first = loads.filter(({ isFirst }) => isFirst)
    const last = loads.filter(({ isFirst }) => !isFirst)
    const all = [...first.flatMap(load => load.calls), ...calls, ...last.flatMap(load => load.calls)]
    const answeredBefore = tripsAnswered
    let replies: unknown[]
    try {
      replies = await store.run(all)
    } catch (error) {
      // If the store has answered another trip meanwhile, this failure is outdated.
      if (tripsAnswered === answeredBefore) isAnswering = false
      const failures = calls.map(() => failureOf(error))
      for (const load of loads) finish(load, new Array(load.calls.length).fill(failureOf(error)), failures)
      throw error
    }
    isAnswering = true
    tripsAnswered += 1
    let at = 0
    const nextReplies = (count: number) => {
      at += count
      return replies.slice(at - count, at)
    }
    const ofFirst = first.map(load => nextReplies(load.calls.length))
    const own = nextReplies(calls.length)
    for (const [i, load] of first.entries()) finish(load, ofFirst[i]!, own)
    for (const load of last) finish(load, nextReplies(load.calls.length), own)
    return own
  }

  function runWith(riders: readonly Rider[], calls: readonly StoreCall[]): Promise<unknown[]> {
    const loads: Load[] = []
    for (const rider of riders) {
      // On a cluster, the node of a rider may hang and delay decisions.
      if (store.isCluster && ignoringErrors(() => rider.isUnanswered?.())) continue
      const load = loadOf(rider, calls, false)
      if (load) loads.push(load)
    }
    return send(calls, loads)
  }

  const storeWith = (riders: readonly Rider[]): Store => ({
    ...store,
    run: calls => runWith(riders, calls),
  })
  return {
    ...storeWith(riders),

    /** Whether the store has answered the last trip. */
    isAnswering: () => isAnswering,

    /** The same store, without the riders that stay off probes. */
    forProbes: storeWith(riders.filter(({ isOffProbes }) => !isOffProbes)),

    /**
     * Makes a trip for one rider, whose other load may join it (`TripInfo.isAlone`).
     * @param run sends the calls of the rider
     * @returns whether there was anything to send
     * @throws the error of the trip, after `Load.done` was called
     */
    async carryAlone(rider: Rider, run: Store['run']): Promise<boolean> {
      const load = loadOf(rider, [], true)
      if (!load || load.calls.length === 0) return false
      try {
        finish(load, await run(load.calls))
        return true
      } catch (error) {
        finish(load, new Array(load.calls.length).fill(failureOf(error)))
        throw error
      }
    },
  }
}

/** The failure of the store in the replies of a trip. A cluster has failed only if every reply is an error. */
export function failureIn(store: Store, replies: readonly unknown[]): GatewayError | undefined {
  const errors = replies.filter(reply => reply instanceof GatewayError)
  return store.isCluster && errors.length < replies.length ? undefined : errors[0]
}

const finish = (load: Load, replies: readonly unknown[], carried: readonly unknown[] = []) =>
  ignoringErrors(() => load.done(replies, carried))
