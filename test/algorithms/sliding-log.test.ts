/** Tests the stored log: short logs that are read whole, long logs of which only parts are read, and damaged logs. */
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import type { Rule } from '../../src/config/compile.ts'
import { consumerStateKey, ownKey } from '../../src/store/keys.ts'
import { bound } from '../support/bound.ts'
import { describeOnRedisEngine, ModelEngine, type RedisEngine, rulesOf, runsFor } from '../support/engines.ts'
import { forEvery } from '../support/property.ts'
import { FC_PATH, randomFrom, SEED } from '../support/random.ts'
import { evaluationOf, listOf, NOON, newCaller } from '../support/traffic.ts'

const STATE = consumerStateKey('acme')
const LOG_ENTRY = 11

const logOf = (limit: number, period: '1s' | '1m' | '1h' = '1m'): Rule =>
  rulesOf({ name: 'log', by: 'consumer', algorithm: 'sliding-log', limit, period })[0]!

const ask = (rule: Rule, cost: number, now: number) => evaluationOf([bound(rule, STATE, cost)], now)

/** Spends one unit every `every` microseconds. A connection keeps the order, so fifty requests at a time are sent without waiting. */
async function spendOneByOne(redis: RedisEngine, rule: Rule, units: number, every: number): Promise<void> {
  for (let i = 0; i < units; i += 50) {
    const instants = Array.from({ length: Math.min(50, units - i) }, (_, k) => NOON + (i + k) * every)
    await Promise.all(instants.map(now => redis.evaluate(ask(rule, 1, now))))
  }
}

describeOnRedisEngine('a log', fresh => {
  // 100 is the highest limit whose log is read whole.
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

  it('takes at most 16 bytes for each request that counts, and grows no further', async () => {
    const redis = await fresh()
    const rule = logOf(400)
    const key = ownKey(STATE, 'log', rule.tag)
    await spendOneByOne(redis, rule, 600, 150_001)
    const { verdicts } = await redis.evaluate(ask(rule, 0, NOON + 600 * 150_001))
    expect(verdicts[0]!.remaining).toBeLessThan(5)
    expect(Number(await redis.send(['STRLEN', key])) / 400).toBeLessThan(16)
    // The embedded Redis does not know this command.
    const used = await redis.send(['MEMORY', 'USAGE', key]).catch(() => 0)
    expect(Number(used) / 400).toBeLessThan(16)
  }, 60_000)

  it.each([40, 110])(
    'of %i units that is missing, cut short, foreign or of another type counts as empty, and is repaired',
    async limit => {
      const redis = await fresh()
      const rule = logOf(limit)
      const key = ownKey(STATE, 'log', rule.tag)
      const fill = async () => {
        await redis.send(['FLUSHALL'])
        await spendOneByOne(redis, rule, limit, 1)
        expect((await redis.evaluate(ask(rule, 1, NOON + limit))).status).toBe('refused')
      }
      const length = async () => Number(await redis.send(['STRLEN', key]))
      const harm: ((redis: RedisEngine) => Promise<unknown>)[] = [
        () => redis.send(['DEL', key]),
        async () =>
          redis.send([
            'SET',
            key,
            ((await redis.send(['GET', key])) as Buffer).subarray(0, limit * LOG_ENTRY),
          ]),
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

  it.each([40, 110])(
    'of %i units with random bytes never makes a decision fail',
    async limit => {
      const random = randomFrom(SEED)
      const redis = await fresh()
      const rule = logOf(limit)
      const key = ownKey(STATE, 'log', rule.tag)
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
