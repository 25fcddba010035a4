/**
 * Units in flight, from the engine to the script: when they are held and free again, which messages an isolate sends and with which
 * HTTP request, and what happens if messages are lost. interleavings.test.ts visits all orders of events.
 */
import { expect, it } from 'vitest'
import { compileBreaker } from '../../../src/config/compile-breaker.ts'
import type { Rule } from '../../../src/config/compile-rule.ts'
import { GatewayError } from '../../../src/errors.ts'
import type { Decided } from '../../../src/limiter/engine-shape.ts'
import type { Subject } from '../../../src/script/evaluation.ts'
import { addressStateKey, consumerStateKey, sideKey } from '../../../src/store/keys.ts'
import { credentialOf, describeOnRedisEngine, type RedisEngine, rulesOf } from '../../support/engines.ts'
import { isolateOn, settled, Timers } from '../../support/isolates.ts'

const [three, ten, second, closed, short, million] = rulesOf(
  { name: 'three', by: 'consumer', algorithm: 'concurrency', limit: 3 },
  { name: 'ten', by: 'consumer', algorithm: 'concurrency', limit: 10, ttl: '3s' },
  { name: 'second', by: 'consumer', algorithm: 'gcra', limit: 2, period: '1s' },
  { name: 'closed', by: 'consumer', algorithm: 'concurrency', limit: 3, onStoreFailure: 'closed' },
  { name: 'short', by: 'consumer', algorithm: 'concurrency', limit: 3, ttl: '1s' },
  { name: 'million', by: 'consumer', algorithm: 'concurrency', limit: 1e6 },
) as [Rule, Rule, Rule, Rule, Rule, Rule]

const ACME = consumerStateKey('acme')
const TIMEOUT = new GatewayError('ERR_STORE_TIMEOUT', 'The store did not answer in time.')

/** The units left, over all isolates. */
const remainingOf = ({ decision }: Decided) =>
  decision.kind === 'allowed' || decision.kind === 'denied' ? decision.verdicts[0]!.remaining : undefined

describeOnRedisEngine('units in flight', fresh => {
  async function set() {
    const redis = await fresh()
    const time = new Timers()
    return { redis, time, isolate: isolateOn(redis, time, 'A') }
  }

  it('are held from the decision until the end of the request', async () => {
    const { isolate } = await set()
    const held = [await isolate.ask(three), await isolate.ask(three), await isolate.ask(three)]
    expect(held.map(({ decision }) => decision.kind)).toEqual(['allowed', 'allowed', 'allowed'])
    expect((await isolate.ask(three)).decision).toMatchObject({ kind: 'denied', retryAfter: 15e6 })
    held[1]!.finish('complete')
    expect((await isolate.ask(three)).decision.kind).toBe('allowed')
    expect((await isolate.ask(three)).decision.kind).toBe('denied')
  })

  it.each(['complete', 'cancelled', 'failed'] as const)(
    'are released once when a request is %s',
    async ending => {
      const { isolate } = await set()
      const [one] = [await isolate.ask(three), await isolate.ask(three), await isolate.ask(three)]
      one.finish(ending)
      one.finish(ending)
      expect((await isolate.ask(three)).decision.kind).toBe('allowed')
      expect((await isolate.ask(three)).decision.kind).toBe('denied')
    },
  )

  it('are as many as the cost of the request', async () => {
    const { isolate } = await set()
    expect((await isolate.ask(three, 4)).decision).toMatchObject({ kind: 'denied', retryAfter: -1 })
    const two = await isolate.ask(three, 2)
    expect((await isolate.ask(three, 2)).decision.kind).toBe('denied')
    two.finish('complete')
    expect((await isolate.ask(three, 3)).decision.kind).toBe('allowed')
  })

  it.each([
    ['more than the limit', 2 ** 24 - 1 - 2, 1],
    ['together more than a record can count', 1e6, 16],
  ])('stay counted while requests are pending that cost %s', async (_, cost, times) => {
    const { redis, time, isolate } = await set()
    const other = isolateOn(redis, time, 'B')
    const rule = times > 1 ? million : three
    await isolate.ask(rule, rule.limit)
    // The replies are on their way when an epoch begins.
    const arrived = Promise.withResolvers<void>()
    isolate.fault = async run => {
      const replies = await run()
      await arrived.promise
      return replies
    }
    const pending = Array.from({ length: times }, () => isolate.ask(rule, cost))
    await time.pass(5000)
    const another = isolate.ask(rule)
    await settled()
    expect((await other.ask(rule)).decision.kind).toBe('denied')
    arrived.resolve()
    for (const { decision } of await Promise.all([...pending, another])) expect(decision.kind).toBe('denied')
    isolate.fault = undefined
    await isolate.askWith([{ rule, key: consumerStateKey('other'), cost: 1 }])
    expect((await other.ask(rule)).decision.kind).toBe('denied')
    await time.pass(250)
    expect(remainingOf(await other.ask(rule, 0))).toBe(0)
  })

  it('are counted over all isolates', async () => {
    const { redis, time, isolate } = await set()
    const other = isolateOn(redis, time, 'B')
    const held = [await isolate.ask(three), await other.ask(three), await isolate.ask(three)]
    expect((await other.ask(three)).decision.kind).toBe('denied')
    held[0]!.finish('complete')
    await settled()
    expect((await other.ask(three)).decision.kind).toBe('allowed')
  })

  it('are not held if another rule refuses; if none is free, the other rule spends nothing', async () => {
    const { isolate } = await set()
    await isolate.askAll(three, second)
    await isolate.askAll(three, second)
    const refused = await isolate.askAll(three, second)
    expect(refused.decision).toMatchObject({ kind: 'denied', violated: [{ rule: { name: 'second' } }] })
    expect(refused.awaitsEnding).toBe(false)
    expect(remainingOf(await isolate.ask(three, 0))).toBe(1)
    const third = await isolate.ask(three)
    expect(third.decision.kind).toBe('allowed')
    const full = await isolate.askAll(three, second)
    expect(full.decision).toMatchObject({ kind: 'denied' })
  })

  it('are counted under a shadow, which never refuses', async () => {
    const { isolate } = await set()
    const shadow = { ...three, mode: 'shadow' as const }
    const verdicts = []
    for (let i = 0; i < 5; i++) {
      const { decision } = await isolate.ask(shadow)
      if (decision.kind === 'allowed') verdicts.push(decision.verdicts[0]!.allowed)
    }
    expect(verdicts).toEqual([true, true, true, false, false])
  })

  it('are reported as released by the next decision of the identity', async () => {
    const { isolate } = await set()
    const one = await isolate.ask(ten)
    one.finish('complete')
    const next = await isolate.ask(ten)
    expect(remainingOf(next)).toBe(9)
    expect(isolate.requests.map(calls => calls.length)).toEqual([1, 1])
  })

  it('are reported as released together with the next decision of any identity, in the same HTTP request', async () => {
    const { redis, time, isolate } = await set()
    const one = await isolate.ask(ten)
    one.finish('complete')
    await isolate.ask(ten, 1, consumerStateKey('globex'))
    expect(isolate.requests.map(calls => calls.length)).toEqual([1, 2])
    expect(remainingOf(await isolateOn(redis, time, 'B').ask(ten, 0))).toBe(10)
    // They are reported once.
    await isolate.ask(ten, 1, consumerStateKey('globex'))
    await time.pass(900)
    expect(isolate.requests.map(calls => calls.length)).toEqual([1, 2, 1])
  })

  it('are reported as released after 250 ms in an HTTP request of their own, several in one call', async () => {
    const { redis, time, isolate } = await set()
    const held = [await isolate.ask(ten), await isolate.ask(ten, 1, consumerStateKey('globex'))]
    for (const { finish } of held) finish('complete')
    await time.pass(249)
    expect(isolate.requests).toHaveLength(2)
    await time.pass(1)
    expect(isolate.requests.map(calls => calls.length)).toEqual([1, 1, 1])
    const other = isolateOn(redis, time, 'B')
    expect(remainingOf(await other.ask(ten, 0))).toBe(10)
    expect(remainingOf(await other.ask(ten, 0, consumerStateKey('globex')))).toBe(10)
    expect(time.waiting).toBe(0)
  })

  it.each([
    ['the same caller', () => ACME],
    ['a caller for each', (n: number) => consumerStateKey(`caller-${n}`)],
  ])('take no HTTP request of their own while decisions are made, for %s', async (_, keyOf) => {
    const { redis, time, isolate } = await set()
    for (let n = 0; n < 60; n++) {
      const { finish } = await isolate.ask(ten, 1, keyOf(n))
      await time.pass(30)
      finish('complete')
      await time.pass(20)
    }
    expect(isolate.requests).toHaveLength(60)
    await time.pass(230)
    expect(isolate.requests).toHaveLength(61)
    expect(remainingOf(await isolateOn(redis, time, 'B').ask(ten, 0, keyOf(59)))).toBe(10)
    expect(time.waiting).toBe(0)
  })

  it('are reported as released immediately if four fifths of the limit were in use', async () => {
    const { redis, time, isolate } = await set()
    const held = await Promise.all(Array.from({ length: 8 }, () => isolate.ask(ten)))
    held[7]!.finish('complete')
    await settled()
    expect(remainingOf(await isolateOn(redis, time, 'B').ask(ten, 0))).toBe(3)
    expect(isolate.requests).toHaveLength(9)
  })

  it('are held as long as the request lasts: the isolate renews them three times within the ttl', async () => {
    const { redis, time, isolate } = await set()
    const one = await isolate.ask(ten)
    await time.pass(60_000)
    // With a ttl of 3 s, once per second.
    expect(isolate.requests).toHaveLength(61)
    const other = isolateOn(redis, time, 'B')
    expect(remainingOf(await other.ask(ten, 0))).toBe(9)
    one.finish('complete')
    await time.pass(250)
    expect(remainingOf(await other.ask(ten, 0))).toBe(10)
    expect(time.waiting).toBe(0)
  })

  it('are also renewed three times within a ttl that is not a multiple of three', async () => {
    const { time, isolate } = await set()
    const one = await isolate.ask(short)
    await time.pass(3330)
    expect(isolate.requests).toHaveLength(11)
    one.finish('complete')
    await time.pass(250)
  })

  it('of a dead isolate are free after the ttl, and not before', async () => {
    const { redis, time, isolate } = await set()
    await isolate.ask(ten, 10)
    // The isolate no longer runs.
    const later = Object.assign(new Timers(), { nowMs: time.nowMs + 2999 })
    const other = isolateOn(redis, later, 'B')
    expect((await other.ask(ten)).decision).toMatchObject({ kind: 'denied', retryAfter: 1000 })
    later.nowMs += 1
    expect((await other.ask(ten, 10)).decision.kind).toBe('allowed')
  })

  it('of a request that the platform has ended without notice become free, although its isolate continues', async () => {
    const { redis, time, isolate } = await set()
    await isolate.ask(ten, 4)
    // The timers of the request have ended with it. Other requests of the isolate continue.
    const gone = new Timers()
    Object.assign(gone, { nowMs: time.nowMs })
    const living = isolate.kept
    time.timer = gone.timer
    for (let second = 0; second < 3; second++) {
      time.nowMs += 1001
      await isolate.askWith([{ rule: ten, key: consumerStateKey('other'), cost: 1 }])
    }
    expect(living.holdings.heldUnits).toHaveLength(2)
    const next = await isolate.ask(ten, 10)
    expect(next.decision.kind).toBe('allowed')
    expect(remainingOf(await isolateOn(redis, time, 'B').ask(ten, 0))).toBe(0)
  })

  it('of a request that the platform has ended become free a second after an isolate runs again', async () => {
    const { time, isolate } = await set()
    await isolate.ask(ten, 4)
    const gone = new Timers()
    Object.assign(gone, { nowMs: time.nowMs })
    time.timer = gone.timer
    // Nothing runs in this time. The isolate cannot tell whether it was paused, and its requests live.
    time.nowMs += 60_000
    expect((await isolate.ask(ten, 10)).decision).toMatchObject({ kind: 'denied' })
    time.nowMs += 1000
    expect((await isolate.ask(ten, 10)).decision.kind).toBe('allowed')
  })

  it.each([1.1, 3, 1000])(
    'of an isolate that was paused for %s times the ttl are held again in one message as soon as it runs',
    async times => {
      const { redis, time, isolate } = await set()
      const other = isolateOn(redis, time, 'B')
      const held = await Promise.all(Array.from({ length: 8 }, () => isolate.ask(ten)))
      await time.pass(5000)
      // The clock of the machine moves on, and no code of the isolate runs.
      time.nowMs += 3000 * times
      const admitted = await Promise.all(Array.from({ length: 4 }, () => other.ask(ten)))
      expect(admitted.map(({ decision }) => decision.kind)).toEqual(Array(4).fill('allowed'))
      isolate.requests.length = 0
      await time.pass(0)
      expect(isolate.requests.map(calls => calls.length)).toEqual([1])
      // Twelve are in flight. Nothing is admitted until there are fewer than ten, on any isolate.
      const more = async () => (await other.ask(ten)).decision.kind
      expect([await more(), (await isolate.ask(ten)).decision.kind]).toEqual(['denied', 'denied'])
      for (const { finish } of held.slice(0, 2)) finish('complete')
      await time.pass(500)
      expect(await more()).toBe('denied')
      held[2]!.finish('complete')
      await time.pass(500)
      expect(await more()).toBe('allowed')
      // They stay held, also long after the pause.
      await time.pass(20_000)
      expect(await more()).toBe('denied')
      for (const { finish } of [...held, ...admitted]) finish('complete')
      await time.pass(500)
      expect(remainingOf(await other.ask(ten, 0))).toBe(9)
    },
  )

  it.each([
    ['was lost', TIMEOUT],
    ['was not read by a busy isolate', new GatewayError('ERR_STORE_OVERLOAD', 'busy')],
  ])('that the store has counted are free with the next message if the reply %s', async (_, error) => {
    const { redis, time, isolate } = await set()
    isolate.fault = async run => {
      await run()
      throw error
    }
    const lost = await isolate.ask(closed)
    expect(lost.decision.kind).toBe('unavailable')
    isolate.fault = undefined
    const other = isolateOn(redis, time, 'B')
    expect(remainingOf(await other.ask(closed, 0))).toBe(2)
    await time.pass(1000)
    const next = await isolate.ask(closed)
    expect(next.decision.kind).toBe('allowed')
    expect(remainingOf(await other.ask(closed, 0))).toBe(2)
  })

  it('need no message if a busy isolate has not sent the request', async () => {
    const { time, isolate } = await set()
    isolate.fault = async () => {
      throw new GatewayError('ERR_STORE_OVERLOAD', 'busy', { fate: 'not-sent' })
    }
    await isolate.ask(closed)
    isolate.fault = undefined
    const before = isolate.requests.length
    await time.pass(3000)
    expect(isolate.requests.length).toBe(before)
  })

  it('are not counted if the store executes the request after the isolate has stopped waiting for it', async () => {
    const { redis, time, isolate } = await set()
    let late: (() => Promise<unknown[]>) | undefined
    isolate.fault = async run => {
      late = run
      throw TIMEOUT
    }
    await isolate.ask(closed)
    isolate.fault = undefined
    await time.pass(1000)
    const held = await isolate.ask(closed)
    expect(held.decision.kind).toBe('allowed')
    await late!()
    expect(remainingOf(await isolateOn(redis, time, 'B').ask(closed, 0))).toBe(2)
  })

  it('are counted in the isolate while the store does not answer, and reported to the store later', async () => {
    const { redis, time, isolate } = await set()
    isolate.fault = async () => {
      throw new GatewayError('ERR_STORE_UNREACHABLE', 'gone')
    }
    const held = await Promise.all(Array.from({ length: 5 }, () => isolate.ask(three)))
    expect(held.map(({ decision }) => decision.kind)).toEqual([
      'allowed',
      'allowed',
      'allowed',
      'denied',
      'denied',
    ])
    held[0]!.finish('complete')
    expect((await isolate.ask(three)).decision.kind).toBe('allowed')
    isolate.fault = undefined
    await time.pass(5000)
    expect(remainingOf(await isolateOn(redis, time, 'B').ask(three, 0))).toBe(0)
  })

  it('are all counted again a third of the ttl after the store was emptied', async () => {
    const { redis, time, isolate } = await set()
    await isolate.ask(ten, 4)
    await redis.send(['FLUSHALL'])
    const other = isolateOn(redis, time, 'B')
    expect(remainingOf(await other.ask(ten, 0))).toBe(10)
    await time.pass(1000)
    expect(remainingOf(await other.ask(ten, 0))).toBe(6)
  })

  it('of an opaque key are held for its consumer, which only the store knows', async () => {
    const { redis, time, isolate } = await set()
    const subject = await opaqueKeyIn(redis)
    const own = await isolate.ask(three)
    const first = await isolate.askWith([{ rule: three, key: consumerStateKey('?'), cost: 1 }], subject)
    expect(first.decision.kind).toBe('allowed')
    const other = isolateOn(redis, time, 'B')
    expect(remainingOf(await other.ask(three, 0))).toBe(1)
    first.finish('complete')
    await time.pass(1000)
    expect(remainingOf(await other.ask(three, 0))).toBe(2)
    own.finish('complete')
    await time.pass(1000)
    expect(remainingOf(await other.ask(three, 0))).toBe(3)
    expect(isolate.kept.holdings.heldUnits).toEqual([])
  })

  it('are renewed as soon as the store is back, even if the isolate gets no other requests', async () => {
    const { redis, time } = await set()
    const isolate = isolateOn(redis, time, 'A', { breaker: compileBreaker({}, 250) })
    const stream = await isolate.ask(three)
    isolate.fault = () => Promise.reject(TIMEOUT)
    // The renewal after 5 s fails, and opens the breaker.
    await time.pass(9000)
    isolate.fault = undefined
    // The record would expire 15 s after the decision.
    await time.pass(2000)
    const other = isolateOn(redis, time, 'B')
    await time.pass(4500)
    expect(remainingOf(await other.ask(three, 0))).toBe(2)
    stream.finish('complete')
  })

  it('of several requests whose consumer only the store knew are all renewed and all released', async () => {
    const { redis, time, isolate } = await set()
    const subject = await opaqueKeyIn(redis)
    const demanded = [{ rule: ten, key: consumerStateKey('?'), cost: 1 }]
    const held = await Promise.all([1, 2, 3].map(() => isolate.askWith(demanded, subject)))
    const other = isolateOn(redis, time, 'B')
    await time.pass(10_000)
    expect(remainingOf(await other.ask(ten, 0))).toBe(7)
    for (const { finish } of held) finish('complete')
    await time.pass(250)
    expect(remainingOf(await other.ask(ten, 0))).toBe(10)
    expect(isolate.kept.holdings.heldUnits).toEqual([])
  })

  it('are free with the next message if one slot of a cluster has counted them and another has refused', async () => {
    const { redis, time } = await set()
    const isolate = isolateOn(redis, time, 'A', { isCluster: true })
    const address = { rule: second, key: addressStateKey('192.0.2.1'), cost: 1 }
    const consumer = { rule: three, key: ACME, cost: 1 }
    const both = [consumer, address]
    const kinds = []
    for (let i = 0; i < 3; i++) kinds.push((await isolate.askWith(both)).decision.kind)
    expect(kinds).toEqual(['allowed', 'allowed', 'denied'])
    await time.pass(1000)
    expect(remainingOf(await isolateOn(redis, time, 'B').ask(three, 0))).toBe(1)
  })

  it('leave nothing behind in the isolate, and in the store a key that expires with the ttl', async () => {
    const { redis, time, isolate } = await set()
    const held = await Promise.all(Array.from({ length: 3 }, () => isolate.ask(three)))
    for (const { finish } of held) finish('complete')
    await time.pass(1000)
    expect(isolate.kept.holdings.heldUnits).toEqual([])
    expect(time.waiting).toBe(0)
    const life = Number(await redis.send(['TTL', sideKey(ACME, 'held', three.tag)]))
    expect(life).toBeGreaterThan(0)
    expect(life).toBeLessThanOrEqual(15 + 10)
  })
})

/** The subject of an opaque key of acme, in an isolate that does not know its consumer. */
async function opaqueKeyIn(redis: Pick<RedisEngine, 'setRecord'>): Promise<Subject> {
  const digest = 'a'.repeat(64)
  await redis.setRecord(`sluice:{k:${digest}}`, 'acme')
  await redis.setRecord(`sluice:{c:acme}:key:${digest}`, credentialOf())
  return {
    kind: 'pointer',
    consumerKey: 'sluice:{c:?}:consumer',
    credentialKey: `sluice:{c:?}:key:${digest}`,
    pointerKey: `sluice:{k:${digest}}`,
  }
}
