/** Rules that are tried out before they are enforced: shadows, shares of callers, candidates. */
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import type { Rule } from '../../src/config/compile.ts'
import { toDecision } from '../../src/limiter/decision.ts'
import { consumerStateKey, UNKNOWN_CONSUMER } from '../../src/store/keys.ts'
import { bound } from '../support/bound.ts'
import {
  describeOnEngines,
  describeOnRedisEngine,
  rulesOf,
  runsFor,
  type TimedEvaluation,
} from '../support/engines.ts'
import { forEvery } from '../support/property.ts'
import { FC_PATH, SEED } from '../support/random.ts'
import {
  evaluationOf,
  NOON,
  namedRules,
  newCaller,
  played,
  ruleNumbers,
  traffic,
} from '../support/traffic.ts'
import { pauses } from '../support/waits.ts'

const KEY = consumerStateKey('acme')

const LIVE: RuleInput = { name: 'live', by: 'consumer', algorithm: 'fixed-window', limit: 3, period: '1h' }

describeOnEngines('a shadow', fresh => {
  it(`never changes the outcome, nor the verdicts of other rules (SEED=${SEED})`, async () => {
    const engine = await fresh()
    let wouldHaveDenied = 0
    // The clock is not set back. A record whose time is over is dropped when any rule writes, also a shadow, and a clock that is
    // then set back by a microsecond would still need it.
    const scenario = fc.record({ live: traffic(30, pauses), tried: ruleNumbers, shadowsFirst: fc.boolean() })
    await forEvery(scenario, runsFor(engine, 25), async ({ live, tried, shadowsFirst }) => {
      const shadows = namedRules(tried).map(asShadow)
      const alone = ({ rules, now }: TimedEvaluation) => {
        const ofAnother = rules.map(({ rule, key, cost }) =>
          bound(rule, key.replace('caller', 'alone'), cost, now / 1e3),
        )
        return engine.evaluate(evaluationOf(ofAnother, now))
      }
      const caller = newCaller()
      for await (const { evaluation, outcome: expected } of played(live, caller, alone)) {
        const { rules, now } = evaluation
        const beside = shadows.map((rule, i) => {
          const { key, cost } = rules[i % rules.length]!
          return bound(rule, key, cost, now / 1e3)
        })
        const both = shadowsFirst ? [...beside, ...rules] : [...rules, ...beside]
        const { status, verdicts } = await engine.evaluate(evaluationOf(both, now))
        const { enforce, shadow } = Object.groupBy(verdicts, ({ mode }) => mode)
        expect([status, enforce]).toEqual([expected.status, expected.verdicts])
        expect(shadow).toHaveLength(shadows.length)
        if (status === 'admitted' && shadow!.some(({ allowed }) => !allowed)) wouldHaveDenied += 1
      }
    })
    if (!FC_PATH) expect(wouldHaveDenied).toBeGreaterThan(runsFor(engine, 5))
  })

  it('has a state like an enforced rule, spends only for admitted requests, and reports what it would have done', async () => {
    const engine = await fresh()
    const rules = rulesOf(LIVE, { ...LIVE, name: 'tight', limit: 2, mode: 'shadow' })
    const ask = async () => {
      const outcome = await engine.evaluate(
        evaluationOf(
          rules.map(rule => bound(rule, KEY)),
          NOON,
        ),
      )
      return [outcome.status, ...outcome.verdicts.map(({ allowed, remaining }) => [allowed, remaining])]
    }
    expect(await ask()).toEqual(['admitted', [true, 2], [true, 1]])
    expect(await ask()).toEqual(['admitted', [true, 1], [true, 0]])
    // The shadow would have refused, and spends nothing.
    expect(await ask()).toEqual(['admitted', [true, 0], [false, 0]])
    expect(await ask()).toEqual(['refused', [false, 0], [false, 0]])
  })

  it('does not delay requests: the delay of a shadow queue is only reported', async () => {
    const engine = await fresh()
    const rules = rulesOf({
      ...{ name: 'queue', by: 'consumer', algorithm: 'leaky-bucket', limit: 1, period: '1s' },
      mode: 'shadow',
    } as RuleInput)
    const ask = async () =>
      await engine.evaluate(
        evaluationOf(
          rules.map(rule => bound(rule, KEY)),
          NOON,
        ),
      )
    await ask()
    const outcome = await ask()
    expect(outcome.verdicts[0]!.delay).toBe(1e6)
    expect(toDecision(outcome)).toMatchObject({ kind: 'allowed', delay: 0 })
  })
})

describeOnRedisEngine('a refused request', fresh => {
  it('spends nothing under shadows either', async () => {
    const redis = await fresh()
    const [live, shadow] = rulesOf(
      { ...LIVE, limit: 1 },
      { ...LIVE, name: 'shadow', limit: 9, mode: 'shadow' },
    )
    const evaluation = evaluationOf([bound(live!, KEY), bound(shadow!, KEY)], NOON)
    await redis.evaluate(evaluation)
    const before = await redis.snapshot()
    expect((await redis.evaluate(evaluation)).status).toBe('refused')
    expect(await redis.snapshot()).toEqual(before)
  })
})

describeOnEngines('a candidate', fresh => {
  it('is a shadow that reports whether it agrees with the rule it would replace', async () => {
    const engine = await fresh()
    const rules = rulesOf(LIVE, {
      ...{ name: 'log', by: 'consumer', algorithm: 'sliding-log', limit: 2, period: '1h' },
      candidateFor: 'live',
    } as RuleInput)
    const agreements: (boolean | undefined)[][] = []
    for (let i = 0; i < 4; i++) {
      const outcome = await engine.evaluate(
        evaluationOf(
          rules.map(rule => bound(rule, KEY)),
          NOON,
        ),
      )
      agreements.push(outcome.verdicts.map(({ agrees }) => agrees))
    }
    // Both rules admit twice. Then only the log would have refused. Then both refuse.
    expect(agreements).toEqual([
      [undefined, true],
      [undefined, true],
      [undefined, false],
      [undefined, true],
    ])
    // Without a verdict of the replaced rule there is nothing to compare.
    const alone = await engine.evaluate(evaluationOf([bound(rules[1]!, KEY)], NOON))
    expect(alone.verdicts[0]).not.toHaveProperty('agrees')
  })
})

/** The shadow has its own name and tag, and so its own state. */
const asShadow = (rule: Rule): Rule => ({
  ...rule,
  name: `tried-${rule.name}`,
  mode: 'shadow',
  tag: `_${rule.tag.slice(1)}`,
})

it('a share of callers is stable, keeps its callers when it grows, and differs between rules', () => {
  const keys = Array.from({ length: 4000 }, (_, i) => consumerStateKey(`consumer-${i}`))
  const within = (enforce: number, name = 'a') => {
    const [rule] = rulesOf({ ...LIVE, name, enforce })
    return new Set(keys.filter(key => bound(rule!, key).mode === 'enforce'))
  }
  expect(within(0).size).toBe(0)
  expect(within(1).size).toBe(4000)
  for (const share of [0.01, 0.1, 0.5, 0.9]) {
    // The tolerance is four standard deviations.
    expect(Math.abs(within(share).size - 4000 * share)).toBeLessThan(
      4 * Math.sqrt(4000 * share * (1 - share)),
    )
  }
  expect(within(0.1)).toEqual(within(0.1))
  expect(within(0.1).isSubsetOf(within(0.2))).toBe(true)
  const both = within(0.1).intersection(within(0.1, 'b'))
  expect(both.size).toBeLessThan(100)
})

it('a share of callers excludes an opaque key whose consumer is not known yet', () => {
  const [most, all] = rulesOf({ ...LIVE, enforce: 0.999 }, { ...LIVE, name: 'all' })
  const modes = [most!, all!].map(rule => bound(rule, consumerStateKey(UNKNOWN_CONSUMER)).mode)
  expect(modes).toEqual(['shadow', 'enforce'])
})
