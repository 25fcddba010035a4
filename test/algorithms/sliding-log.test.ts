/** Tests the stored log: short logs in one string, long logs with chunks, logs that earlier versions have written, and damaged logs. */
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import type { Rule } from '../../src/config/compile.ts'
import { chunksKey, consumerStateKey, sideKey } from '../../src/store/keys.ts'
import { sized } from '../selection.ts'
import { bound } from '../support/bound.ts'
import { describeOnRedisEngine, ModelEngine, type RedisEngine, rulesOf, runsFor } from '../support/engines.ts'
import { forEvery } from '../support/property.ts'
import { FC_PATH, randomFrom, SEED } from '../support/random.ts'
import { record } from '../support/state-record.ts'
import { evaluationOf, listOf, NOON, newCaller } from '../support/traffic.ts'

const STATE = consumerStateKey('acme')
const LOG_ENTRY = 11

const logOf = (limit: number, period: '1s' | '1m' | '1h' = '1m'): Rule =>
  rulesOf({ name: 'log', by: 'consumer', algorithm: 'sliding-log', limit, period })[0]!

/** A log as earlier versions wrote it: 7 bytes time and 4 bytes total for each entry, and room for an eighth more. */
function earlierLog(entries: readonly (readonly [time: number, total: number])[]): Buffer {
  const bytes = Buffer.alloc((entries.length + (entries.length >> 3) + 1) * LOG_ENTRY)
  for (const [i, [time, total]] of entries.entries()) {
    bytes.writeUIntBE(Math.floor(time / 2 ** 32), i * LOG_ENTRY, 3)
    bytes.writeUInt32BE(time % 2 ** 32, i * LOG_ENTRY + 3)
    bytes.writeUInt32BE(total, i * LOG_ENTRY + 7)
  }
  return bytes
}

const ask = (rule: Rule, cost: number, now: number) => evaluationOf([bound(rule, STATE, cost)], now)

/** Spends one unit every `every` microseconds. A connection keeps the order, so fifty requests at a time are sent without waiting. */
async function spendOneByOne(redis: RedisEngine, rule: Rule, units: number, every: number): Promise<void> {
  for (let i = 0; i < units; i += 50) {
    const instants = Array.from({ length: Math.min(50, units - i) }, (_, k) => NOON + (i + k) * every)
    await Promise.all(instants.map(now => redis.evaluate(ask(rule, 1, now))))
  }
}

describeOnRedisEngine('a log', fresh => {
  // Above 64 entries, a log has chunks.
  it.each([
    [100, 5],
    [101, 5],
    [400, 20],
    [3000, 200],
  ])(`of %i units, up to %i a request, replies like the model (SEED=${SEED})`, async (limit, most) => {
    const redis = await fresh()
    const withLoops = redis.withLoops()
    const rule = logOf(limit, '1s')
    // More than the limit in a period, so that the log fills and requests are refused.
    const between = Math.ceil((0.75e6 * most) / limit)
    const pause = fc.oneof(
      { weight: 40, arbitrary: fc.integer({ min: 0, max: between }) },
      { weight: 1, arbitrary: fc.integer({ min: 0, max: 1.2e6 }) },
      { weight: 1, arbitrary: fc.integer({ min: -3e5, max: -1 }) },
    )
    const units = fc.oneof(
      { weight: 19, arbitrary: fc.integer({ min: 1, max: most }) },
      { weight: 1, arbitrary: fc.constantFrom(0, limit, Math.ceil(limit / 2)) },
    )
    const step = fc.oneof(
      { weight: 19, arbitrary: fc.record({ pause, units }) },
      { weight: 1, arbitrary: fc.record({ pause, units, refundOf: fc.integer({ min: -30, max: -1 }) }) },
    )
    let refused = 0
    // Enough steps to fill the log and to move its ends.
    await forEvery(fc.record({ steps: listOf(step, 200, 60) }), runsFor(redis, 3), async ({ steps }) => {
      const model = new ModelEngine()
      const key = consumerStateKey(newCaller())
      const spent: { at: number; cost: number }[] = []
      let now = NOON
      for (const [i, step] of steps.entries()) {
        now += step.pause
        // The two forms of the script take turns on the same log.
        const engine = i % 2 === 0 ? redis : withLoops
        const back = 'refundOf' in step ? spent.at(step.refundOf) : undefined
        if (back) {
          const units = Math.min(step.units, back.cost)
          const rules = [{ ...bound(rule, key), units, spent: back.cost }]
          const refund = { rules, spentAt: back.at, now }
          const [expected, actual] = await Promise.all([model.refund(refund), engine.refund(refund)])
          expect(actual, `step ${i}`).toEqual(expected)
          continue
        }
        const evaluation = evaluationOf([bound(rule, key, step.units)], now)
        const [expected, actual] = await Promise.all([
          model.evaluate(evaluation),
          engine.evaluate(evaluation),
        ])
        expect(actual, `step ${i}`).toEqual(expected)
        if (expected.status === 'refused') refused += 1
        else if (step.units > 0) spent.push({ at: now, cost: step.units })
      }
    })
    if (!FC_PATH) expect(refused).toBeGreaterThan(runsFor(redis, 10))
  })

  it(`with many entries replies like the model, after pauses, refunds and large costs (SEED=${SEED})`, async () => {
    const redis = await fresh()
    const limit = redis.kind === 'embedded' ? 400 : sized(1500, 400)
    const rule = logOf(limit)
    const random = randomFrom(SEED)
    const model = new ModelEngine()
    const spent: { at: number; cost: number }[] = []
    let now = NOON
    const decide = async (cost: number) => {
      const evaluation = ask(rule, cost, now)
      const [expected, actual] = await Promise.all([model.evaluate(evaluation), redis.evaluate(evaluation)])
      expect(actual).toEqual(expected)
      if (expected.status === 'admitted' && cost > 0) spent.push({ at: now, cost })
    }
    const refund = async ({ at, cost }: { at: number; cost: number }) => {
      const units = random.int(1, cost)
      const asked = { rules: [{ ...bound(rule, STATE), units, spent: cost }], spentAt: at, now }
      const [expected, actual] = await Promise.all([model.refund(asked), redis.refund(asked)])
      expect(actual).toEqual(expected)
    }
    for (let round = 0; round < 3; round++) {
      for (let i = 0; i < limit; i++) {
        now += random.int(0, 40e6 / limit)
        await decide(random.chance(0.9) ? 1 : 2)
      }
      for (let i = 0; i < 60; i++) {
        now += random.pick([0, 1, 1000, 100_000, -1000, 2e6])
        const recent = spent.slice(-limit)
        if (random.chance(0.4)) await refund(random.pick(random.chance(0.3) ? recent.slice(-40) : recent))
        else await decide(random.pick([0, 1, 1, 3, Math.ceil(limit / 3), limit]))
      }
      // Refunds of the newest entries, until chunks are the newest.
      for (const newest of spent.slice(-100).reverse()) if (random.chance(0.7)) await refund(newest)
      now += random.pick([10e6, 30e6, 55e6, 59e6])
    }
  }, 120_000)

  it('takes at most 16 bytes for each request that counts, and a decision reads at most 1.1 kB of it', async () => {
    const redis = await fresh()
    const rule = logOf(400)
    const key = sideKey(STATE, 'log', rule.tag)
    const chunks = chunksKey(key)
    let longest = 0
    for (let i = 0; i < 700; i++) {
      await redis.evaluate(ask(rule, 1, NOON + i * 150_001))
      longest = Math.max(longest, Number(await redis.send(['STRLEN', key])))
    }
    const { verdicts } = await redis.evaluate(ask(rule, 0, NOON + 700 * 150_001))
    expect(verdicts[0]!.remaining).toBeLessThan(5)
    expect(longest).toBe(65 * LOG_ENTRY)
    expect(
      await redis.send(['HSTRLEN', chunks, String(((await redis.send(['HKEYS', chunks])) as Buffer[])[0])]),
    ).toBe(32 * LOG_ENTRY)
    const bytes = (key: string) => redis.send(['MEMORY', 'USAGE', key, 'SAMPLES', '0'])
    // The embedded Redis does not know this command.
    const used = await Promise.all([key, chunks].map(key => bytes(key).catch(() => 0)))
    expect((Number(used[0]) + Number(used[1])) / 400).toBeLessThan(16)
  }, 60_000)

  it('removes chunks that have expired, one decision after it has dropped them', async () => {
    const redis = await fresh()
    const rule = logOf(400)
    const chunks = chunksKey(sideKey(STATE, 'log', rule.tag))
    let most = 0
    // For ten minutes, so that each chunk is dropped many times.
    for (let i = 0; i < 4000; i++) {
      await redis.evaluate(ask(rule, 1, NOON + i * 150_001))
      if (i % 16 === 0) most = Math.max(most, Number(await redis.send(['HLEN', chunks])))
    }
    expect(most).toBeLessThanOrEqual(400 / 32 + 2)
  }, 60_000)

  it('has chunks only while more than 64 entries count, and they expire with their entries', async () => {
    const redis = await fresh()
    const rule = logOf(400)
    const chunks = chunksKey(sideKey(STATE, 'log', rule.tag))
    const exists = () => redis.send(['EXISTS', chunks])
    await spendOneByOne(redis, rule, 64, 1)
    expect(await exists()).toBe(0)
    await spendOneByOne(redis, rule, 300, 100_000)
    expect(await exists()).toBe(1)
    const ttl = Number(await redis.send(['TTL', chunks]))
    expect(ttl).toBeGreaterThan(60)
    await redis.evaluate(ask(rule, 1, NOON + 40e6))
    await redis.evaluate(ask(rule, 1, NOON + 99e6))
    // They are not removed at once: if the decision failed after that, the log that is stored would lack them.
    expect(Number(await redis.send(['TTL', chunks]))).toBeLessThanOrEqual(ttl)
  })

  it('starts anew after a reset, without the chunks of the earlier log', async () => {
    const redis = await fresh()
    const rule = logOf(400)
    await spendOneByOne(redis, rule, 400, 1)
    await redis.reset({ rules: [bound(rule, STATE)], now: NOON + 500 })
    expect(await redis.send(['KEYS', '*'])).toEqual([])
  })

  // An earlier version wrote all entries to one string, with room behind them, and not every head was 2.
  it.each([
    [50, 2],
    [50, 20],
    [110, 70],
    [3000, 1000],
  ])(
    'of %i units in the format of earlier versions keeps its entries (head %i)',
    async (limit, head) => {
      const every = Math.ceil(60e6 / limit)
      const rule = logOf(limit)
      for (const cost of sized([0, 1, Math.ceil(limit / 2), limit], limit > 1000 ? [limit] : [0, 1, limit])) {
        const redis = await fresh()
        await redis.send(['FLUSHALL'])
        const model = new ModelEngine()
        // Entries before the head have expired.
        const times = Array.from({ length: head - 2 + limit }, (_, i) => NOON + (i - head + 2) * every)
        for (const now of times) await model.evaluate(ask(rule, 1, now))
        const entries = [[0, 0] as const, ...times.map((time, i) => [time, i + 1] as const)]
        await redis.send(['SET', sideKey(STATE, 'log', rule.tag), earlierLog(entries)])
        const idleAt = Math.ceil((times.at(-1)! + 60e6) / 1000) * 1000
        await redis.send(['SET', STATE, record(rule.tag, idleAt, head * 2 ** 20 + entries.length)])
        for (const [i, units] of [0, cost, 1, 1, 0, cost].entries()) {
          const evaluation = ask(rule, units, NOON + 60e6 + i * 3 * every)
          expect(await redis.evaluate(evaluation), `step ${i}`).toEqual(await model.evaluate(evaluation))
        }
      }
    },
    60_000,
  )

  it.each([40, 110])(
    'of %i units that is missing, cut short, foreign or of another type counts as empty, and is repaired',
    async limit => {
      const redis = await fresh()
      const rule = logOf(limit)
      const key = sideKey(STATE, 'log', rule.tag)
      const fill = async () => {
        await redis.send(['FLUSHALL'])
        await spendOneByOne(redis, rule, limit, 1)
        expect((await redis.evaluate(ask(rule, 1, NOON + limit))).status).toBe('refused')
      }
      const length = async () => Number(await redis.send(['STRLEN', key]))
      const harm: ((redis: RedisEngine) => Promise<unknown>)[] = [
        () => redis.send(['DEL', key]),
        async () =>
          redis.send(['SET', key, ((await redis.send(['GET', key])) as Buffer).subarray(0, -LOG_ENTRY)]),
        () => redis.send(['SET', key, '']),
        () => redis.send(['SET', key, '{"json":true}']),
        async () => redis.send(['SET', key, 'x'.repeat(await length())]),
        async () => redis.send(['SET', key, '\0'.repeat(await length())]),
        async () => {
          await redis.send(['DEL', key])
          await redis.send(['LPUSH', key, 'x'])
        },
        // The log without its record.
        () => redis.send(['DEL', STATE]),
      ]
      for (const [i, spoil] of harm.entries()) {
        await fill()
        await spoil(redis)
        const now = NOON + limit + 1
        const { status, verdicts } = await redis.evaluate(ask(rule, 1, now))
        expect([status, verdicts[0]!.remaining], `harm ${i}`).toEqual(['admitted', limit - 1])
        // The repaired log counts again.
        expect((await redis.evaluate(ask(rule, limit, now + 1))).status).toBe('refused')
        expect((await redis.evaluate(ask(rule, limit - 1, now + 1))).status).toBe('admitted')
        expect((await redis.evaluate(ask(rule, 1, now + 2))).verdicts[0]).toMatchObject({
          retryAfter: 60e6 - 2,
        })
      }
    },
    60_000,
  )

  it('whose chunks are missing, cut short or of another type counts as empty when they are needed, and is repaired', async () => {
    const redis = await fresh()
    const rule = logOf(400)
    const chunks = chunksKey(sideKey(STATE, 'log', rule.tag))
    const harm = [
      () => redis.send(['DEL', chunks]),
      async () => {
        for (const field of (await redis.send(['HKEYS', chunks])) as Buffer[])
          await redis.send(['HSET', chunks, String(field), 'x'])
      },
      async () => {
        await redis.send(['DEL', chunks])
        await redis.send(['SET', chunks, 'x'])
      },
    ]
    for (const [i, spoil] of harm.entries()) {
      await redis.send(['FLUSHALL'])
      await spendOneByOne(redis, rule, 400, 100_000)
      await spoil()
      // The oldest and the newest entries still count, and the totals of the others.
      expect((await redis.evaluate(ask(rule, 1, NOON + 40e6))).status, `harm ${i}`).toBe('refused')
      // Half of the entries have expired.
      const now = NOON + 80e6
      expect((await redis.evaluate(ask(rule, 1, now))).verdicts[0], `harm ${i}`).toMatchObject({
        allowed: true,
        remaining: 399,
      })
      await Promise.all(Array.from({ length: 399 }, (_, k) => redis.evaluate(ask(rule, 1, now + k + 1))))
      expect((await redis.evaluate(ask(rule, 1, now + 1000))).verdicts[0]).toMatchObject({
        retryAfter: 60e6 - 1000,
      })
    }
  }, 60_000)

  it.each([40, 110])(
    'of %i units with random bytes never makes a decision fail',
    async limit => {
      const random = randomFrom(SEED)
      const redis = await fresh()
      const rule = logOf(limit)
      const key = sideKey(STATE, 'log', rule.tag)
      await spendOneByOne(redis, rule, limit, 1)
      const good = (await redis.send(['GET', key])) as Buffer
      const state = (await redis.send(['GET', STATE])) as Buffer
      for (let i = 0; i < 80; i++) {
        const spoilt = Buffer.from(good)
        for (let times = random.int(1, 40); times > 0; times--)
          spoilt[random.int(0, spoilt.length - 1)] = random.int(0, 255)
        await redis.send(['SET', key, spoilt])
        await redis.send(['SET', STATE, state])
        const cost = random.pick([-3, 0, 1, 2, limit])
        const { status, verdicts } = await redis.evaluate(ask(rule, cost, NOON + limit + i))
        expect(['admitted', 'refused']).toContain(status)
        expect(verdicts[0]!.retryAfter).toBeLessThanOrEqual(120e6)
      }
    },
    60_000,
  )
})
