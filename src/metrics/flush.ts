/**
 * Sends counters to the store in the background: one HTTP request per interval for an isolate with traffic, never one
 * per request. Counters are added to the minute, the hour and the day in which they are sent (add-counts.ts).
 *
 * Counters that certainly have not arrived are sent again. Counters that may have arrived are not, so that nothing is
 * counted twice; they are counted as lost. During an outage the store must answer a ping before counters are sent.
 */

import type { Background } from '../background.ts'
import { SYSTEM_TIMER, type Timer } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import type { Store } from '../store/store.ts'
import { choreEvery, createScheduler } from '../trips/scheduler.ts'
import { callFor } from './add-counts.ts'
import { createCounters } from './counters.ts'
import type { Measurements } from './measurements.ts'
import type { Counted } from './observation.ts'
import type { RefusedCaller, TopCallers } from './top-callers.ts'

export type StatsRecorder = ReturnType<typeof createStatsRecorder>

export interface FlushTiming {
  everyMs: number
  /** Default: the timer of the platform. */
  timer?: Timer
  /** ms since the epoch */
  now: () => number
  /** The refused callers, which travel with the counters. Absent: they are not counted. */
  topCallers?: Pick<TopCallers, 'record' | 'addTo'> | undefined
  /** What only metrics have, to be sent with the counters. Absent: the config has no metrics. */
  measurements?: Measurements | undefined
}

/** Counters in one HTTP request. */
const MAX_AT_ONCE = 200

/** Creates the statistics of an isolate: counts its requests, and sends the counters to the store. */
export function createStatsRecorder(
  store: Store,
  { everyMs, timer = SYSTEM_TIMER, now, topCallers, measurements }: FlushTiming,
) {
  const counters = measurements?.exporter?.counters ?? createCounters()
  let mustPingFirst = false
  let sending: Promise<unknown> | undefined

  const { schedule } = createScheduler(now, timer, [
    choreEvery(everyMs, counters, () => (sending = send())),
    ...(measurements?.exporter ? [measurements.exporter.chore] : []),
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
    const at = new Date(now())
    const measured = measurements?.take()
    const counts = callFor(batch, at, measured)
    const { call, putBack } = topCallers?.addTo(counts, at) ?? { call: counts }
    try {
      const [reply] = await store.run([call])
      if (reply instanceof GatewayError) throw reply
      mustPingFirst = false
      return true
    } catch (error) {
      mustPingFirst = true
      if (mayHaveArrived(error)) counters.countAsLost(batch)
      else {
        counters.putBack(batch)
        putBack?.()
        measurements?.putBack(measured!)
      }
      return false
    }
  }

  return {
    /**
     * Counts a request or a call.
     * @param hasFailed whether the store did not answer
     * @param caller absent: no rule has refused it, not even as a shadow
     */
    count(observation: Counted, hasFailed: boolean, background: Background, caller?: RefusedCaller): void {
      counters.record(observation)
      if (caller) topCallers?.record(observation, caller)
      measurements?.record(observation)
      mustPingFirst ||= hasFailed
      schedule(background)
    },

    /** What the store does not have yet. Others can add to them: that is sent with the next request that is counted. */
    counters,

    /** Sends all counters now, before the isolate stops. Never rejects. What the store does not confirm stays counted here. */
    async flush(): Promise<void> {
      await sending
      while (counters.size > 0 && (await send()));
      await measurements?.exporter?.push()
    },
  }
}

/**
 * Whether counters may have arrived although the call failed. They have not if the store reported the error, or if the call was not sent.
 */
function mayHaveArrived(error: unknown): boolean {
  return !(error instanceof GatewayError) || error.fate === 'may-have-run'
}
