/** What an isolate knows (src/limiter/answers), and requests that look for an answer, without live switches. */
import { createKnownAnswers, type KnownRequest } from '../../src/limiter/answers/known.ts'
import { NO_SWITCHES } from '../../src/switches/switches.ts'

export const knownAnswers = (clock: () => number) => createKnownAnswers(clock, () => NO_SWITCHES)

export const knownRequest = (demand: KnownRequest['demand']): KnownRequest => ({
  demand,
  switches: NO_SWITCHES,
})
