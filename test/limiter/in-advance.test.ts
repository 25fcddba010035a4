/**
 * Units in advance, from the engine to the script: when isolates request them, which requests then need no decision of the store, and
 * when the units are free again. fleet.test.ts simulates a whole fleet.
 */
import { expect, it } from 'vitest'
import type { Rule } from '../../src/config/compile-rule.ts'
import { GatewayError } from '../../src/errors.ts'
import type { Decided } from '../../src/limiter/engine.ts'
import { consumerStateKey, identityStateKey, ownKey } from '../../src/store/keys.ts'
import { describeOnRedisEngine, type RedisEngine, rulesOf } from '../support/engines.ts'
import { isolateOn, Timers } from '../support/isolates.ts'

const [global, few, other] = rulesOf(
  { name: 'fleet', by: 'global', algorithm: 'concurrency', limit: 40 },
  { name: 'few', by: 'global', algorithm: 'concurrency', limit: 6 },
  { name: 'second', by: 'consumer', algorithm: 'gcra', limit: 1000, period: '1s' },
) as [Rule, Rule, Rule]
const fleet: Rule = { ...global, inAdvance: true }
const small: Rule = { ...few, inAdvance: true }

const GLOBAL = identityStateKey(undefined, [])
const HELD = ownKey(GLOBAL, 'held', fleet.tag)

describeOnRedisEngine('units in advance', (fresh, kind) => {
  async function set({ minHolders = 1, rule = fleet } = {}) {
    const redis = await fresh()
    const time = new Timers()
    const isolate = isolateOn(redis, time, 'A', { minHolders })
    const ask = () =>
      isolate.askWith([
        { rule, key: GLOBAL, cost: 1 },
        { rule: other, key: consumerStateKey('acme'), cost: 1 },
      ])
    /** Sends one request after the other. Each takes `ms`. */
    const work = async (requests: number, ms = 60) => {
      for (let i = 0; i < requests; i++) {
        const { finish } = await ask()
        await time.pass(ms)
        finish('complete')
      }
    }
    return { redis, time, isolate, ask, work }
  }

  /** The units in flight, as another isolate sees them. */
  async function inFlight(redis: RedisEngine, time: Timers, rule = fleet): Promise<number> {
    const { decision } = await isolateOn(redis, time, 'B').ask(rule, 0, GLOBAL)
    return rule.limit - (decision.kind === 'allowed' ? decision.verdicts[0]!.remaining : Number.NaN)
  }

  it('are asked for in the HTTP request of a decision, and later decisions do not read the key of the rule', async () => {
    const { redis, time, isolate, ask, work } = await set()
    await work(8)
    const before = isolate.requests.length
    const { decision, finish } = await ask()
    const [decide] = isolate.requests.at(-1)!
    expect(isolate.requests).toHaveLength(before + 1)
    expect('keys' in decide! && decide.keys).not.toContain(HELD)
    expect(decision).toMatchObject({
      kind: 'allowed',
      verdicts: [
        { rule: { name: 'fleet' }, allowed: true },
        { rule: { name: 'second' }, allowed: true },
      ],
    })
    expect(await inFlight(redis, time)).toBeGreaterThan(1)
    finish('complete')
    await time.pass(2000)
    expect(await inFlight(redis, time)).toBe(0)
    expect(time.waiting).toBe(0)
  })

  it('are not used in a small fleet', async () => {
    const { redis, time, isolate, work } = await set({ minHolders: 2 })
    await work(20)
    for (const calls of isolate.requests) {
      const keys = calls.flatMap(call => ('keys' in call ? call.keys : []))
      expect(keys).toContain(HELD)
    }
    await time.pass(2000)
    expect(await inFlight(redis, time)).toBe(0)
  })

  it('never exceed the limit, and a full fleet uses all of it', async () => {
    const { redis, time, ask, work } = await set({ rule: small })
    await work(8)
    const held: Decided[] = []
    for (let i = 0; i < 10; i++) held.push(await ask())
    expect(held.filter(({ decision }) => decision.kind === 'allowed')).toHaveLength(6)
    expect(await inFlight(redis, time, small)).toBe(6)
    for (const { finish } of held) finish('complete')
    await time.pass(2000)
    expect(await inFlight(redis, time, small)).toBe(0)
  })

  it('are kept for later requests when another rule refuses', async () => {
    const { redis, time, isolate, work } = await set()
    await work(8)
    const spent = { ...other, quota: { ...other.quota, burst: 1 } }
    const refused = await isolate.askWith([
      { rule: fleet, key: GLOBAL, cost: 1 },
      { rule: spent, key: consumerStateKey('acme'), cost: 2 },
    ])
    expect(refused.decision).toMatchObject({
      kind: 'denied',
      verdicts: [
        { rule: { name: 'fleet' }, allowed: true },
        { rule: { name: 'second' }, allowed: false },
      ],
    })
    expect(refused.awaitsEnding).toBe(false)
    await time.pass(2000)
    expect(await inFlight(redis, time)).toBe(0)
  })

  it('are free again if their grant was lost', async () => {
    const { redis, time, isolate, work } = await set()
    isolate.fault = async run => {
      await run()
      throw new GatewayError('ERR_STORE_TIMEOUT', 'The store did not answer in time.')
    }
    await work(8)
    isolate.fault = undefined
    await work(8)
    expect(await inFlight(redis, time)).toBeLessThan(8)
    await time.pass(2000)
    expect(await inFlight(redis, time)).toBe(0)
  })

  it('are not used if no message was confirmed within a third of the ttl', async () => {
    const { time, isolate, ask, work } = await set()
    await work(8)
    const before = isolate.requests.length
    // Time passes as if the platform had not run the isolate.
    time.nowMs += 6000
    await ask()
    const keys = isolate.requests
      .slice(before)
      .flatMap(calls => calls.flatMap(call => ('keys' in call ? call.keys : [])))
    expect(keys).toContain(HELD)
  })

  it.skipIf(kind === 'embedded')('are not used again if the limit was lowered', async () => {
    const { redis, time, isolate, work } = await set()
    await work(12, 30)
    const lower: Rule = { ...fleet, limit: 1, quota: { ...fleet.quota, burst: 1 } }
    const held: Decided[] = []
    for (let i = 0; i < 20; i++) {
      held.push(await isolate.ask(lower, 1, GLOBAL))
      await time.pass(30)
    }
    for (const { finish } of held) finish('complete')
    await time.pass(2000)
    expect(await inFlight(redis, time)).toBe(0)
  })
})
