/** Limits by name on concurrent work: `await using decision = await limiter.acquire(…)`. */
import { expect, it } from 'vitest'
import type { Limiter } from '../../../src/set-ups/limits/limiter.ts'
import { createLimiterOnStore } from '../../../src/set-ups/limits/limiter-on-store.ts'
import { configOf, describeOnRedisEngine, type RedisEngine } from '../../support/engines.ts'
import { storeOf } from '../../support/stores.ts'
import { NOON } from '../../support/traffic.ts'

const { limits } = configOf({
  rules: [{ name: 'any', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }],
  limits: {
    exports: [
      { name: 'at-once', by: ['account'], algorithm: 'concurrency', limit: 2 },
      { name: 'minute', by: ['account'], algorithm: 'fixed-window', limit: 100, period: '1m' },
    ],
    jobs: [
      { name: 'at-once', by: ['account'], algorithm: 'concurrency', limit: 1 },
      { name: 'even', by: ['account'], algorithm: 'gcra', limit: 1, period: '2s', burst: 1 },
    ],
    pages: [{ name: 'minute', algorithm: 'fixed-window', limit: 2, period: '1m' }],
  },
})

const ACME = { account: '42' }

/** A limiter whose clock advances while it sleeps. @param afterSleep runs after each sleep */
function limiterOn(redis: RedisEngine, afterSleep: (ms: number) => Promise<void> = async () => {}) {
  const slept: number[] = []
  const time = { now: NOON }
  const limiter: Limiter = createLimiterOnStore({ limits }, storeOf(redis), {
    clock: {
      now: () => time.now,
      async sleep(ms) {
        slept.push(ms)
        time.now += ms * 1e3
        await afterSleep(ms)
      },
      timer: () => () => {},
    },
  })
  return { limiter, slept, time }
}

describeOnRedisEngine('work that holds units', fresh => {
  it('releases them at the end of the block, even if it throws', async () => {
    const { limiter } = limiterOn(await fresh())
    await expect(async () => {
      await using one = await limiter.limit('exports', ACME)
      await using two = await limiter.limit('exports', ACME)
      expect([one.allowed, two.allowed]).toEqual([true, true])
      expect(await limiter.limit('exports', ACME)).toMatchObject({ allowed: false, retryAfterMs: 15_000 })
      throw new Error('the export failed')
    }).rejects.toThrow('the export failed')
    expect((await limiter.limit('exports', ACME)).allowed).toBe(true)
    expect((await limiter.limit('exports', ACME)).allowed).toBe(true)
    expect((await limiter.limit('exports', ACME)).allowed).toBe(false)
  })

  it('releases them once by release()', async () => {
    const { limiter } = limiterOn(await fresh())
    const held = [await limiter.limit('exports', ACME), await limiter.limit('exports', ACME)]
    held[0]!.release()
    held[0]!.release()
    expect((await limiter.limit('exports', ACME)).allowed).toBe(true)
    expect((await limiter.limit('exports', ACME)).allowed).toBe(false)
  })

  it('waits until other work ends, with short pauses at first and longer ones later', async () => {
    const redis = await fresh()
    const held: { release(): void }[] = []
    const { limiter, slept } = limiterOn(redis, async () => {
      if (slept.length === 4) held[0]!.release()
    })
    held.push(await limiter.limit('exports', ACME), await limiter.limit('exports', ACME))
    const third = await limiter.acquire('exports', ACME)
    expect(third.allowed).toBe(true)
    expect(slept).toEqual([50, 100, 200, 400, 0])
  })

  it('waits for the rule that is due, and not for the ttl, if a rule of units in flight refuses too', async () => {
    const redis = await fresh()
    const held: { release(): void }[] = []
    const { limiter, slept, time } = limiterOn(redis, async () => held[0]!.release())
    held.push(await limiter.limit('jobs', ACME))
    const second = await limiter.acquire('jobs', ACME)
    expect(second.allowed).toBe(true)
    expect(slept).toEqual([2000, 0])
    expect(time.now - NOON).toBe(2e6)
  })

  it('gives up after its timeout, and then holds nothing', async () => {
    const { limiter, slept } = limiterOn(await fresh())
    const held = [await limiter.limit('exports', ACME), await limiter.limit('exports', ACME)]
    const third = await limiter.acquire('exports', ACME, { timeoutMs: 1000 })
    expect(third.allowed).toBe(false)
    expect(slept.reduce((sum, ms) => sum + ms, 0)).toBeLessThanOrEqual(1000)
    held[1]!.release()
    expect((await limiter.limit('exports', ACME)).allowed).toBe(true)
  })

  it('can peek whether a unit is free, without holding one', async () => {
    const { limiter } = limiterOn(await fresh())
    const held = []
    for (;;) {
      const { allowed } = await limiter.peek('exports', ACME)
      const decision = await limiter.limit('exports', ACME)
      expect(decision.allowed).toBe(allowed)
      if (!allowed) break
      held.push(decision)
    }
    expect(held).toHaveLength(2)
    held[0]!.release()
    expect((await limiter.peek('exports', ACME)).allowed).toBe(true)
    held[1]!.release()
  })

  it('gets a refund of the units that it has spent under other rules, and keeps the units that it holds', async () => {
    const { limiter } = limiterOn(await fresh())
    const decision = await limiter.limit('exports', ACME)
    await limiter.refund(decision)
    const standing = await limiter.peek('exports', ACME)
    expect(standing.rules.map(({ name, remaining }) => [name, remaining])).toEqual([
      ['at-once', 1],
      ['minute', 100],
    ])
    decision.release()
  })

  it('counts again after a reset once its isolate sends its next message', async () => {
    const redis = await fresh()
    const [{ limiter }, other] = [limiterOn(redis), limiterOn(redis)]
    await limiter.limit('exports', ACME)
    await other.limiter.limit('exports', ACME)
    await limiter.reset('exports', ACME)
    // The next message of the isolate reports its own unit again, so one unit is left.
    expect((await limiter.limit('exports', ACME)).allowed).toBe(true)
    expect((await limiter.limit('exports', ACME)).allowed).toBe(false)
  })

  it('can be released without effect if it holds nothing', async () => {
    const { limiter } = limiterOn(await fresh())
    await using one = await limiter.limit('pages')
    one.release()
    const { rules } = await limiter.peek('pages')
    expect(rules[0]!.remaining).toBe(1)
  })
})
