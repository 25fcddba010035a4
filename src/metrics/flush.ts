/**
 * Sends counters to the store in the background: one HTTP request per interval for an isolate with traffic, never one
 * per request. Counters are added to the hash of the hour in which they are sent.
 *
 * Counters that certainly have not arrived are sent again. Counters that may have arrived are not, so that nothing is
 * counted twice; they are counted as lost. During an outage the store must answer a ping before counters are sent.
 */

import type { Background } from '../background.ts'
import type { Sleep } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import { statsKey } from '../store/keys.ts'
import type { PlainCall, Store } from '../store/store.ts'
import type { Batch, Counters } from './counters.ts'

export interface Flusher {
  /** Call this after each count. */
  schedule(background: Background): void
  /** Call this when the store has not answered a decision. */
  pingFirst(): void
}

export interface FlushTiming {
  everyMs: number
  sleep?: Sleep
  /** ms since the epoch */
  now: () => number
}

/** Counters in one HTTP request. Each is one command. */
const MAX_AT_ONCE = 200

/** After this time a flush ends by itself, because Workers end background work 30 s after the request. */
const BACKGROUND_WORK_MS = 25_000

/** A flush that is later than this was ended by the platform. */
const GRACE_MS = 10_000

/** `npx sluicegate stats` shows at most the last 7 days. */
const KEEP_SECONDS = 8 * 86400

export function createFlusher(
  counters: Counters,
  store: Store,
  { everyMs, sleep = unreferencedSleep, now }: FlushTiming,
): Flusher {
  // A time instead of a flag: the platform may end the request that scheduled the flush, with its background work, at
  // any time.
  let scheduledAt = 0
  let overdueAt = 0
  let mustPingFirst = false

  async function flush(): Promise<void> {
    const until = now() + BACKGROUND_WORK_MS
    do {
      scheduledAt = now()
      overdueAt = scheduledAt + everyMs + GRACE_MS
      await sleep(everyMs)
      await send()
    } while (counters.size > 0 && now() + everyMs < until)
    overdueAt = 0
  }

  async function send(): Promise<void> {
    if (mustPingFirst && !(await isReachable(store))) return
    const batch = counters.take(MAX_AT_ONCE)
    if (batch.length === 0) return
    try {
      const replies = await store.run(callsFor(batch, statsKey(new Date(now()))))
      mustPingFirst = false
      const failed = batch.filter((_, i) => replies[i] instanceof GatewayError)
      const mayBeStored = replies.some(reply => reply instanceof GatewayError && mayHaveArrived(reply))
      if (mayBeStored) counters.countAsLost(failed)
      else counters.putBack(failed)
    } catch (error) {
      mustPingFirst = true
      if (mayHaveArrived(error)) counters.countAsLost(batch)
      else counters.putBack(batch)
    }
  }

  return {
    schedule(background) {
      // After the clock was set back, the flush is scheduled again.
      if (now() < overdueAt && now() >= scheduledAt) return
      background(flush())
    },
    pingFirst() {
      mustPingFirst = true
    },
  }
}

function callsFor(batch: Batch, key: string): PlainCall[] {
  const counts = batch.map(([field, by]): PlainCall => ({ command: 'HINCRBY', key, field, by }))
  return [...counts, { command: 'EXPIRE', key, seconds: KEEP_SECONDS }]
}

function isReachable(store: Store): Promise<boolean> {
  return store.ping().then(
    () => true,
    () => false,
  )
}

/**
 * Whether counters may have arrived although the call failed. They have not if the store reported the error, or if
 * the call was not sent.
 */
function mayHaveArrived(error: unknown): boolean {
  return !(error instanceof GatewayError) || error.fate === 'may-have-run'
}

/** Sleeps with a timer that does not keep a Node process alive. */
function unreferencedSleep(ms: number): Promise<void> {
  return new Promise(resolve => {
    const timer: unknown = setTimeout(resolve, ms)
    ;(timer as { unref?(): void }).unref?.()
  })
}
