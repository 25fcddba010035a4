/** Calls of `acquire` that give up: they leave the line, and spend nothing. */
import { expect, it, vi } from 'vitest'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import type { Store } from '../../src/store/store.ts'
import { configOf, describeOnRedisEngine, type RedisEngine } from '../support/engines.ts'
import { storeOf } from '../support/stores.ts'
import { NOON } from '../support/traffic.ts'

const by = ['account']
const { limits } = configOf({
  rules: [],
  limits: {
    slow: [{ name: 'even', by, algorithm: 'gcra', limit: 1, period: '2s', burst: 1 }],
    all: [
      { name: 'even', by, algorithm: 'gcra', limit: 10, period: '1h' },
      { name: 'bucket', by, algorithm: 'token-bucket', limit: 10, period: '1h', burst: 10 },
      { name: 'window', by, algorithm: 'fixed-window', limit: 10, period: '1h' },
      { name: 'sliding', by, algorithm: 'sliding-window', limit: 10, period: '1h' },
      { name: 'log', by, algorithm: 'sliding-log', limit: 10, period: '1h' },
      { name: 'at-once', by, algorithm: 'concurrency', limit: 10 },
    ],
    day: [{ name: 'day', by, algorithm: 'fixed-window', limit: 1, period: '1d' }],
    mail: [{ name: 'mail', by, algorithm: 'leaky-bucket', limit: 1, period: '1m', queue: 5 }],
  },
})

const ACME = { account: '42' }
const REASON = new Error('the user has closed the page')

/**
 * A limiter whose clock advances while it sleeps.
 * @param afterTrip runs when the store has decided, before its reply arrives
 */
function limiterOn(redis: RedisEngine, { onSleep = () => {}, afterTrip = () => {} } = {}) {
  const time = { now: NOON }
  const inner = storeOf(redis)
  const trips: unknown[] = []
  const tasks: Promise<unknown>[] = []
  const store: Store = {
    ...inner,
    async run(calls, listener) {
      trips.push(calls)
      const replies = await inner.run(calls, listener)
      afterTrip()
      return replies
    },
  }
  const limiter = createLimiterOnStore({ limits }, store, {
    clock: {
      now: () => time.now,
      async sleep(ms) {
        time.now += ms * 1e3
        onSleep()
      },
      timer: () => () => {},
    },
    waitUntil: task => void tasks.push(task),
  })
  const ended = async () => {
    for (let task = tasks.shift(); task; task = tasks.shift()) await task
  }
  return { limiter, trips, ended, time }
}

describeOnRedisEngine('a call of acquire whose signal is aborted', fresh => {
  it('asks the store for nothing if that was before the call', async () => {
    const { limiter, trips } = limiterOn(await fresh())
    const signal = AbortSignal.abort(REASON)
    await expect(limiter.acquire('slow', ACME, { signal })).rejects.toBe(REASON)
    expect(trips).toEqual([])
  })

  it('leaves the line at once, so that the next calls do not wait for its units', async () => {
    const leaving = new AbortController()
    let sleeps = 0
    const { limiter, ended, time } = limiterOn(await fresh(), {
      onSleep: () => ++sleeps === 5 && leaving.abort(REASON),
    })
    await limiter.limit('slow', ACME)
    const options = { signal: leaving.signal }
    const left = await Promise.allSettled(
      Array.from({ length: 5 }, () => limiter.acquire('slow', ACME, options)),
    )
    expect(left).toEqual(Array(5).fill({ status: 'rejected', reason: REASON }))
    await ended()
    const startedAt = time.now
    expect((await limiter.acquire('slow', ACME)).allowed).toBe(true)
    expect(time.now - startedAt).toBeLessThanOrEqual(2e6)
  })

  it('gives back what the store admits while its answer is on the way, under every rule', async () => {
    const leaving = new AbortController()
    const { limiter } = limiterOn(await fresh(), { afterTrip: () => leaving.abort(REASON) })
    await expect(limiter.acquire('all', ACME, { signal: leaving.signal })).rejects.toBe(REASON)
    const whole = limits.get('all')!.map(({ name }) => [name, 10])
    await vi.waitFor(async () => {
      const { rules } = await limiter.peek('all', ACME)
      expect(rules.map(({ name, remaining }) => [name, remaining])).toEqual(whole)
    })
  })

  it('lets the next one have what it gives back, however long the window still is', async () => {
    const leaving = new AbortController()
    const { limiter, ended, time } = limiterOn(await fresh(), { afterTrip: () => leaving.abort(REASON) })
    const gone = limiter.acquire('day', ACME, { signal: leaving.signal })
    await expect(gone).rejects.toBe(REASON)
    await ended()
    const startedAt = time.now
    expect((await limiter.acquire('day', ACME)).allowed).toBe(true)
    expect(time.now - startedAt).toBeLessThan(1e6)
  })

  it('does not wait for its departure from a queue', async () => {
    const leaving = new AbortController()
    const { limiter } = limiterOn(await fresh(), { onSleep: () => leaving.abort(REASON) })
    await limiter.limit('mail', ACME)
    await expect(limiter.acquire('mail', ACME, { signal: leaving.signal })).rejects.toBe(REASON)
  })

  it('is told if that is no signal', async () => {
    const { limiter } = limiterOn(await fresh())
    const signal = new AbortController() as unknown as AbortSignal
    await expect(limiter.acquire('slow', ACME, { signal })).rejects.toThrow(
      /^signal is .*Use the signal of an AbortController/,
    )
  })
})
