/** Refunds with an id: each unit of a request is given back once, and the scripts agree with the model. */
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import type { Rule } from '../../src/config/compile-rule.ts'
import type { RefundedRule } from '../../src/script/refund.ts'
import { consumerStateKey, refundsKey } from '../../src/store/keys.ts'
import { bound } from '../support/bound.ts'
import { describeInBothForms, describeOnEngines, ModelEngine, rulesOf, runsFor } from '../support/engines.ts'
import { forEvery } from '../support/property.ts'
import { SEED } from '../support/random.ts'
import { evaluationOf, listOf, NOON, newCaller } from '../support/traffic.ts'

const WINDOW = { name: 'window', by: 'consumer', algorithm: 'fixed-window', limit: 30, period: '1h' } as const

const RULES = rulesOf(
  WINDOW,
  { name: 'log', by: 'consumer', algorithm: 'sliding-log', limit: 25, period: '1h' },
  { name: 'bucket', by: 'consumer', algorithm: 'gcra', limit: 60, period: '1h', burst: 40 },
)

const refundOf = (
  caller: string,
  id: string,
  units: readonly number[],
  spent: number,
  at: number,
  ruleList: readonly Rule[] = RULES,
) => {
  const state = consumerStateKey(caller)
  return {
    rules: ruleList.map(
      (rule, i): RefundedRule => ({ ...bound(rule, state, 0, NOON / 1e3), units: units[i]!, spent }),
    ),
    ...{ spentAt: at, once: { key: refundsKey(state, 1), id, keepSeconds: 60 } },
  }
}

describeOnEngines('a refund with an id', fresh => {
  it('gives back each unit of the request once', async () => {
    const engine = await fresh()
    const caller = newCaller()
    const ask = async (cost: number) => {
      const rules = RULES.map(rule => bound(rule, consumerStateKey(caller), cost, NOON / 1e3))
      const { verdicts } = await engine.evaluate(evaluationOf(rules, NOON))
      return verdicts.map(({ remaining }) => remaining)
    }
    await ask(6)
    await ask(5)
    const give = async (id: string, ...units: number[]) => {
      await engine.refund({ ...refundOf(caller, id, units, 6, NOON), now: NOON })
      return await ask(0)
    }
    expect(await give('a', 2, 2, 2)).toEqual([21, 16, 31])
    expect(await give('a', 2, 2, 2)).toEqual([21, 16, 31])
    // The largest totals count, in any order.
    expect(await give('a', 5, 1, 0)).toEqual([24, 16, 31])
    expect(await give('a', 1, 0, 3)).toEqual([24, 16, 32])
    expect(await give('a', 6, 6, 6)).toEqual([25, 20, 35])
    expect(await give('a', 6, 6, 6)).toEqual([25, 20, 35])
    expect(await give('b', 5, 5, 5)).toEqual([30, 25, 40])
  })
})

describeOnEngines('a refund with an id that is sent again after a deployment', fresh => {
  it('gives nothing back twice if there are rules before the earlier ones, or fewer', async () => {
    const engine = await fresh()
    const caller = newCaller()
    const remaining = async (rules: readonly Rule[], cost: number) => {
      const bounds = rules.map(rule => bound(rule, consumerStateKey(caller), cost, NOON / 1e3))
      const { verdicts } = await engine.evaluate(evaluationOf(bounds, NOON))
      return verdicts.map(verdict => verdict.remaining)
    }
    await remaining(RULES, 6)
    await remaining(RULES, 6)
    const give = (rules: readonly Rule[]) =>
      engine.refund({
        ...refundOf(
          caller,
          'a',
          rules.map(() => 6),
          6,
          NOON,
          rules,
        ),
        now: NOON,
      })
    await give(RULES)
    expect(await remaining(RULES, 0)).toEqual([24, 19, 34])
    const [window, log, bucket] = RULES as [Rule, Rule, Rule]
    const [added] = rulesOf({ ...WINDOW, name: 'added', limit: 10 }) as [Rule]
    await give([bucket])
    await give([added, window, log, bucket])
    expect(await remaining([added, window, log, bucket], 0)).toEqual([10, 24, 19, 34])
    await give([log, window])
    expect(await remaining(RULES, 0)).toEqual([24, 19, 34])
  })
})

describeInBothForms('a refund with an id, by a script', fresh => {
  const step = fc.record({
    isRefund: fc.boolean(),
    id: fc.constantFrom('a', 'b'),
    units: fc.tuple(fc.nat(6), fc.nat(6), fc.nat(6)),
    pauseSeconds: fc.nat(300),
  })

  it(`gives back as the model (SEED=${SEED})`, async () => {
    const engine = await fresh()
    await forEvery(listOf(step, 30), runsFor(engine, 30), async steps => {
      const model = new ModelEngine()
      const caller = newCaller()
      let now = NOON
      for (const { isRefund, id, units, pauseSeconds } of steps) {
        now += pauseSeconds * 1e6
        if (isRefund) {
          const refund = { ...refundOf(caller, id, units, 6, NOON), now }
          expect(await engine.refund(refund)).toEqual(await model.refund(refund))
        } else {
          const rules = RULES.map(rule => bound(rule, consumerStateKey(caller), 6, now / 1e3))
          const evaluation = evaluationOf(rules, now)
          expect(await engine.evaluate(evaluation)).toEqual(await model.evaluate(evaluation))
        }
      }
    })
  })
})
