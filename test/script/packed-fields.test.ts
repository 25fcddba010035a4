/** The fields of records at their bounds: the last number that fits, and the next one (docs/internals/script.md#room-for-numbers). */
import { describe, expect, it } from 'vitest'
import { MAX_UNITS } from '../../src/algorithms/concurrency.ts'
import { LOG_CHUNK, LOG_ENTRY, LOG_FIELDS, MAX_LOG_LIMIT } from '../../src/algorithms/sliding-log.ts'
import { MAX_WINDOW_COUNT } from '../../src/algorithms/window.ts'
import type { RuleInput } from '../../src/config/check/rule-schema.ts'
import type { Rule } from '../../src/config/compile.ts'
import { prepareDecide, prepareSettle } from '../../src/limiter/prepared-call.ts'
import { ScriptModel } from '../../src/script/model.ts'
import { chunksKey, consumerStateKey, reservedKey, sideKey } from '../../src/store/keys.ts'
import type { StoreCall } from '../../src/store/store.ts'
import { bound } from '../support/bound.ts'
import {
  describeOnEngines,
  describeOnRedisEngine,
  type Engine,
  ModelEngine,
  rulesOf,
} from '../support/engines.ts'
import { randomFrom, SEED } from '../support/random.ts'
import { ruleSetOf } from '../support/rule-set.ts'
import { evaluationOf, NOON } from '../support/traffic.ts'

const STATE = consumerStateKey('acme')
const HOUR = 3600e6

/** The highest limit of each algorithm, whose numbers fill its record the most. */
const HIGHEST: Record<string, object> = {
  'fixed-window': { limit: 1e9, period: '366d' },
  'sliding-window': { limit: MAX_WINDOW_COUNT, period: '1h' },
  'sliding-log': { limit: MAX_LOG_LIMIT, period: '1h' },
  gcra: { limit: 1e9, period: '1d', burst: 1e9 },
  'token-bucket': { limit: 1e9, period: '1d', burst: 1e9 },
  'leaky-bucket': { limit: 1e9, period: '1s', queue: 1e6 - 1 },
  concurrency: { limit: 1e6, ttl: '1h' },
}

describeOnEngines('a record', fresh => {
  it.each(Object.entries(HIGHEST))(
    'of %s counts up to its highest limit, and no further',
    async (algorithm, numbers) => {
      const [rule] = rulesOf({ name: 'a', by: 'consumer', algorithm, ...numbers } as RuleInput)
      const engine = await fresh()
      const most = rule!.quota.burst
      const ask = async (cost: number) => {
        const { verdicts } = await engine.evaluate(evaluationOf([bound(rule!, STATE, cost)], NOON))
        return [verdicts[0]!.allowed, verdicts[0]!.remaining]
      }
      expect(await ask(most + 1)).toEqual([false, most])
      expect(await ask(most - 1)).toEqual([true, 1])
      expect(await ask(2)).toEqual([false, 1])
      expect(await ask(1)).toEqual([true, 0])
      expect(await ask(1)).toEqual([false, 0])
    },
  )

  it('of sliding-window counts two full windows', async () => {
    const [rule] = rulesOf({
      name: 'a',
      by: 'consumer',
      algorithm: 'sliding-window',
      ...HIGHEST['sliding-window'],
    } as RuleInput)
    const engine = await fresh()
    const ask = async (cost: number, now: number) =>
      (await engine.evaluate(evaluationOf([bound(rule!, STATE, cost)], now))).verdicts[0]!
    const start = Math.ceil(NOON / HOUR) * HOUR
    expect((await ask(MAX_WINDOW_COUNT, start)).allowed).toBe(true)
    // At the end of the next window, hardly anything of the first one counts.
    expect((await ask(MAX_WINDOW_COUNT - 1, start + 2 * HOUR - 1)).allowed).toBe(true)
    expect((await ask(2, start + 2 * HOUR - 1)).allowed).toBe(false)
    expect((await ask(0, start + 3 * HOUR)).remaining).toBe(MAX_WINDOW_COUNT)
  })

  describe('of units in flight', () => {
    const [rule] = rulesOf({ name: 'held', by: 'consumer', algorithm: 'concurrency', limit: 1e6, ttl: '1h' })
    const key = sideKey(STATE, 'held', rule!.tag)
    const message = (epoch: number, started: number, ended: number, holder = 'isolateA') => ({
      key,
      ttl: rule!.quota.period,
      holding: { holder, epoch, started, ended },
    })
    const left = async (engine: Engine) =>
      (await engine.evaluate(evaluationOf([bound(rule!, STATE, 0)], NOON))).verdicts[0]!.remaining

    it.each([
      [MAX_UNITS - 1, MAX_UNITS - 3, 2],
      [MAX_UNITS, MAX_UNITS - 3, 3],
      // Units that do not fit count as far as they fit.
      [MAX_UNITS + 1, MAX_UNITS - 2, 3],
      [MAX_UNITS + 10, 0, MAX_UNITS],
      [2 ** 32, 2 ** 32 - 3, 3],
      [2 ** 52, 0, MAX_UNITS],
    ])('counts %s started and %s ended as %s', async (started, ended, units) => {
      const engine = await fresh()
      await engine.sync([message(1, started, ended)], NOON)
      expect(await left(engine)).toBe(Math.max(0, 1e6 - units))
      // Also with so many records that there is a summary, and that they are written in place.
      for (let i = 0; i < 80; i++)
        await engine.sync([message(1, 0, 0, `holder${String(i).padStart(2, '0')}`)], NOON)
      await engine.sync([message(1, started, ended)], NOON)
      expect(await left(engine)).toBe(Math.max(0, 1e6 - units))
    })

    it.each([
      [MAX_UNITS - 1, true],
      [MAX_UNITS, false],
    ])('admits a unit after %s started: %s', async (started, isAdmitted) => {
      const engine = await fresh()
      const { holding } = message(1, started, started - 1)
      const ask = () => engine.evaluate(evaluationOf([{ ...bound(rule!, STATE, 1), holding }], NOON))
      const { status, verdicts } = await ask()
      expect(status).toBe(isAdmitted ? 'admitted' : 'refused')
      if (!isAdmitted) expect(verdicts[0]!.retryAfter).toBeGreaterThan(0)
      // The next one finds a record that is full.
      expect((await ask()).status).toBe('refused')
      expect(await left(engine)).toBe(isAdmitted ? 1e6 - 2 : 1e6)
    })

    it.each([2 ** 32 - 2, 2 ** 32 - 1])('keeps epoch %s as the latest', async epoch => {
      const engine = await fresh()
      await engine.sync([message(epoch, 3, 0)], NOON)
      await engine.sync([message(epoch - 1, 7, 0)], NOON)
      expect(await left(engine)).toBe(1e6 - 3)
      await engine.sync([message(epoch, 3, 1)], NOON)
      expect(await left(engine)).toBe(1e6 - 2)
    })
  })
})

describeOnRedisEngine('a reservation', fresh => {
  // Configs have lower limits, so that only a test reserves as much.
  const limit = 2 ** 34
  const [small] = rulesOf({ name: 'a', by: 'consumer', algorithm: 'fixed-window', limit: 1e9, period: '1h' })
  const rule: Rule = {
    ...{ ...small!, limit, quota: { ...small!.quota, rate: limit, burst: limit } },
    settlement: { ttlMs: 60_000, onUnsettled: 'keep', aboveLimit: 'clamp' },
  }
  const ruleSet = ruleSetOf([{ rule, key: STATE }])

  it.each([
    [2 ** 32 - 1, true],
    [2 ** 32, false],
    [2 ** 32 + 7, false],
    [2 ** 33, false],
  ])('of %s units is in the state: %s; and is settled exactly', async (units, isInState) => {
    const engine = await fresh()
    await engine.send(['FLUSHALL'])
    const model = new ScriptModel()
    // Replies with so much left are refused, so they are compared as they are.
    const rawOf = async ({ call }: { call: StoreCall }) =>
      (await engine.ask({ call, decode: reply => reply })) as number[]
    const ask = async (cost: number, id: string) => {
      const rules = [bound(rule, STATE, cost, NOON / 1e3)]
      const evaluation = { ruleSet, rules, reservationId: id, now: NOON }
      const { remaining, resetAfter, reserved, debt = 0 } = model.decide(evaluation).verdicts[0]!
      const reply = await rawOf(prepareDecide(evaluation))
      expect(reply.slice(-4)).toEqual([remaining, resetAfter, reserved, debt])
      return { remaining, reserved }
    }
    await ask(5, 'request00001')
    expect(await ask(units, 'request00002')).toEqual({ reserved: units, remaining: limit - 5 - units })
    expect(await engine.send(['EXISTS', reservedKey(STATE)])).toBe(isInState ? 0 : 1)
    const settlement = {
      ...{ ruleSet, rules: [bound(rule, STATE, 1, NOON / 1e3)], now: NOON },
      requests: [{ id: 'request00002', spentAt: NOON, amounts: [{ reserved: units, actual: 3 }] }],
    }
    const { applied, verdicts } = model.settle(settlement)
    const [, done, remaining] = await rawOf(prepareSettle(settlement))
    expect([done, remaining]).toEqual([applied, verdicts[0]!.remaining])
    expect(await ask(0, 'request00003')).toEqual({ reserved: 0, remaining: limit - 8 })
  })
})

describeOnRedisEngine(`a long log (SEED=${SEED})`, fresh => {
  const [rule] = rulesOf({ name: 'log', by: 'consumer', algorithm: 'sliding-log', limit: 3000, period: '1m' })
  const key = sideKey(STATE, 'log', rule!.tag)
  const chunks = chunksKey(key)

  it('has a shape that fits, at the highest limit', () => {
    expect(MAX_LOG_LIMIT / LOG_CHUNK).toBeLessThan(LOG_FIELDS)
    expect(LOG_FIELDS).toBeLessThanOrEqual(2 ** 12)
    expect(LOG_CHUNK + 1).toBeLessThan(2 ** 8)
  })

  it.each([
    ['its totals pass 2^32', { total: 2 ** 32 - 400, field: 0 }],
    ['the number of its oldest field passes the last one', { total: 0, field: LOG_FIELDS - 6 }],
    ['both', { total: 2 ** 32 - 1, field: LOG_FIELDS - 3 }],
  ])('counts as before when %s', async (_, add) => {
    const engine = await fresh()
    await engine.send(['FLUSHALL'])
    const model = new ModelEngine()
    const random = randomFrom(SEED)
    let now = NOON
    const step = async (most: number) => {
      now += random.int(0, most)
      const cost = random.int(0, 3)
      const evaluation = evaluationOf([bound(rule!, STATE, cost)], now)
      expect(await engine.evaluate(evaluation)).toEqual(await model.evaluate(evaluation))
    }
    for (let i = 0; i < 300; i++) await step(1000)

    /** Adds to the totals of all entries from the `first` one. */
    const shifted = (bytes: Buffer, first: number) => {
      for (let at = first * LOG_ENTRY + 7; at < bytes.length; at += LOG_ENTRY)
        bytes.writeUInt32BE((bytes.readUInt32BE(at) + add.total) % 2 ** 32, at)
      return bytes
    }
    const text = shifted((await engine.send(['GET', key])) as Buffer, 0)
    // The first entry has the shape in place of a time, behind three bytes.
    const shape = text.readUInt32BE(3)
    expect(text.subarray(0, 3).toString('hex')).toBe('ffffff')
    const fieldOf = (field: number) => (field + add.field) % LOG_FIELDS
    text.writeUInt32BE(fieldOf(Math.floor(shape / 2 ** 20)) * 2 ** 20 + (shape % 2 ** 20), 3)
    const fields = (await engine.send(['HGETALL', chunks])) as Buffer[]
    await engine.send(['DEL', chunks])
    for (let i = 0; i < fields.length; i += 2)
      await engine.send([
        'HSET',
        chunks,
        String(fieldOf(Number(fields[i]))),
        shifted(fields[i + 1]!, 0),
      ] as string[])
    await engine.send(['SETEX', key, '600', text] as unknown as string[])

    for (let i = 0; i < 1500; i++) await step(i % 50 === 49 ? 20_000_000 : 100_000)
    const after = ((await engine.send(['GET', key])) as Buffer).readUInt32BE(3)
    if (add.field) expect(Math.floor(after / 2 ** 20)).toBeLessThan(add.field)
  })
})
