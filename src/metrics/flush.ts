/**
 * Sends counters to the store in the background: one HTTP request per interval for an isolate with traffic, never one
 * per request. Counters are added to the hash of the hour in which they are sent.
 *
 * Counters that certainly have not arrived are sent again. Counters that may have arrived are not, so that nothing is
 * counted twice; they are counted as lost. During an outage the store must answer a ping before counters are sent.
 */

import type { Background } from '../background.ts'
import { SYSTEM_TIMER, type Timer } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import { statsKey } from '../store/keys.ts'
import type { PlainCall, Store } from '../store/store.ts'
import { createScheduler } from '../trips/scheduler.ts'
import { type Batch, createCounters } from './counters.ts'
import type { Counted } from './observation.ts'

export type StatsRecorder = ReturnType<typeof createStatsRecorder>

export interface FlushTiming {
  everyMs: number
  /** Default: the timer of the platform. */
  timer?: Timer
  /** ms since the epoch */
  now: () => number
}

/** Counters in one HTTP request. Each is one command. */
const MAX_AT_ONCE = 200

/** `npx sluicegate stats` shows at most the last 7 days. */
const KEEP_SECONDS = 8 * 86400

/** Creates the statistics of an isolate: counts its requests, and sends the counters to the store. */
export function createStatsRecorder(store: Store, { everyMs, timer = SYSTEM_TIMER, now }: FlushTiming) {
  const counters = createCounters()
  let mustPingFirst = false
  /** Whether a request waits to send the counters, or the platform has ended it. */
  let isAwaited = false
  let sending: Promise<unknown> | undefined

  const { schedule } = createScheduler(now, timer, [
    {
      // Statistics do not keep a process alive.
      isOptional: true,
      dueInMs() {
        if (counters.size === 0) return undefined
        if (isAwaited) return 0
        isAwaited = true
        return everyMs
      },
      async run() {
        sending = send()
        await sending
        isAwaited = false
        return true
      },
    },
  ])

  /** @returns whether the whole batch has arrived */
  async function send(): Promise<boolean> {
    try {
      if (mustPingFirst) await store.ping()
    } catch {
      return false
    }
    const batch = counters.take(MAX_AT_ONCE)
    if (batch.length === 0) return true
    try {
      const replies = await store.run(callsFor(batch, statsKey(new Date(now()))))
      mustPingFirst = false
      const failed = batch.filter((_, i) => replies[i] instanceof GatewayError)
      const mayBeStored = replies.some(reply => reply instanceof GatewayError && mayHaveArrived(reply))
      if (mayBeStored) counters.countAsLost(failed)
      else counters.putBack(failed)
      return failed.length === 0
    } catch (error) {
      mustPingFirst = true
      if (mayHaveArrived(error)) counters.countAsLost(batch)
      else counters.putBack(batch)
      return false
    }
  }

  return {
    /** Counts a request or a call. @param hasFailed whether the store did not answer */
    count(observation: Counted, hasFailed: boolean, background: Background): void {
      counters.record(observation)
      mustPingFirst ||= hasFailed
      schedule(background)
    },

    /** Sends all counters now, before the isolate stops. Never rejects. What the store does not confirm stays counted here. */
    async flush(): Promise<void> {
      await sending
      while (counters.size > 0 && (await send()));
    },
  }
}

function callsFor(batch: Batch, key: string): PlainCall[] {
  const counts = batch.map(([field, by]): PlainCall => ({ command: 'HINCRBY', key, field, by }))
  return [...counts, { command: 'EXPIRE', key, seconds: KEEP_SECONDS }]
}

/**
 * Whether counters may have arrived although the call failed. They have not if the store reported the error, or if the call was not sent.
 */
function mayHaveArrived(error: unknown): boolean {
  return !(error instanceof GatewayError) || error.fate === 'may-have-run'
}
