/** The statistics of an isolate: counts requests, and sends the counters to the store. */
import type { Background } from '../background.ts'
import type { Store } from '../store/store.ts'
import { createCounters } from './counters.ts'
import { createFlusher, type FlushTiming } from './flush.ts'
import type { Observation } from './observation.ts'

export interface Stats {
  /**
   * Counts a request.
   *
   * @param hasFailed whether the store did not answer
   */
  count(observation: Observation, hasFailed: boolean, background: Background): void
}

/** Creates the statistics of an isolate. */
export function createStats(store: Store, timing: FlushTiming): Stats {
  const counters = createCounters()
  const flusher = createFlusher(counters, store, timing)
  return {
    count(observation, hasFailed, background) {
      counters.record(observation)
      if (hasFailed) flusher.pingFirst()
      flusher.schedule(background)
    },
  }
}
