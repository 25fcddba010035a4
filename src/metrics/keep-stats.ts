/** The statistics of an isolate: what its counters count, and when they go to the store. */
import type { Background } from '../background.ts'
import type { Store } from '../store/store.ts'
import { createCounters } from './counters.ts'
import { createFlusher, type FlushTiming } from './flush.ts'
import type { Observation } from './observation.ts'

export interface Stats {
  /** @param hasFailed the store has not answered */
  count(observation: Observation, hasFailed: boolean, background: Background): void
}

/** One for an isolate. */
export function createStats(store: Store, timing: FlushTiming): Stats {
  const counters = createCounters()
  const flusher = createFlusher(counters, store, timing)
  return {
    count(observation, hasFailed, background) {
      counters.record(observation)
      if (hasFailed) flusher.doubt()
      flusher.schedule(background)
    },
  }
}
