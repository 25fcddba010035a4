/** Processes that share one limit of an API, in virtual time: each has clients of its own, and knows only what replies say. */
import type { Model, State } from '../../src/algorithms/algorithm.ts'
import { fixedWindow } from '../../src/algorithms/fixed-window.ts'
import { gcra } from '../../src/algorithms/gcra.ts'
import { slidingLog } from '../../src/algorithms/sliding-log.ts'
import { slidingWindow } from '../../src/algorithms/sliding-window.ts'
import { type ClientOptions, clientOn } from '../../src/client/client.ts'
import { createLanes, type Lanes } from '../../src/client/lanes.ts'
import { randomFrom } from '../support/random.ts'
import { VirtualClock } from '../support/virtual-clock.ts'

export const MODELS: Record<string, Model> = {
  gcra,
  'fixed-window': fixedWindow,
  'sliding-window': slidingWindow,
  'sliding-log': slidingLog,
}

/** An API as a function of the time (ms since the epoch). */
export type Api = (nowMs: number, url: string) => Response

/** An API that counts as our gateway does, and sends its headers. */
export function sluiceApi(algorithm: string, limit: number, periodMs: number): Api {
  let state: State = [0, 0]
  const quota = {
    ...{ rate: limit, period: periodMs * 1e3, burst: limit },
    ...(algorithm === 'sliding-window' && { step: periodMs }),
  }
  return nowMs => {
    const now = Math.round(nowMs * 1e3)
    const result = MODELS[algorithm]!.decide({ quota, state, now, cost: 1 })
    const { after, retryAfter } = result
    if (after) state = after.state
    const { remaining, resetAfter } = after ?? result
    const seconds = Math.ceil((after ? resetAfter : retryAfter) / 1e6)
    const headers = new Headers({
      'ratelimit-policy': `"all";q=${limit};w=${Math.ceil(periodMs / 1e3)}`,
      ratelimit: `"all";r=${remaining};t=${seconds}`,
    })
    if (!after) headers.set('retry-after', `${Math.max(1, seconds)}`)
    return new Response(null, { status: after ? 200 : 429, headers })
  }
}

export interface Arrival {
  at: number
  status: number
  process: number
}

/** Random numbers from 0 to 1. */
export function fractions(seed: number): () => number {
  const { int } = randomFrom(seed)
  return () => int(0, 1e6) / 1e6
}

export interface Fleet {
  clock: VirtualClock
  /** What has arrived at the API, in order. */
  arrivals: Arrival[]
  /** The `fetch` of a process. */
  client(process: number, options?: ClientOptions): typeof fetch
  lanes(process: number): Lanes
}

/** @param latencyMs of the network, in each direction: from half to one and a half times as much */
export function createFleet(api: Api, { seed = 1, latencyMs = 4 } = {}): Fleet {
  const clock = new VirtualClock()
  const random = fractions(seed)
  const arrivals: Arrival[] = []
  const processes: Lanes[] = []
  const lanes = (process: number) => {
    const start = clock.nowMs
    processes[process] ??= createLanes({
      now: () => clock.nowMs - start,
      wall: () => clock.nowMs,
      timer: (ms, run) => clock.after(ms, run),
      random,
    })
    return processes[process]!
  }
  return {
    clock,
    arrivals,
    lanes,
    client(process, options) {
      const travel = () => clock.pass(latencyMs * (0.5 + random()))
      return clientOn(lanes(process), {
        async fetch(input) {
          await travel()
          const response = api(clock.nowMs, `${input}`)
          arrivals.push({ at: clock.nowMs, status: response.status, process })
          await travel()
          return response
        },
        ...options,
      } as ClientOptions)
    },
  }
}
