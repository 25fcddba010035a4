/**
 * The model also predicts the script if many isolates hold units of one identity: a summary in front of their records is used and
 * renewed, records are written in place, and units are granted in advance.
 */
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import type { BoundRule } from '../../src/script/evaluation.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import { randomCases, sized } from '../selection.ts'
import { bound } from '../support/bound.ts'
import {
  describeInBothForms,
  describeOnEngines,
  describeOnRedisEngine,
  type Engine,
  ModelEngine,
  rulesOf,
} from '../support/engines.ts'
import { forEvery } from '../support/property.ts'
import { listOf, NOON, newCaller } from '../support/traffic.ts'

const RUNS = process.env.SOAK ? 400 : 8
const MAX_STEPS = 240

/** Enough isolates for a summary, and often for records that are written in place. */
const holders = fc.oneof(
  { weight: 6, arbitrary: fc.integer({ min: 0, max: 99 }) },
  { weight: 2, arbitrary: fc.integer({ min: 0, max: 11 }) },
)

const step = fc.record({
  verb: fc.constantFrom('decide', 'decide', 'decide', 'decide', 'sync', 'sync', 'peek', 'refund'),
  /** Sometimes a request has no holding. */
  holder: fc.option(holders, { freq: 20, nil: undefined }),
  epoch: fc.constantFrom(1, 1, 1, 1, 2, 0),
  ended: fc.integer({ min: 0, max: 3 }),
  held: fc.integer({ min: 0, max: 2 }),
  cost: fc.constantFrom(1, 1, 1, 3, 0, 40),
  /** ms. The ttl is three seconds. */
  pause: fc.oneof(
    { weight: 60, arbitrary: fc.constantFrom(0, 1, 7, 20) },
    { weight: 1, arbitrary: fc.constantFrom(900, 1500, 2999, 3000, 3001, -20, -1000, -3001, -6001) },
  ),
})

const scenario = fc.record({
  limit: fc.constantFrom(30, 120, 1000),
  /** How many isolates have reported a unit before. */
  before: fc.constantFrom(0, 10, 90, 90),
  steps: listOf(step, MAX_STEPS, 60),
})

const nameOf = (number: number) => `isolat${String(number).padStart(2, '0')}`

const describeMany = sized(describeInBothForms, describeOnRedisEngine)

describeMany('many isolates', (fresh, kind) => {
  const runs = randomCases(RUNS, kind)

  it('the model predicts decisions and the effect of messages', {
    timeout: 120_000,
  }, async () => {
    const redis = await fresh()
    await forEvery(scenario, runs, async ({ limit, before, steps }) => {
      const [rule] = rulesOf({ name: 'a', by: 'consumer', algorithm: 'concurrency', limit, ttl: '3s' })
      const key = consumerStateKey(newCaller())
      const model = new ModelEngine()
      let now = NOON
      const sideKey = bound(rule!, key).sideKey!
      const first = Array.from({ length: before }, (_, i) => ({
        ...{ key: sideKey, ttl: rule!.quota.period },
        holding: { holder: nameOf(i), epoch: 1, started: 1, ended: 0 },
      }))
      // One call has the messages of all these isolates, as if each had sent its own.
      if (first.length > 0) await Promise.all([redis.sync(first, now), model.sync(first, now)])
      for (const [i, { verb, holder, epoch, ended, held, cost, pause }] of steps.entries()) {
        now += pause * 1e3
        const holding = { holder: nameOf(holder ?? 0), epoch, started: ended + held, ended }
        const boundRule = { ...bound(rule!, key, cost, now / 1e3), ...(holder !== undefined && { holding }) }
        const act = async (engine: Engine) => {
          const evaluation = { rules: [boundRule], plans: ['free'], now }
          switch (verb) {
            case 'decide':
              return { decided: await engine.evaluate(evaluation) }
            case 'peek':
              return { decided: await engine.peek(evaluation) }
            case 'refund':
              return {
                changed: await engine.refund({
                  rules: [{ ...boundRule, units: 1, spent: 1 }],
                  spentAt: now,
                  now,
                }),
              }
            default: {
              const units = await engine.sync([{ key: sideKey, holding, ttl: rule!.quota.period }], now)
              return { units, decided: await engine.peek(evaluation) }
            }
          }
        }
        const [expected, actual] = await Promise.all([act(model), act(redis)])
        expect(actual, `step ${i}, ${verb}`).toEqual(expected)
      }
    })
  })

  it.skipIf(kind === 'embedded').each(sized([1, 8, 9, 64, 65, 100, 200], [1, 9, 64, 65]))(
    'a decision takes exactly one command more than without the rule, if %i isolates have records (the embedded Redis counts no commands)',
    async isolates => {
      const redis = await fresh()
      const [rate, held] = rulesOf(
        { name: 'rate', by: 'consumer', algorithm: 'gcra', limit: 1000, period: '1s' },
        { name: 'held', by: 'consumer', algorithm: 'concurrency', limit: 64 },
      )
      const key = consumerStateKey(newCaller())
      let now = NOON
      const commandsOf = async (rules: BoundRule[]) => {
        await redis.send(['CONFIG', 'RESETSTAT'])
        const { status } = await redis.evaluate({ rules, plans: ['free'], now })
        expect(status).toBe('admitted')
        const info = String(await redis.send(['INFO', 'commandstats']))
        const counts = [...info.matchAll(/^cmdstat_(?!config|info)[^:]+:calls=(\d+)/gm)]
        return counts.reduce((sum, [, calls]) => sum + Number(calls), 0)
      }
      const claims = Array.from({ length: isolates }, () => ({ started: 0, ended: 0 }))
      const holdingOf = (i: number) => ({ holder: `i${String(i).padStart(7, '0')}`, epoch: 1, ...claims[i]! })
      /** @returns the commands of a decision that admits a request of this isolate */
      const admit = async (i: number) => {
        const commands = await commandsOf([
          bound(rate!, key),
          { ...bound(held!, key), holding: holdingOf(i) },
        ])
        claims[i]!.started += 1
        return commands
      }
      const end = async (i: number) => {
        claims[i]!.ended += 1
        const message = { key: bound(held!, key).sideKey!, ttl: held!.quota.period, holding: holdingOf(i) }
        await redis.sync([message], now)
      }

      // The first decision has to send the script.
      await commandsOf([bound(rate!, key)])
      for (let i = 0; i < isolates; i++) {
        now += 20e3
        await admit(i)
        // Half of the limit stays in flight.
        if (i >= 32) await end(i)
      }
      for (let step = 0; step < 120; step++) {
        // Some decisions are in the same second, and some in a later one. Meanwhile the first records expire.
        now += [1, 30, 450][step % 3]! * 1e3
        const without = await commandsOf([bound(rate!, key)])
        const i = (step * 37) % isolates
        expect(await admit(i), `step ${step}`).toBe(without + 1)
        await end(i)
      }
    },
  )
})

describeOnEngines('the retry time with many isolates', fresh => {
  const TTL = 60e6

  /** Each isolate takes a unit, 100 ms after the one before, and the last request finds the limit reached. @returns its retry time (s) */
  async function retryTime(isolates: number, { cost = 1 } = {}): Promise<number> {
    const engine = await fresh()
    const [rule] = rulesOf({
      name: 'a',
      by: 'consumer',
      algorithm: 'concurrency',
      limit: isolates,
      ttl: '60s',
    })
    const key = consumerStateKey(newCaller())
    let now = NOON
    const ask = (holder: string, cost: number, units: number) => {
      const holding = { holder, epoch: 1, started: units, ended: 0 }
      return engine.evaluate({ rules: [{ ...bound(rule!, key, cost), holding }], plans: ['free'], now })
    }
    for (let i = 0; i < isolates; i++) {
      expect((await ask(nameOf(i), 1, 0)).status).toBe('admitted')
      now += 0.1e6
    }
    const { verdicts } = await ask(nameOf(isolates - 1), cost, 1)
    return verdicts[0]!.retryAfter / 1e6
  }

  it.each([7, 8, 9, 30, 64])(
    'is when the first record expires, or the first three: %i isolates',
    async isolates => {
      const first = TTL / 1e6 - isolates / 10
      expect(await retryTime(isolates)).toBeCloseTo(first, 6)
      expect(await retryTime(isolates, { cost: 3 })).toBeCloseTo(first + 0.2, 6)
    },
  )

  it('is when the last record expires, with more than 64 isolates', async () => {
    // The isolate that asks renews its record.
    expect(await retryTime(65)).toBe(TTL / 1e6)
  })
})
