/**
 * Limits the HTTP requests to the store that an isolate has under way. In a flood, further calls wait. Then they are
 * sent in batches, many calls in one HTTP request, so the store decides them too. Without the limit, a flood would queue in the
 * isolate, and the delay would look like a slow store. A call that has waited too long fails with ERR_STORE_OVERLOAD, without a
 * trip. Probes of the breaker and background work (hand-overs, counters, separate reads of the live switches) bypass the limit, so a
 * flood cannot block them.
 *
 * A waiting request checks with its own timers whether there is room for it, or whether another request has sent its calls and has the
 * replies. Requests share only plain values, never a promise: the runtime ends a request that waits for a promise of another one
 * (compatibility dates before 2024-10-14), and the platform can end any request without notice.
 */
import type { Sleep } from '../clock.ts'
import type { Config } from '../config/compile.ts'
import { GatewayError } from '../errors.ts'
import { timeoutError } from '../store/deadline.ts'
import { isolateLag, isolateSleep, type LagMeter } from '../store/lag.ts'
import type { CallListener, StoreCall } from '../store/store.ts'
import type { StoreWithBreaker } from './breaker.ts'
import { keysOf } from './rider.ts'
import { isWithin } from './turn.ts'

/**
 * Entries of the queue in one HTTP request, and such requests under way. Both are small, because the answers to the first batches may decide the rest
 * of a flood without a trip.
 */
const MAX_BATCH = 50
const MAX_BATCHES_UNDER_WAY = 4

/**
 * At most this many calls wait, which bounds the memory. One caller can have as many of these places as are free (Choudhury and Hahne, "Dynamic
 * queue length thresholds", 1998): half of them, and less the more others wait. So its flood leaves room for others.
 */
const MAX_WAITING = 20_000

/** The pause between two checks of a waiting request (ms). It doubles after each check, up to the maximum. */
const FIRST_CHECK_MS = 4
const MAX_CHECK_MS = 32

/** The checks of all waiting requests. If very many wait, each checks less often, so that the checks do not keep the isolate busy. */
const MAX_CHECKS_PER_MS = 8

/**
 * A call gives up because of `maxWaitMs` only after this many checks, and after so many ms for each call that waited when it came: a queue
 * of thousands is sent in time, if the store answers.
 */
const MIN_CHECKS = 4
const PATIENCE_MS_PER_CALL = 2

interface QueuedCalls {
  readonly calls: readonly StoreCall[]
  /** Names who has made them. */
  readonly caller: string
  readonly listener: CallListener | undefined
  /** When the client's request gives these calls up, including the time in which the isolate is late (ms). */
  readonly until: number
  /** Reads the time since another request has sent the calls, without lateness of the isolate (ms). Absent while the calls wait. */
  msSinceSent?: () => number
  replies?: unknown[]
  error?: unknown
}

/** Wraps the store with the limit. @param settings absent: no limit */
export function withTripLimit(
  store: StoreWithBreaker,
  settings: Config['tripLimit'] | undefined,
  { lag = isolateLag, sleep = isolateSleep }: { lag?: LagMeter; sleep?: Sleep } = {},
): StoreWithBreaker {
  if (!settings) return store
  const { maxRequests, expiresAfterMs, maxWaitMs, maxTotalWaitMs } = settings
  /**
   * The HTTP requests under way, in the order of their start. The time is the latest that any client's request has seen: the clock of a
   * single one can stand still, and then newer HTTP requests would be dropped as expired.
   */
  const underWay = new Set<{ startedAt: number; isBatch: boolean }>()
  /** By caller, the next one first, in the order of arrival. */
  const waiting = new Map<string, Set<QueuedCalls>>()
  let waitingCalls = 0

  function join(entry: QueuedCalls): void {
    const ofCaller = waiting.get(entry.caller) ?? new Set()
    if (ofCaller.size >= MAX_WAITING - waitingCalls)
      throw overloadError(`${waitingCalls} decisions are already waiting for the store.`)
    waiting.set(entry.caller, ofCaller.add(entry))
    waitingCalls += 1
  }

  function leave(entry: QueuedCalls): void {
    const ofCaller = waiting.get(entry.caller)
    if (!ofCaller?.delete(entry)) return
    waitingCalls -= 1
    if (ofCaller.size === 0) waiting.delete(entry.caller)
  }

  /** @returns a function that reads the time since then, without lateness of the isolate (ms) */
  function startStopwatch(): () => number {
    const start = lag.now() - lag.total()
    return () => lag.now() - lag.total() - start
  }

  function hasRoom(): boolean {
    const time = lag.now()
    for (const trip of underWay) {
      // The platform can end a client's request without notice. Its trip no longer counts after a while.
      if (isWithin(expiresAfterMs, trip.startedAt, time)) break
      underWay.delete(trip)
    }
    return underWay.size < maxRequests
  }

  function maySendBatch(): boolean {
    let batches = 0
    for (const { isBatch } of underWay) if (isBatch) batches += 1
    return batches < MAX_BATCHES_UNDER_WAY
  }

  /** Removes and returns waiting calls to be sent together with a call: of each caller in turn, the oldest first. */
  function takeBatch(): QueuedCalls[] {
    const batch: QueuedCalls[] = []
    if (waitingCalls === 0 || !maySendBatch()) return batch
    const time = lag.now()
    const turns: Iterator<QueuedCalls, unknown>[] = []
    function takeNext(turn: Iterator<QueuedCalls, unknown>): void {
      for (let next = turn.next(); !next.done; next = turn.next()) {
        const entry = next.value
        // Calls that are no longer needed stay, because their requests find out at the next check.
        const isExpired = time > entry.until
        if (!isExpired && entry.listener?.isNoLongerNeeded?.()) continue
        leave(entry)
        if (isExpired) continue
        entry.msSinceSent = startStopwatch()
        batch.push(entry)
        turns.push(turn)
        return
      }
    }
    const isFull = () => batch.length === MAX_BATCH - 1
    for (const ofCaller of waiting.values()) {
      if (isFull()) break
      takeNext(ofCaller.values())
    }
    // Callers with more calls have further turns.
    for (const turn of turns) {
      if (isFull()) break
      takeNext(turn)
    }
    // In the next batch, they come last.
    for (const { caller } of batch) {
      const left = waiting.get(caller)
      if (left && waiting.delete(caller)) waiting.set(caller, left)
    }
    return batch
  }

  /** Sends the calls, together with a batch of waiting ones. */
  async function send(own: Omit<QueuedCalls, 'until' | 'caller'>): Promise<unknown[]> {
    const all = [own, ...takeBatch()]
    const trip = { startedAt: lag.now(), isBatch: all.length > 1 }
    underWay.add(trip)
    try {
      const replies = await store.run(all.flatMap(({ calls }) => calls))
      let at = 0
      for (const each of all) {
        each.replies = replies.slice(at, at + each.calls.length)
        each.listener?.noteArrival?.()
        at += each.calls.length
      }
      return own.replies!
    } catch (error) {
      for (const each of all) each.error = error
      throw error
    } finally {
      underWay.delete(trip)
    }
  }

  function pauseBeforeCheck(check: number): number {
    const pause = Math.min(FIRST_CHECK_MS * 2 ** (check - 1), MAX_CHECK_MS)
    return Math.max(pause, Math.ceil(waitingCalls / MAX_CHECKS_PER_MS))
  }

  async function waitInQueue(own: QueuedCalls): Promise<unknown[]> {
    join(own)
    const patienceMs = Math.max(maxWaitMs, PATIENCE_MS_PER_CALL * waitingCalls)
    const waitedMs = startStopwatch()
    let isExpired = false
    for (let check = 1; ; check++) {
      await sleep(pauseBeforeCheck(check))
      if (own.replies) return own.replies
      if (own.error) throw own.error
      if (own.msSinceSent) {
        // The platform may have ended the request that has sent the calls. They may have been executed, so they are not sent again. One more
        // check, because in an isolate that was busy the replies may be about to be read.
        if (own.msSinceSent() < expiresAfterMs) continue
        if (isExpired) throw timeoutError()
        isExpired = true
        continue
      }
      const isLate = (check >= MIN_CHECKS && waitedMs() >= patienceMs) || lag.now() > own.until
      const isOver = isLate || own.listener?.isNoLongerNeeded?.()
      if (!isOver && !(hasRoom() && maySendBatch())) continue
      leave(own)
      if (isOver) throw overloadError(`This isolate has ${maxRequests} HTTP requests to the store under way.`)
      return await send(own)
    }
  }

  return {
    ...store,
    run: (calls, listener) =>
      hasRoom()
        ? send({ calls, listener })
        : waitInQueue({
            ...{ calls, listener, until: lag.now() + maxTotalWaitMs },
            // The calls of a limit by name begin with the state of its first identity.
            caller: listener?.line?.() ?? keysOf(calls[0]!)[0] ?? '',
          }),
  }
}

/** For calls that were never sent. For calls that were sent, deadline.ts has the same code with another fate. */
const overloadError = (message: string) =>
  new GatewayError('ERR_STORE_OVERLOAD', message, { fate: 'not-sent' })
