/**
 * Limits the HTTP requests to the store that an isolate has under way. In a flood, further calls wait for their turn. Then they are
 * sent in batches, many calls in one HTTP request, so the store decides them too. Without the limit, a flood would queue in the
 * isolate, and its own calls would look like a slow store. A call that has waited too long fails with ERR_STORE_OVERLOAD, without a
 * trip. Probes of the breaker and background work (hand-overs, counters, separate reads of the live switches) bypass the limit, so a
 * flood cannot block them.
 *
 * A waiting request checks with its own timers whether its turn has come, or whether another request has sent its calls and has the
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
import { isWithin } from './turn.ts'

/**
 * Calls in one HTTP request, and such requests under way. Both are small, because the answers to the first batches may decide the rest
 * of a flood without a trip.
 */
const MAX_BATCH = 50
const MAX_BATCHES_UNDER_WAY = 4

/** If this many calls wait, another call fails at once. This bounds the memory. */
const MAX_WAITING = 20_000

/** The pause between two checks of a waiting request (ms). It doubles after each check, up to the maximum. */
const FIRST_CHECK_MS = 4
const MAX_CHECK_MS = 32

/** The checks of all waiting requests. If very many wait, each checks less often, so that the checks do not keep the isolate busy. */
const MAX_CHECKS_PER_MS = 2

/** A call gives up because of `maxWaitMs` only after this many checks. */
const MIN_CHECKS = 4

interface QueuedCalls {
  readonly calls: readonly StoreCall[]
  readonly listener: CallListener | undefined
  /** Until when its request waits for it, including the time in which the isolate is late (ms). */
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
   * In the order of their start, by the latest time that any request has seen. With the clock of one request, which can stand still,
   * newer calls would be dropped.
   */
  const underWay = new Set<{ startedAt: number; isBatch: boolean }>()
  /** In the order of arrival. */
  const waiting = new Set<QueuedCalls>()

  /** @returns a function that reads the time since then, without lateness of the isolate (ms) */
  function startStopwatch(): () => number {
    const start = lag.now() - lag.total()
    return () => lag.now() - lag.total() - start
  }

  function hasRoom(): boolean {
    const time = lag.now()
    for (const call of underWay) {
      // The platform can end a request without notice. Its call no longer counts after a while.
      if (isWithin(expiresAfterMs, call.startedAt, time)) break
      underWay.delete(call)
    }
    return underWay.size < maxRequests
  }

  function maySendBatch(): boolean {
    let batches = 0
    for (const { isBatch } of underWay) if (isBatch) batches += 1
    return batches < MAX_BATCHES_UNDER_WAY
  }

  /** Removes and returns waiting calls to be sent together with a call, the oldest first. */
  function takeBatch(): QueuedCalls[] {
    const batch: QueuedCalls[] = []
    if (waiting.size === 0 || !maySendBatch()) return batch
    const time = lag.now()
    for (const entry of waiting) {
      if (time > entry.until) waiting.delete(entry)
      // Calls that are no longer needed stay, because their requests find out at the next check.
      else if (!entry.listener?.isNoLongerNeeded()) {
        waiting.delete(entry)
        entry.msSinceSent = startStopwatch()
        batch.push(entry)
        if (batch.length === MAX_BATCH - 1) break
      }
    }
    return batch
  }

  /** Sends the calls, together with a batch of waiting ones. */
  async function send(own: Omit<QueuedCalls, 'until'>): Promise<unknown[]> {
    const all = [own, ...takeBatch()]
    const call = { startedAt: lag.now(), isBatch: all.length > 1 }
    underWay.add(call)
    try {
      const replies = await store.run(all.flatMap(({ calls }) => calls))
      let at = 0
      for (const each of all) {
        each.replies = replies.slice(at, at + each.calls.length)
        each.listener?.noteArrival()
        at += each.calls.length
      }
      return own.replies!
    } catch (error) {
      for (const each of all) each.error = error
      throw error
    } finally {
      underWay.delete(call)
    }
  }

  function pauseBeforeCheck(check: number): number {
    const pause = Math.min(FIRST_CHECK_MS * 2 ** (check - 1), MAX_CHECK_MS)
    return Math.max(pause, Math.ceil(waiting.size / MAX_CHECKS_PER_MS))
  }

  async function waitForTurn(own: QueuedCalls): Promise<unknown[]> {
    if (waiting.size >= MAX_WAITING)
      throw overloadError(`${MAX_WAITING} decisions are already waiting for the store.`)
    waiting.add(own)
    const waitedMs = startStopwatch()
    for (let check = 1; ; check++) {
      await sleep(pauseBeforeCheck(check))
      if (own.replies) return own.replies
      if (own.error) throw own.error
      if (own.msSinceSent) {
        // The platform may have ended the request that has sent the calls. They may have been executed, so they are not repeated.
        if (own.msSinceSent() >= expiresAfterMs) throw timeoutError()
        continue
      }
      const isLate = (check >= MIN_CHECKS && waitedMs() >= maxWaitMs) || lag.now() > own.until
      const isOver = isLate || own.listener?.isNoLongerNeeded()
      if (!isOver && !(hasRoom() && maySendBatch())) continue
      waiting.delete(own)
      if (isOver) throw overloadError(`This isolate has ${maxRequests} calls to the store under way.`)
      return await send(own)
    }
  }

  return {
    ...store,
    run: (calls, listener) =>
      hasRoom()
        ? send({ calls, listener })
        : waitForTurn({ calls, listener, until: lag.now() + maxTotalWaitMs }),
  }
}

/** The calls were not sent. After they were sent, deadline.ts gives them up with the same code. */
const overloadError = (message: string) =>
  new GatewayError('ERR_STORE_OVERLOAD', message, { fate: 'not-sent' })
