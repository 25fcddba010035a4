/** The statistics of an isolate: counts its requests, and sends the counters to the store. */
import type { Background } from '../background.ts'
import type { Store } from '../store/store.ts'
import { createCounters } from './counters.ts'
import { createFlusher, type FlushTiming } from './flush.ts'
import type { Observation } from './observation.ts'

export interface StatsRecorder {
  /**
   * Counts a request.
   *
   * @param hasFailed whether the store did not answer
   */
  count(observation: Observation, hasFailed: boolean, background: Background): void
}

/** Creates the recorder of an isolate. */
export function createStatsRecorder(store: Store, timing: FlushTiming): StatsRecorder {
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
