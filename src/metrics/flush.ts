/**
 * Sends counters to the store, in the background: one HTTP request every so often for an isolate that has traffic, never one for
 * each request. They go into one hash for each hour, by the time at which they arrive.
 *
 * Counters that surely have not arrived are sent with the next request. Those that may have arrived are not sent again, so that
 * nothing is ever counted twice; they count as lost. During an outage the store must answer a ping first.
 */

import type { Background } from '../background.ts'
import type { Sleep } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import { statsKey } from '../store/keys.ts'
import type { PlainCall, Store } from '../store/store.ts'
import type { Batch, Counters } from './counters.ts'

export interface Flusher {
  /** To be called after each count. */
  schedule(background: Background): void
  /** A decision has found that the store does not answer. */
  doubt(): void
}

export interface FlushTiming {
  everyMs: number
  sleep?: Sleep
  /** ms since the epoch */
  now: () => number
}

/** Counters that one HTTP request carries; each is a command. */
const MOST_AT_ONCE = 200

/** Workers end background work 30 s after the request. */
const CONTEXT_MS = 25_000

/** A flush that is this late has been ended by the platform. */
const GRACE_MS = 10_000

/** `npx sluicegate stats` looks back 7 days at most. */
const LIFE_SECONDS = 8 * 86400

export function createFlusher(
  counters: Counters,
  store: Store,
  { everyMs, sleep = unreferencedSleep, now }: FlushTiming,
): Flusher {
  // A time and not a flag: the platform may end the request that it was scheduled in, and its background work, at any time.
  let scheduledAt = 0
  let isDueBy = 0
  let isDoubtful = false

  async function flush(): Promise<void> {
    const until = now() + CONTEXT_MS
    do {
      scheduledAt = now()
      isDueBy = scheduledAt + everyMs + GRACE_MS
      await sleep(everyMs)
      await send()
    } while (counters.size > 0 && now() + everyMs < until)
    isDueBy = 0
  }

  async function send(): Promise<void> {
    if (isDoubtful && !(await answers(store))) return
    const batch = counters.take(MOST_AT_ONCE)
    if (batch.length === 0) return
    try {
      const replies = await store.run(callsFor(batch, statsKey(new Date(now()))))
      isDoubtful = false
      const failed = batch.filter((_, i) => replies[i] instanceof GatewayError)
      const isLost = replies.some(reply => reply instanceof GatewayError && mayHaveArrived(reply))
      if (isLost) counters.lose(failed)
      else counters.putBack(failed)
    } catch (error) {
      isDoubtful = true
      if (mayHaveArrived(error)) counters.lose(batch)
      else counters.putBack(batch)
    }
  }

  return {
    schedule(background) {
      // A clock that is set back must not keep it from being sent.
      if (now() < isDueBy && now() >= scheduledAt) return
      background(flush())
    },
    doubt() {
      isDoubtful = true
    },
  }
}

function callsFor(batch: Batch, key: string): PlainCall[] {
  const counts = batch.map(([field, by]): PlainCall => ({ command: 'HINCRBY', key, field, by }))
  return [...counts, { command: 'EXPIRE', key, seconds: LIFE_SECONDS }]
}

function answers(store: Store): Promise<boolean> {
  return store.ping().then(
    () => true,
    () => false,
  )
}

/** An error that the store has reported, or that came before the call was sent, means that nothing was counted. */
function mayHaveArrived(error: unknown): boolean {
  if (!(error instanceof GatewayError)) return true
  return /_(TIMEOUT|UNREACHABLE|REPLY_INVALID|OVERLOAD)$/.test(error.code)
}

/** On Node, this timer does not keep the process alive. */
function unreferencedSleep(ms: number): Promise<void> {
  return new Promise(resolve => {
    const timer: unknown = setTimeout(resolve, ms)
    ;(timer as { unref?(): void }).unref?.()
  })
}
