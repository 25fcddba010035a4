/** Processes that share a store and a virtual clock. A trip to the store takes a while. */
import { GatewayError } from '../../src/errors.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { type LimiterConfig, sleepBy } from '../../src/set-ups/limits/settings.ts'
import type { Store } from '../../src/store/store.ts'
import type { RedisEngine } from './engines.ts'
import { storeOf } from './stores.ts'
import { NOON } from './traffic.ts'

/** A clock that advances when all calls wait for it. Times are whole milliseconds. */
export class SharedClock {
  nowMs = NOON / 1e3
  readonly #events: { at: number; run: () => unknown; isOff?: true }[] = []
  /** What the store is doing. */
  readonly #working = new Set<Promise<unknown>>()

  timer = (ms: number, run: () => void) => {
    const event: { at: number; run: () => unknown; isOff?: true } = { at: this.nowMs + Math.ceil(ms), run }
    this.#events.push(event)
    return () => {
      event.isOff = true
    }
  }

  pass = (ms: number) => new Promise<void>(resolve => void this.timer(ms, resolve))

  async while<T>(work: Promise<T>): Promise<T> {
    this.#working.add(work)
    return await work.finally(() => this.#working.delete(work))
  }

  async run(untilMs: number): Promise<void> {
    for (;;) {
      for (let turns = 0; turns < 3; turns++) await new Promise(resolve => setImmediate(resolve))
      if (this.#working.size > 0) {
        await Promise.race(this.#working)
        continue
      }
      this.#events.sort((a, b) => a.at - b.at)
      const event = this.#events[0]
      if (!event || event.at > untilMs) break
      this.#events.shift()
      if (event.isOff) continue
      this.nowMs = Math.max(this.nowMs, event.at)
      event.run()
    }
    this.nowMs = untilMs
  }
}

const NEVER = new Promise<never>(() => {})

/** Half of a trip to the store. */
const WAY_MS = 4
export const TRIP_MS = 2 * WAY_MS

/**
 * A process whose messages to the store take a while. Once it is dead, nothing arrives any more.
 * @param lost the numbers of the trips, from 1, that the store runs and whose replies get lost
 */
export function processOn(
  config: LimiterConfig,
  redis: RedisEngine,
  clock: SharedClock,
  account: string,
  lost: readonly number[] = [],
) {
  const inner = storeOf(redis)
  const state = { isDead: false, trips: 0 }
  const store: Store = {
    ...inner,
    async run(calls, listener) {
      if (state.isDead) return await NEVER
      state.trips += 1
      const isLost = lost.includes(state.trips)
      await clock.pass(WAY_MS)
      // The store decides by its own clock.
      const now = String(clock.nowMs * 1e3)
      const timed = calls.map(call =>
        'args' in call && 'keys' in call && call.args.length > 4
          ? { ...call, args: call.args.with(4, now) }
          : call,
      )
      const replies = await clock.while(inner.run(timed as typeof calls, listener))
      await clock.pass(WAY_MS)
      if (isLost) throw new GatewayError('ERR_STORE_TIMEOUT', 'The reply got lost.')
      return state.isDead ? await NEVER : replies
    },
  }
  const limiter = createLimiterOnStore(config, store, {
    clock: { now: () => clock.nowMs * 1e3, sleep: sleepBy(clock.timer), timer: clock.timer },
  })
  const end = () => {
    state.isDead = true
  }
  return { state, limiter, end, identity: { account } }
}
