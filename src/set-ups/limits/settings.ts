/** What a limiter is created with, besides its store and its parts. */
import { SYSTEM_TIMER, type Timer } from '../../clock.ts'
import type { Config } from '../../config/compile.ts'
import type { EngineConfig } from '../../limiter/engine-with-parts.ts'
import type { Log } from '../../log.ts'
import type { SwitchBoard } from '../../switches/live.ts'

/** The clock of the limiter; tests pass their own. */
export interface LimiterClock {
  /** The time of decisions (µs); absent: the store's own clock. */
  now?: () => number
  /** @param signal ends the sleep when it is aborted */
  sleep(ms: number, signal?: AbortSignal): Promise<void>
  /** Timer for messages to the store that are sent later. Default: that of the machine. */
  timer?: Timer
}

/** Sleeps by a timer. */
export const sleepBy =
  (timer: Timer): LimiterClock['sleep'] =>
  (ms, signal) =>
    new Promise(resolve => {
      const end = () => {
        cancel()
        signal?.removeEventListener('abort', end)
        resolve()
      }
      const cancel = timer(signal?.aborted ? 0 : ms, end)
      signal?.addEventListener('abort', end)
    })

export const REAL_TIME: LimiterClock = {
  sleep: sleepBy(SYSTEM_TIMER),
}

export interface LimiterSettings {
  /**
   * The live switches that the limits follow, under `<limit>/<rule>`. One board lives as long as the process. Default
   * of `createLimiterOnStore`: none.
   */
  board?: SwitchBoard
  clock?: LimiterClock
  /** Default: a log of its own, bounded by the config. */
  log?: Log
  /**
   * Keeps work alive after a call was answered, such as the report of free units. Default: the process runs on. On
   * Workers pass `waitUntil` of `cloudflare:workers`; otherwise such work ends with the request.
   */
  waitUntil?: (task: Promise<unknown>) => void
  /**
   * Whether a call is kept alive until its counters are sent (`stats.every`), as the service binding does. Default: only
   * while they are sent, because a batch of Cloudflare Queues ends only when all of its work has ended. If the platform
   * ends a call before that, a later one sends its counters.
   */
  awaitsCounters?: boolean
  /** Of the environment, for the headers of `metrics.otlp`. Default: none. */
  variables?: Readonly<Record<string, unknown>>
}

/** The part of a config that limits by name use. */
export type LimiterConfig = Pick<Config, 'limits' | 'stats' | 'metrics' | 'environment'> &
  Partial<Pick<Config, 'log' | 'auditKeepMs' | 'longestPauseMs'>> &
  EngineConfig
