/** Requests that look for an answer of the isolate (src/limiter/answers), without live switches. */
import type { KnownRequest } from '../../src/limiter/answers/known.ts'
import { NO_SWITCHES } from '../../src/switches/switches.ts'

export const knownRequest = (demand: KnownRequest['demand']): KnownRequest => ({
  demand,
  switches: NO_SWITCHES,
  current: () => NO_SWITCHES,
})
