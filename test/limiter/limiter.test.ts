/** Limits by name: the API of the library, on every Redis. */
import { expect, it } from 'vitest'
import { GatewayError } from '../../src/errors.ts'
import type { LimitDecision, Limiter, LimitOptions } from '../../src/set-ups/limits/limiter.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { limitStateKey } from '../../src/store/keys.ts'
import type { Store } from '../../src/store/store.ts'
import { sized } from '../selection.ts'
import { configOf, describeOnRedisEngine, type RedisEngine } from '../support/engines.ts'
import { randomFrom, SEED } from '../support/random.ts'
import { storeOf } from '../support/stores.ts'
import { NOON } from '../support/traffic.ts'

const { limits } = configOf({
  rules: [{ name: 'any', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }],
  limits: {
    zendesk: [
      { name: 'second', algorithm: 'sliding-log', limit: 10, period: '1s' },
      { name: 'minute', algorithm: 'sliding-log', limit: 200, period: '1m' },
      { name: 'account-day', by: ['account'], algorithm: 'fixed-window', limit: 5000, period: 'day' },
    ],
    mail: [{ name: 'pace', by: ['domain'], algorithm: 'leaky-bucket', limit: 2, period: '1s', queue: 4 }],
    model: [
      { name: 'requests', by: ['team', 'user'], algorithm: 'gcra', limit: 5, period: '1m' },
      { name: 'tokens', by: ['team'], algorithm: 'token-bucket', limit: 1000, period: '1m' },
      { name: 'trial', by: ['team'], algorithm: 'fixed-window', limit: 2, period: '1h', mode: 'shadow' },
    ],
    'second-factor': [
      { name: 'attempts', by: ['account'], algorithm: 'sliding-log', limit: 5, period: '15m' },
      { name: 'from-here', by: ['address'], algorithm: 'sliding-log', limit: 20, period: '1h' },
    ],
    crawler: [
      { name: 'second', algorithm: 'sliding-log', limit: 10, period: '1s' },
      { name: 'minute', algorithm: 'sliding-log', limit: 200, period: '1m' },
      { name: 'day', algorithm: 'fixed-window', limit: 1000, period: '1d' },
    ],
  },
})

/** A clock that advances only when all workers sleep: to the earliest time at which one of them wakes. */
class VirtualClock {
  time = NOON
  readonly #sleepers: { at: number; wake: () => void }[] = []

  now = () => this.time

  sleep = (ms: number) =>
    new Promise<void>(wake => {
      this.#sleepers.push({ at: this.time + ms * 1e3, wake })
    })

  /** Wakes one sleeper after the other until all of the work is done. */
  async runUntilDone(work: Promise<unknown>): Promise<void> {
    let isDone = false
    const ending = work.finally(() => {
      isDone = true
    })
    while (!isDone) {
      // Workers that are awake must first fall asleep or finish.
      for (let turns = 0; turns < 3; turns++) await new Promise(resolve => setImmediate(resolve))
      if (this.calls.size > 0) {
        await Promise.race(this.calls)
        continue
      }
      const next = this.#sleepers.sort((a, b) => a.at - b.at).shift()
      if (!next) continue
      this.time = Math.max(this.time, next.at)
      next.wake()
    }
    await ending
  }

  /** Calls to the store that have not ended. */
  readonly calls = new Set<Promise<unknown>>()
}

function limiterOn(
  redis: RedisEngine,
  clock = new VirtualClock(),
  config = { limits },
): { limiter: Limiter; clock: VirtualClock; asked: () => number } {
  const store = storeOf(redis)
  let asked = 0
  const counted = {
    ...store,
    run: async (calls: Parameters<typeof store.run>[0]) => {
      asked += calls.length
      const replies = store.run(calls)
      const ended: Promise<unknown> = replies.then(
        () => clock.calls.delete(ended),
        () => clock.calls.delete(ended),
      )
      clock.calls.add(ended)
      return await replies
    },
  }
  return { limiter: createLimiterOnStore(config, counted, { clock }), clock, asked: () => asked }
}

const standing = ({ rules }: LimitDecision) =>
  Object.fromEntries(rules.map(({ name, remaining }) => [name, remaining]))

describeOnRedisEngine('a limit by name', fresh => {
  it('decides all of its rules together, each for its own identity', async () => {
    const { limiter } = limiterOn(await fresh())
    const first = await limiter.limit('zendesk', { account: 'a' })
    expect(first).toMatchObject({ allowed: true, delayMs: 0, retryAfterMs: 0, at: NOON })
    expect(standing(first)).toEqual({ second: 9, minute: 199, 'account-day': 4999 })
    // Two rules count all accounts together, the third counts each account.
    expect(standing(await limiter.limit('zendesk', { account: 'b' }, { cost: 9 }))).toEqual({
      second: 0,
      minute: 190,
      'account-day': 4991,
    })
    const refused = await limiter.limit('zendesk', { account: 'b' })
    expect(refused).toMatchObject({ allowed: false, retryAfterMs: 1000 })
    expect(standing(refused)).toEqual({ second: 0, minute: 190, 'account-day': 4991 })
  })

  it('can be peeked without spending', async () => {
    const { limiter } = limiterOn(await fresh())
    await limiter.limit('zendesk', { account: 'a' }, { cost: 4 })
    for (let i = 0; i < 3; i++) {
      const { allowed, rules } = await limiter.peek('zendesk', { account: 'a' })
      expect([allowed, rules.map(({ remaining }) => remaining)]).toEqual([true, [6, 196, 4996]])
    }
  })

  it('returns the same from a peek as from a call, and spends nothing', async () => {
    const { limiter, clock } = limiterOn(await fresh())
    const who = { account: 'a' }
    for (let i = 0; i < 10; i++) {
      const summaryOf = ({ allowed, delayMs, retryAfterMs, costs }: LimitDecision) =>
        [allowed, delayMs, retryAfterMs, costs] as const
      expect(summaryOf(await limiter.peek('zendesk', who))).toEqual([true, 0, 0, {}])
      await limiter.limit('zendesk', who)
    }
    clock.time += 400e3
    const peeked = await limiter.peek('zendesk', who)
    expect(peeked).toMatchObject({ allowed: false, retryAfterMs: 600 })
    expect((await limiter.limit('zendesk', who)).retryAfterMs).toBe(600)
    expect(standing(peeked)).toEqual({ second: 0, minute: 190, 'account-day': 4990 })
    clock.time += 600e3
    expect(await limiter.peek('zendesk', who)).toMatchObject({ allowed: true, retryAfterMs: 0 })
  })

  it('shows in a peek the delay in a queue, and whether the queue is full', async () => {
    const { limiter } = limiterOn(await fresh())
    const who = { domain: 'x' }
    for (;;) {
      const peeked = await limiter.peek('mail', who)
      const { allowed, delayMs, retryAfterMs } = await limiter.limit('mail', who)
      expect(peeked).toMatchObject({ allowed, delayMs, retryAfterMs })
      if (!allowed) break
    }
  })

  it('counts a different cost under each rule if the call says so', async () => {
    const { limiter } = limiterOn(await fresh())
    const who = { team: 't', user: 7 }
    const decision = await limiter.limit('model', who, { cost: { tokens: 400 } })
    expect(standing(decision)).toEqual({ requests: 4, tokens: 600, trial: 1 })
    const refused = await limiter.limit('model', who, { cost: { tokens: 601 } })
    expect(refused).toMatchObject({ allowed: false, retryAfterMs: 60 })
  })

  it('refunds the units that a call did not need, and no more than it has spent', async () => {
    const { limiter, clock } = limiterOn(await fresh())
    const who = { team: 't', user: 7 }
    const decision = await limiter.limit('model', who, { cost: { tokens: 400 } })
    // With a cost by rule name, only the named rules are refunded.
    expect(standing(await limiter.refund(decision, { cost: { tokens: 100 } }))).toMatchObject({
      requests: 4,
      tokens: 700,
    })
    expect(standing(await limiter.refund(decision, { cost: { tokens: 9999 } }))).toMatchObject({
      requests: 4,
      tokens: 1000,
    })
    expect(standing(await limiter.refund(decision))).toMatchObject({ requests: 5 })
    // Units are refunded once only, so units that other calls have spent since stay spent.
    await limiter.limit('model', who, { cost: { tokens: 400 } })
    await limiter.refund(decision)
    await limiter.refund(decision)
    expect(standing(await limiter.peek('model', who))).toEqual({ requests: 4, tokens: 600, trial: 1 })
    await limiter.reset('model', who)
    // Units that have refilled are not refunded again.
    const early = await limiter.limit('model', who, { cost: { tokens: 100 } })
    clock.time += 3e6
    await limiter.limit('model', who, { cost: { tokens: 50 } })
    const { rules } = await limiter.refund(early)
    expect(rules.find(({ name }) => name === 'tokens')!.remaining).toBe(950)
  })

  it('refunds all reserved units that were not used: used units refill first', async () => {
    const { limiter, clock } = limiterOn(await fresh())
    const who = { team: 't', user: 7 }
    const decision = await limiter.limit('model', who, { cost: { tokens: 1000 } })
    // In half a minute, the 500 units that were used refill.
    clock.time += 30e6
    expect(standing(await limiter.refund(decision, { cost: { tokens: 500 } })).tokens).toBe(1000)
    const later = await limiter.limit('model', who, { cost: { tokens: 1000 } })
    // In 45 s 750 units refill, so 250 of the 500 unused units have already refilled.
    clock.time += 45e6
    expect(standing(await limiter.refund(later, { cost: { tokens: 500 } })).tokens).toBe(1000)
  })

  it('accepts the identity and cost of a rule that is off, and counts nothing under it', async () => {
    const { limits: off } = configOf({
      rules: [{ name: 'any', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }],
      limits: {
        x: [
          { name: 'all', algorithm: 'fixed-window', limit: 9, period: '1h' },
          { name: 'account', by: ['account'], algorithm: 'gcra', limit: 1, period: '1h', mode: 'off' },
        ],
      },
    })
    const limiter = createLimiterOnStore({ limits: off }, storeOf(await fresh()), {
      clock: new VirtualClock(),
    })
    for (let i = 0; i < 2; i++) {
      const decision = await limiter.limit('x', { account: 'a' }, { cost: { account: 1 } })
      expect([decision.allowed, standing(decision)]).toEqual([true, { all: 8 - i }])
    }
    // A reset includes rules that are off, because a switch may have turned them on before.
    expect(standing(await limiter.reset('x', { account: 'a' }, { rule: 'account' }))).toEqual({ account: 1 })
  })

  it.each([
    { algorithm: 'gcra', limit: 10, burst: 3, period: '1s' },
    { algorithm: 'token-bucket', limit: 10, burst: 3, period: '1s' },
    { algorithm: 'leaky-bucket', limit: 10, queue: 3, period: '1s' },
    { algorithm: 'fixed-window', limit: 10, period: '1s' },
    { algorithm: 'sliding-window', limit: 10, period: '1s' },
    { algorithm: 'sliding-log', limit: 10, period: '1s' },
  ] as const)('with 50 waiting calls takes 1.2 trips a call at most ($algorithm)', async rule => {
    const config = configOf({
      rules: [],
      limits: { exports: [{ name: 'rate', by: ['account'], ...rule }] },
    })
    const { limiter, clock, asked } = limiterOn(await fresh(), new VirtualClock(), config)
    let left = 100
    const workers = Array.from({ length: 50 }, async () => {
      while (left-- > 0) {
        const { allowed } = await limiter.acquire('exports', { account: '42' })
        expect(allowed).toBe(true)
      }
    })
    const startedAt = clock.time
    await clock.runUntilDone(Promise.all(workers))
    expect(asked()).toBeLessThanOrEqual(120)
    // 10 a second, and the first units at once.
    expect(clock.time - startedAt).toBeLessThan(11.5e6)
  })

  it('gives up in time even if the store is slow', async () => {
    const { limiter, clock } = limiterOn(await fresh())
    await limiter.limit('crawler', {}, { cost: 10 })
    const slow: Limiter = createLimiterOnStore(
      { limits },
      {
        // Each trip takes 100 ms, and another caller always gets the unit.
        run: async () => {
          clock.time += 100e3
          return [[0, '', clock.time, ...[0, 0, 1e6], ...[1, 5, 1e6], ...[1, 5, 1e6]]]
        },
        ping: async () => {},
      },
      {
        clock: {
          now: clock.now,
          sleep: async ms => {
            clock.time += ms * 1e3
          },
        },
      },
    )
    const startedAt = clock.time
    expect(await slow.acquire('crawler', {}, { timeoutMs: 1000 })).toMatchObject({ allowed: false })
    expect(clock.time - startedAt).toBeLessThan(1.2e6)
    // A deadline that a caller has computed may have passed.
    for (const timeoutMs of [0, -1, Number.NEGATIVE_INFINITY]) {
      expect(await slow.acquire('crawler', {}, { timeoutMs })).toMatchObject({ allowed: false })
    }
  })

  it('reports that a reset or a refund has failed while the store is down, although calls are let through', async () => {
    const { limiter } = limiterOn(await fresh())
    const decision = await limiter.limit('zendesk', { account: 'a' })
    const gone = createLimiterOnStore(
      { limits },
      { run: () => Promise.reject(new Error()), ping: async () => {} },
    )
    expect(await gone.limit('zendesk', { account: 'a' })).toMatchObject({
      allowed: true,
      degraded: 'internal',
    })
    expect(await gone.reset('zendesk', { account: 'a' })).toMatchObject({
      allowed: false,
      degraded: 'internal',
    })
    expect(await gone.refund(decision)).toMatchObject({ allowed: false, degraded: 'internal' })
  })

  it('applies the fallback of its rules while the store is down', async () => {
    const rule = { name: 'all', algorithm: 'fixed-window', limit: 2, period: '1h' } as const
    const { limits } = configOf({
      rules: [{ ...rule, by: 'address' }],
      limits: {
        open: [{ ...rule, onStoreFailure: 'open' }],
        closed: [{ ...rule, onStoreFailure: 'closed' }],
        local: [{ ...rule, onStoreFailure: 'local' }],
      },
    })
    const gone = createLimiterOnStore(
      { limits },
      { run: () => Promise.reject(new Error()), ping: async () => {} },
    )
    const ask = async (name: string) => {
      const { allowed, retryAfterMs, degraded } = await gone.limit(name)
      return [allowed, retryAfterMs > 0, degraded]
    }
    for (let i = 0; i < 3; i++) expect(await ask('open')).toEqual([true, false, 'internal'])
    expect(await ask('closed')).toEqual([false, true, 'internal'])
    for (let i = 0; i < 2; i++) expect(await ask('local')).toEqual([true, false, 'internal'])
    expect(await ask('local')).toEqual([false, true, 'internal'])
  })

  it('waits only once for a store that hangs if the config has a breaker, and does not refund local counts', async () => {
    const { limits, breaker } = configOf({
      rules: [{ name: 'a', by: 'address', algorithm: 'gcra', limit: 1, period: '1s' }],
      limits: {
        local: [{ name: 'all', algorithm: 'fixed-window', limit: 5, period: '1h', onStoreFailure: 'local' }],
      },
      store: { breaker: {} },
    })
    let calls = 0
    const hanging: Store = {
      run: async () => {
        calls += 1
        throw new GatewayError('ERR_STORE_TIMEOUT', 'no answer')
      },
      ping: async () => {},
    }
    const limiter = createLimiterOnStore({ limits, breaker: breaker! }, hanging)
    const decision = await limiter.limit('local')
    expect(decision).toMatchObject({ allowed: true, degraded: 'store-timeout' })
    for (let i = 0; i < 4; i++)
      expect(await limiter.limit('local')).toMatchObject({ degraded: 'breaker-open' })
    expect((await limiter.limit('local')).allowed).toBe(false)
    // The first call and the probe.
    expect(calls).toBe(2)
    expect((await limiter.refund(decision)).allowed).toBe(false)
  })

  it('refunds nothing under a rule that has not spent: a shadow that would have refused', async () => {
    const { limiter } = limiterOn(await fresh())
    const who = { team: 't', user: 7 }
    await limiter.limit('model', who)
    await limiter.limit('model', who)
    const third = await limiter.limit('model', who)
    expect(third.rules.map(({ allowed, mode }) => [allowed, mode])).toEqual([
      [true, 'enforce'],
      [true, 'enforce'],
      [false, 'shadow'],
    ])
    expect(third.allowed).toBe(true)
    expect(standing(await limiter.refund(third))).toEqual({ requests: 3, tokens: 998 })
    expect(standing(await limiter.peek('model', who))).toMatchObject({ trial: 0 })
    // After a refusal nothing is refunded either.
    const refused = await limiter.limit('model', who, { cost: { tokens: 1001 } })
    expect(refused).toMatchObject({ allowed: false, retryAfterMs: -1 })
    await limiter.refund(refused)
    expect(standing(await limiter.peek('model', who))).toMatchObject({ requests: 3, tokens: 998 })
  })

  it('limits attempts at a second factor: each attempt spends first, and is refunded if it was right', async () => {
    const { limiter, clock } = limiterOn(await fresh())
    const attempt = async (isRight: boolean) => {
      const decision = await limiter.limit('second-factor', { account: 'alice', address: '192.0.2.1' })
      if (decision.allowed && isRight) await limiter.refund(decision)
      return decision
    }
    for (let i = 0; i < 4; i++) expect((await attempt(false)).allowed).toBe(true)
    // However often an attempt is right, the wrong ones stay spent.
    for (let i = 0; i < 9; i++) expect((await attempt(true)).allowed).toBe(true)
    // Concurrent attempts do not exceed the limit.
    const atOnce = await Promise.all(Array.from({ length: 9 }, () => attempt(false)))
    expect(atOnce.filter(({ allowed }) => allowed)).toHaveLength(1)
    const refused = await attempt(true)
    expect([refused.allowed, refused.retryAfterMs]).toEqual([false, 900_000])
    clock.time += 900e6
    expect((await attempt(true)).allowed).toBe(true)
  })

  it('counts an identity of a class, also with getters and with a name of its own', async () => {
    class Account {
      readonly [Symbol.toStringTag] = 'Account'
      get account() {
        return '42'
      }
    }
    const { limiter } = limiterOn(await fresh())
    const identity = new Account() as unknown as { account: string }
    expect(await limiter.limit('zendesk', identity)).toMatchObject({ allowed: true })
  })

  it('resets one rule of one identity, or all of its rules, and no other identity', async () => {
    const { limiter } = limiterOn(await fresh())
    const [a, b] = [{ account: 'a' }, { account: 'b' }]
    await limiter.limit('zendesk', a, { cost: 5 })
    await limiter.limit('zendesk', b, { cost: 5 })
    expect(standing(await limiter.reset('zendesk', a, { rule: 'account-day' }))).toEqual({
      'account-day': 5000,
    })
    expect(standing(await limiter.peek('zendesk', a))).toEqual({
      second: 0,
      minute: 190,
      'account-day': 5000,
    })
    expect(standing(await limiter.reset('zendesk', a))).toEqual({
      second: 10,
      minute: 200,
      'account-day': 5000,
    })
    expect(standing(await limiter.peek('zendesk', b))).toEqual({
      second: 10,
      minute: 200,
      'account-day': 4995,
    })
  })

  it('returns how long a worker has to wait for its turn', async () => {
    const { limiter } = limiterOn(await fresh())
    const delays: number[] = []
    for (let i = 0; i < 5; i++) delays.push((await limiter.limit('mail', { domain: 'x' })).delayMs)
    expect(delays).toEqual([0, 500, 1000, 1500, 2000])
    expect(await limiter.limit('mail', { domain: 'x' })).toMatchObject({ allowed: false, retryAfterMs: 500 })
    expect(await limiter.limit('mail', { domain: 'y' })).toMatchObject({ allowed: true, delayMs: 0 })
  })

  it('waits for a place in the queue and for its turn, or gives up in time', async () => {
    const { limiter, clock } = limiterOn(await fresh())
    const times: number[] = []
    const work = Promise.all(
      Array.from({ length: 8 }, async () => {
        await limiter.acquire('mail', { domain: 'x' })
        times.push((clock.time - NOON) / 1e3)
      }),
    )
    await clock.runUntilDone(work)
    expect(times).toEqual([0, 500, 1000, 1500, 2000, 2500, 3000, 3500])

    // The bucket would be empty at 4 s.
    expect(clock.time - NOON).toBe(3.5e6)
    const late = limiter.acquire('mail', { domain: 'x' }, { timeoutMs: 499 })
    await clock.runUntilDone(late)
    expect(await late).toMatchObject({ allowed: false, retryAfterMs: 500 })
    for (const options of [{ cost: 6 }, { cost: 6, timeoutMs: 10 }]) {
      const never = limiter.acquire('mail', { domain: 'x' }, options)
      await clock.runUntilDone(never)
      expect(await never).toMatchObject({ allowed: false, retryAfterMs: -1 })
    }
    // A call with cost 0 does not join the queue, so it does not wait.
    const peek = limiter.acquire('mail', { domain: 'x' }, { cost: 0, timeoutMs: 10 })
    await clock.runUntilDone(peek)
    expect(await peek).toMatchObject({ allowed: true })
    // The calls that gave up have not kept a place.
    expect((await limiter.limit('mail', { domain: 'x' })).delayMs).toBe(500)
  })

  it('joins a queue only if it can leave it in time, also if many calls come together', async () => {
    const { limiter, clock } = limiterOn(await fresh())
    const calls = Promise.all(
      Array.from({ length: 12 }, async () => {
        const { allowed } = await limiter.acquire('mail', { domain: 'x' }, { timeoutMs: 1100 })
        return [allowed, Math.ceil((clock.time - NOON) / 1e3)] as const
      }),
    )
    await clock.runUntilDone(calls)
    const waits = (await calls).filter(([allowed]) => allowed).map(([, ms]) => ms)
    expect(waits).toEqual([0, 500, 1000])
    // Those that were refused waited for nothing, and keep no place.
    expect((await calls).filter(([allowed, ms]) => !allowed && ms < 100)).toHaveLength(9)
    expect((await limiter.limit('mail', { domain: 'x' })).delayMs).toBe(500)
  })

  it('spends with one call in one HTTP request, whatever the number of rules', async () => {
    const store = storeOf(await fresh(), { isCluster: true })
    const limiter = createLimiterOnStore({ limits }, store)
    await limiter.limit('zendesk', { account: 'a' })
    // One HTTP request, with one script call.
    expect(store.requests).toEqual([1])
  })

  it.each([
    [
      'zendsk',
      {},
      {},
      "The config has no limit 'zendsk'. Limits: zendesk, mail, model, second-factor, crawler.",
    ],
    ['zendesk', {}, {}, "The limit 'zendesk' counts by account: account is missing."],
    [
      'zendesk',
      { account: 'a', acount: 'b' },
      {},
      "The limit 'zendesk' counts by account: acount is not a part of its identity.",
    ],
    [
      'crawler',
      { account: 'a' },
      {},
      "The limit 'crawler' counts all calls together: account is not a part of its identity.",
    ],
    ['crawler', {}, { cost: -1 }, 'cost is -1. Use a whole number from 0 to 1000000000.'],
    ['crawler', {}, { cost: 0.5 }, 'cost is 0.5. Use a whole number from 0 to 1000000000.'],
    [
      'crawler',
      {},
      { cost: { hour: 1 } },
      "The limit 'crawler' has no rule 'hour'. Rules: second, minute, day.",
    ],
  ] as const)(
    'rejects wrong arguments with a message (%s, %j, %j)',
    async (name, identity, options, message) => {
      const redis = await fresh()
      const { limiter } = limiterOn(redis)
      await expect(limiter.limit(name, identity, options)).rejects.toThrow(new TypeError(message))
      expect(await redis.snapshot()).toEqual({})
    },
  )

  const COST = 'Use a whole number from 0 to 1000000000, or an object with one for each rule.'
  const OPTIONS = 'Use an object with any of these: cost, amounts, numbers.'
  const OF_ACCOUNT = "The limit 'zendesk' counts by account:"

  it.each<[Call, string]>([
    ...[
      [5n, '5n'],
      ['', "''"],
      ['5', "'5'"],
      [true, 'true'],
      [false, 'false'],
      [null, 'null'],
      [[], '[]'],
      [[5], '[5]'],
      [new Date(0), 'a Date'],
      [new Map([['second', 5]]), 'a Map'],
      [new Set([5]), 'a Set'],
      [() => 5, 'a function'],
      [Object(5), 'a Number'],
    ].map(([cost, shown]: unknown[]): [Call, string] => [
      ['crawler', {}, { cost }],
      `cost is ${shown}. ${COST}`,
    ]),
    [['crawler', {}, { cost: { second: 5n } }], 'second is 5n. Use a whole number from 0 to 1000000000.'],
    [['crawler', {}, { costs: 5 }], "limit has no option 'costs'. Options: cost, amounts, numbers."],
    [['crawler', {}, { delta: 5 }], "limit has no option 'delta'. Options: cost, amounts, numbers."],
    [['crawler', {}, 'x'], `The options of limit are 'x'. ${OPTIONS}`],
    [['crawler', {}, 5], `The options of limit are 5. ${OPTIONS}`],
    [['crawler', {}, null], `The options of limit are null. ${OPTIONS}`],
    [['crawler', {}, [5]], `The options of limit are [5]. ${OPTIONS}`],
    [
      ['zendesk', { account: Number.NaN }],
      `${OF_ACCOUNT} account is NaN, not text or a number up to ±(2^53 - 1).`,
    ],
    [
      ['zendesk', { account: Number.POSITIVE_INFINITY }],
      `${OF_ACCOUNT} account is Infinity, not text or a number up to ±(2^53 - 1).`,
    ],
    [
      ['zendesk', { account: 2 ** 53 }],
      `${OF_ACCOUNT} account is 9007199254740992, not text or a number up to ±(2^53 - 1).`,
    ],
    [['zendesk', { account: 5n }], `${OF_ACCOUNT} account is 5n, not text or a number up to ±(2^53 - 1).`],
    [['zendesk', { account: null }], `${OF_ACCOUNT} account is missing.`],
    [
      ['zendesk', null],
      "The identity of the limit 'zendesk' is null. Use an object, such as { account: '42' }.",
    ],
    [
      ['zendesk', 'acme'],
      "The identity of the limit 'zendesk' is 'acme'. Use an object, such as { account: '42' }.",
    ],
    [
      ['zendesk', new Map([['account', 'a']])],
      "The identity of the limit 'zendesk' is a Map. Use an object, such as { account: '42' }.",
    ],
  ])('rejects what a caller without types can pass, and spends nothing: %o', async (args, message) => {
    const redis = await fresh()
    const { limiter } = limiterOn(redis)
    for (const method of ['limit', 'acquire'] as const) {
      const expected = message
        .replace('of limit are', `of ${method} are`)
        .replace(/^limit has/, `${method} has`)
        .replace(
          /(Options|these): cost, amounts, numbers\./,
          method === 'limit' ? '$&' : '$1: cost, amounts, numbers, timeoutMs, signal.',
        )
      await expect(limiter[method](...(args as unknown as [string]))).rejects.toThrow(new TypeError(expected))
    }
    expect(await redis.snapshot()).toEqual({})
  })

  it.each<[string, Call, string]>([
    ['acquire', ['crawler', {}, { timeoutMs: 'abc' }], "timeoutMs is 'abc'. Use a number of milliseconds."],
    [
      'acquire',
      ['crawler', {}, { timeoutMs: Number.NaN }],
      'timeoutMs is NaN. Use a number of milliseconds.',
    ],
    [
      'acquire',
      ['crawler', {}, { timeout: 5 }],
      "acquire has no option 'timeout'. Options: cost, amounts, numbers, timeoutMs, signal.",
    ],
    ['reset', ['crawler', {}, { rules: 'day' }], "reset has no option 'rules'. Options: rule, numbers."],
    [
      'peek',
      ['zendesk', null],
      "The identity of the limit 'zendesk' is null. Use an object, such as { account: '42' }.",
    ],
  ])('%s rejects wrong arguments with a message: %o', async (method, args, message) => {
    const { limiter } = limiterOn(await fresh())
    const call = limiter[method as 'peek'] as (...args: unknown[]) => Promise<unknown>
    await expect(call(...args)).rejects.toThrow(new TypeError(message))
  })

  it.each<[unknown, string]>([
    [{ cost: 2n }, `cost is 2n. ${COST}`],
    [{ units: 2 }, "refund has no option 'units'. Options: cost."],
    [null, 'The options of refund are null. Use an object with any of these: cost.'],
  ])('gives nothing back for wrong options, and says so: %o', async (options, message) => {
    const redis = await fresh()
    const { limiter } = limiterOn(redis)
    const decision = await limiter.limit('crawler', {}, { cost: 5 })
    const before = await redis.snapshot()
    await expect(limiter.refund(decision, options as LimitOptions)).rejects.toThrow(new TypeError(message))
    expect(await redis.snapshot()).toEqual(before)
  })
})

type Call = readonly [name: string, identity: unknown, options?: unknown]

describeOnRedisEngine('8 workers under 10 per second, 200 per minute and 1,000 per day', (fresh, kind) => {
  it(`together never exceed any limit, and use at least 99 % of what is allowed (SEED=${SEED})`, async () => {
    const random = randomFrom(SEED)
    const { limiter, clock } = limiterOn(await fresh())
    const calls: number[] = []
    // Until 1 a.m. of the next day, so in two calendar days, with `npm run test:all`. On the embedded Redis this would take half a minute.
    const isWhole = kind === 'redis-server' && sized(true, false)
    const end = NOON + (isWhole ? 13 * 3600e6 : 210e6)
    const worker = async () => {
      for (;;) {
        const left = (end - clock.time) / 1e3
        if (left <= 0) return
        const { allowed } = await limiter.acquire('crawler', {}, { timeoutMs: left })
        if (!allowed) return
        calls.push(clock.time)
        // The work itself takes some time.
        await clock.sleep(random.int(1, 400))
      }
    }
    await clock.runUntilDone(Promise.all(Array.from({ length: 8 }, worker)))

    calls.sort((a, b) => a - b)
    for (const [limit, period] of [
      [10, 1e6],
      [200, 60e6],
    ] as const) {
      // Between a call and the one `limit` places before it, at least a period must pass.
      const tooSoon = calls.filter((at, i) => i >= limit && at - calls[i - limit]! < period)
      expect(tooSoon).toEqual([])
    }
    if (!isWhole) {
      // At 10 a second, the 200 calls of a minute take 20 s. This happens four times within three and a half minutes.
      expect(calls.length).toBe(800)
      return
    }
    const perDay = Map.groupBy(calls, at => Math.floor(at / 86400e6))
    expect([...perDay.values()].map(day => day.length)).toEqual([1000, 1000])

    // Until the day's quota is used up, every minute is used in full: 1,000 calls in 5 minutes.
    const night = [...perDay.values()][1]!
    const minutes = (night.at(-1)! - night[0]!) / 60e6
    expect(1000 / ((Math.floor(minutes) + 1) * 200)).toBeGreaterThanOrEqual(0.99)
  }, 300_000)
})

describeOnRedisEngine('8 workers behind a leaky bucket', fresh => {
  it('depart one by one, at exactly the allowed rate', async () => {
    const { limiter, clock } = limiterOn(await fresh())
    const departures: number[] = []
    const worker = async () => {
      for (let i = 0; i < 25; i++) {
        await limiter.acquire('mail', { domain: 'x' })
        departures.push(clock.time)
      }
    }
    await clock.runUntilDone(Promise.all(Array.from({ length: 8 }, worker)))
    expect(departures).toHaveLength(200)
    const gaps = departures.slice(1).map((at, i) => at - departures[i]!)
    expect(new Set(gaps)).toEqual(new Set([500_000]))
  })
})

it('different identities have different keys, whatever their text', async () => {
  const values = [
    'a',
    'A',
    'a,user=b',
    'a%2Cuser=b',
    'a}',
    '{a',
    ':',
    '',
    '#',
    '*',
    '%2A',
    '~',
    ' ',
    'ä',
    '\0',
    '\ud800',
    '\ud801',
  ]
  const long = ['x'.repeat(101), 'x'.repeat(102), 'ä'.repeat(50)]
  const keys = [...values, ...long].map(value => limitStateKey('l', [['account', value]]))
  expect(new Set(keys).size).toBe(keys.length)
  for (const key of keys) {
    expect(key).toMatch(/^sluice:\{l:l\}:state:account=[^{}:,=*~\s]*$/)
    expect(key.length).toBeLessThan(200)
  }
  // Two parts differ from one part whose value has a comma.
  const two = limitStateKey('l', [
    ['account', 'a'],
    ['user', 'b'],
  ])
  expect(keys).not.toContain(two)
})
