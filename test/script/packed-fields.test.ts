/** The fields of records at their bounds: the last number that fits, and the next one (docs/internals/script.md#room-for-numbers). */
import { describe, expect, it } from 'vitest'
import { MAX_UNITS } from '../../src/algorithms/concurrency.ts'
import { MAX_LOG_LIMIT } from '../../src/algorithms/sliding-log.ts'
import { MAX_WINDOW_COUNT } from '../../src/algorithms/window.ts'
import type { RuleInput } from '../../src/config/check/rule-schema.ts'
import { consumerStateKey, sideKey } from '../../src/store/keys.ts'
import { bound } from '../support/bound.ts'
import { describeOnEngines, type Engine, rulesOf } from '../support/engines.ts'
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
