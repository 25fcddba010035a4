/**
 * Bounds how many calls an isolate has in flight to the store. In a flood the calls beyond wait for their turn, and then go
 * together, many in one HTTP request: so the store decides them too, and a flood does not queue in the isolate until its own calls
 * look like a slow store. A call that has waited too long fails with ERR_STORE_OVERLOAD and costs no trip. Probes of the breaker and
 * background work (hand-overs, counters, reading the live switches alone) do not pass here, so a flood cannot keep them out.
 *
 * A request that waits looks by timers of its own whether its turn has come, or whether another request has taken its calls along and
 * has the replies. Between requests pass only plain values, never a promise: the runtime ends a request that waits for a promise of
 * another one (compatibility dates before 2024-10-14), and the platform can end any request without notice.
 */
import { type Sleep, SYSTEM_CLOCK } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import type { GuardedStore } from './breaker.ts'
import { timedOut } from './deadline.ts'
import { isolateLag } from './lag.ts'
import type { StoreCall } from './store.ts'

export interface InFlightSettings {
  /** HTTP requests at once. */
  most: number
  /** The platform can end a request without notice; its call stops counting after this time. */
  expiresAfterMs: number
  /** How long a call waits for its turn; time in which the isolate is late does not count. */
  patienceMs: number
  /** With that time. No call to the store takes longer. */
  longestMs: number
}

export interface InFlightSurroundings {
  /** ms; the latest time that any request has seen: the clock of another request can stand still, and would drop newer calls */
  now?: () => number
  sleep?: Sleep
  /** ms; between two readings, the time in which the isolate was late */
  late?: () => number
}

/** Decisions in one HTTP request, and such requests at once: what the first of them learn may answer the rest of a flood. */
const MOST_TOGETHER = 50
const MOST_TOGETHER_REQUESTS = 4

/** Memory is bounded: with more than these, a call fails at once. */
const MOST_WAITING = 20_000

/** Between two looks of a request (ms): twice as long after each, up to the longest. */
const FIRST_PAUSE_MS = 4
const LONGEST_PAUSE_MS = 32

/** Of all that wait: where very many wait, each looks more seldom, so that looking does not keep the isolate busy. */
const MOST_LOOKS_PER_MS = 2

/** A call does not give up before these, however seldom it looks. */
const LEAST_LOOKS = 4

interface Waiting {
  readonly calls: readonly StoreCall[]
  readonly isMoot: (() => boolean) | undefined
  /** Its request looks at it until then (ms). */
  readonly until: number
  /** ms in which the isolate was responsive, since another request has taken the calls along; absent while they wait */
  sinceTaken?: () => number
  replies?: unknown[]
  error?: unknown
}

/** @param settings absent: no bound */
export function withInFlightLimit(
  store: GuardedStore,
  settings: InFlightSettings | undefined,
  { now = isolateLag.now, sleep = realSleep, late = isolateLag.total }: InFlightSurroundings = {},
): GuardedStore {
  if (!settings) return store
  const { most, expiresAfterMs, patienceMs, longestMs } = settings
  /** In the order in which they started. */
  const inFlight = new Set<{ startedAt: number; isTogether: boolean }>()
  /** In the order in which they came. */
  const waiting = new Set<Waiting>()

  /** @returns reads the ms since then in which the isolate was responsive */
  function startStopwatch(): () => number {
    const [startedAt, lateBefore] = [now(), late()]
    return () => now() - startedAt - (late() - lateBefore)
  }

  function hasRoom(): boolean {
    const time = now()
    for (const call of inFlight) {
      // A clock that was set back must not keep a call here for longer.
      if (time >= call.startedAt && time - call.startedAt < expiresAfterMs) break
      inFlight.delete(call)
    }
    return inFlight.size < most
  }

  function mayTakeOthers(): boolean {
    let together = 0
    for (const { isTogether } of inFlight) if (isTogether) together += 1
    return together < MOST_TOGETHER_REQUESTS
  }

  /** Removes and returns the calls that may go along, the oldest first. */
  function takeWaiting(): Waiting[] {
    const taken: Waiting[] = []
    if (waiting.size === 0 || !mayTakeOthers()) return taken
    const time = now()
    for (const each of waiting) {
      if (time > each.until) waiting.delete(each)
      // Its request finds that out by itself.
      else if (!each.isMoot?.()) {
        waiting.delete(each)
        each.sinceTaken = startStopwatch()
        taken.push(each)
        if (taken.length === MOST_TOGETHER - 1) break
      }
    }
    return taken
  }

  /** Sends the calls, and takes others along. */
  async function send(calls: readonly StoreCall[]): Promise<unknown[]> {
    const others = takeWaiting()
    const call = { startedAt: now(), isTogether: others.length > 0 }
    inFlight.add(call)
    try {
      const replies = await store.run([...calls, ...others.flatMap(other => other.calls)])
      let at = calls.length
      for (const other of others) {
        other.replies = replies.slice(at, at + other.calls.length)
        at += other.calls.length
      }
      return replies.slice(0, calls.length)
    } catch (error) {
      for (const other of others) other.error = error
      throw error
    } finally {
      inFlight.delete(call)
    }
  }

  function pauseBefore(look: number): number {
    const pause = Math.min(FIRST_PAUSE_MS * 2 ** (look - 1), LONGEST_PAUSE_MS)
    return Math.max(pause, Math.ceil(waiting.size / MOST_LOOKS_PER_MS))
  }

  async function waitForTurn(calls: readonly StoreCall[], isMoot?: () => boolean): Promise<unknown[]> {
    if (waiting.size >= MOST_WAITING)
      throw overloaded(`${MOST_WAITING} decisions already wait for the store.`)
    const own: Waiting = { calls, isMoot, until: now() + longestMs }
    waiting.add(own)
    const waitedMs = startStopwatch()
    for (let look = 1; ; look++) {
      await sleep(pauseBefore(look))
      if (own.replies) return own.replies
      if (own.error) throw own.error
      if (own.sinceTaken) {
        // The platform may have ended the request that has taken the calls along: they may have been made.
        if (own.sinceTaken() >= expiresAfterMs) throw timedOut()
        continue
      }
      const isLate = (look >= LEAST_LOOKS && waitedMs() >= patienceMs) || now() > own.until
      const isOver = isLate || isMoot?.()
      if (!isOver && !(hasRoom() && mayTakeOthers())) continue
      waiting.delete(own)
      if (isOver) throw overloaded(`This isolate has ${most} calls to the store in flight.`)
      return await send(calls)
    }
  }

  return {
    ...store,
    run: async (calls, isMoot) => (hasRoom() ? await send(calls) : await waitForTurn(calls, isMoot)),
  }
}

const overloaded = (message: string) => new GatewayError('ERR_STORE_OVERLOAD', message)

/** The clock of a request can stand still, and its timers count from there: the difference is added. */
const realSleep: Sleep = ms =>
  new Promise(resolve => setTimeout(resolve, isolateLag.now() + ms - SYSTEM_CLOCK.now()))
