/** Properties of every decision, whatever the rules and the traffic. */
import { expect, it } from 'vitest'
import type { BoundRule, Outcome, Verdict } from '../../src/script/evaluation.ts'
import { consumerKey, consumerStateKey, credentialKey } from '../../src/store/keys.ts'
import { bound } from '../support/bound.ts'
import {
  aliveAt,
  configOf,
  credentialOf,
  describeOnEngines,
  describeOnRedisEngine,
  ModelEngine,
  rulesOf,
  runsFor,
} from '../support/engines.ts'
import { forEvery } from '../support/property.ts'
import { FC_PATH, SEED } from '../support/random.ts'
import { boundRules, evaluationOf, NOON, namedRules, newCaller, played, traffic } from '../support/traffic.ts'
import { after, pauses } from '../support/waits.ts'

const STATE = consumerStateKey('acme')

const counted = (rules: ReturnType<typeof rulesOf>, key = STATE): BoundRule[] =>
  rules.map(rule => bound(rule, key))

describeOnRedisEngine('a request that spends nothing', fresh => {
  it(`changes no byte in Redis if it is refused, whatever the traffic (SEED=${SEED})`, async () => {
    const redis = await fresh()
    let refusals = 0
    await forEvery(traffic(30), runsFor(redis, 30), async scenario => {
      const caller = newCaller()
      const contents = () => redis.snapshot(`*{c:${caller}-*`)
      let before = await contents()
      for await (const { outcome } of played(scenario, caller, evaluation => redis.evaluate(evaluation))) {
        const now = await contents()
        if (outcome.status === 'refused') {
          refusals += 1
          const nowMs = Date.now()
          expect(aliveAt(nowMs, now)).toEqual(aliveAt(nowMs, before))
        }
        before = now
      }
    })
    if (!FC_PATH) expect(refusals).toBeGreaterThan(runsFor(redis, 30))
  })

  it('writes nothing for a caller with an unknown credential', async () => {
    const redis = await fresh()
    const rules = counted(rulesOf({ name: 'a', by: 'consumer', algorithm: 'gcra', limit: 5, period: '1s' }))
    const key = credentialKey('acme', 'ff')
    const outcome = await redis.evaluate({ ...evaluationOf(rules, NOON), subject: keyOf(key) })
    expect(outcome).toEqual({ status: 'unknown-credential', plan: '', at: NOON, verdicts: [] })
    expect(await redis.snapshot()).toEqual({})
  })

  it('writes nothing if the cost is 0', async () => {
    const redis = await fresh()
    const rules = rulesOf({
      name: 'a',
      by: 'consumer',
      algorithm: 'fixed-window',
      limit: 5,
      period: '1h',
      cost: 0,
    })
    expect((await redis.evaluate(evaluationOf(counted(rules), NOON))).status).toBe('admitted')
    expect(await redis.snapshot()).toEqual({})
  })
})

describeOnEngines('a decision', fresh => {
  it(`admits after retry_after, and not a microsecond before (SEED=${SEED})`, async () => {
    const engine = await fresh()
    let waits = 0
    await forEvery(
      traffic(25, pauses),
      engine instanceof ModelEngine ? 80 : runsFor(engine, 30),
      async ({ numbers, steps }) => {
        const rules = namedRules(numbers)
        const caller = newCaller()
        let now = NOON
        let verdicts: readonly Verdict[] = []
        for (const { pause, counts } of steps) {
          now = after(pause, now, rules, verdicts)
          const evaluation = evaluationOf(boundRules(rules, counts, caller, now), now)
          const outcome = await engine.evaluate(evaluation)
          verdicts = outcome.verdicts
          const wait = waitOf(outcome)
          if (wait === 0) continue
          if (wait < 0) {
            expect(waitOf(await engine.evaluate({ ...evaluation, now: now + 3600e6 }))).toBe(-1)
            continue
          }
          waits += 1
          expect((await engine.evaluate({ ...evaluation, now: now + wait - 1 })).status).toBe('refused')
          now += wait
          expect((await engine.evaluate({ ...evaluation, now })).status).toBe('admitted')
        }
      },
    )
    if (!FC_PATH) expect(waits).toBeGreaterThan(runsFor(engine, 15))
  })

  it('is refused if one rule refuses, and reports the true state of each rule', async () => {
    const engine = await fresh()
    const rules = rulesOf(
      { name: 'wide', by: 'consumer', algorithm: 'gcra', limit: 100, period: '1s' },
      { name: 'narrow', by: 'consumer', algorithm: 'fixed-window', limit: 1, period: '1m' },
    )
    const first = await engine.evaluate(evaluationOf(counted(rules), NOON))
    expect(first.verdicts.map(({ allowed, remaining }) => [allowed, remaining])).toEqual([
      [true, 99],
      [true, 0],
    ])
    const second = await engine.evaluate(evaluationOf(counted(rules), NOON))
    expect(second.status).toBe('refused')
    expect(second.verdicts.map(({ allowed, remaining }) => [allowed, remaining])).toEqual([
      [true, 99],
      [false, 0],
    ])
  })

  it(`does not depend on the order of its rules (SEED=${SEED})`, async () => {
    const engine = await fresh()
    await forEvery(traffic(30), runsFor(engine, 8), async scenario => {
      for await (const { outcome, evaluation } of played(scenario, newCaller(), evaluation =>
        engine.evaluate(evaluation),
      )) {
        const ofAnother = evaluation.rules.map(({ rule, key, cost }) =>
          bound(rule, key.replace('caller', 'other'), cost, evaluation.now / 1e3),
        )
        const reversed = await engine.evaluate({ ...evaluation, rules: ofAnother.toReversed() })
        expect(reversed.verdicts.toReversed()).toEqual(outcome.verdicts)
      }
    })
  })

  it('starts a rule with a whole budget if its algorithm or period has changed, and keeps its counts if its limit has', async () => {
    const engine = await fresh()
    const rule = { name: 'a', by: 'consumer', algorithm: 'fixed-window', limit: 2, period: '1h' } as const
    const remaining = async (changes: object) => {
      const { verdicts } = await engine.evaluate(
        evaluationOf(counted(rulesOf({ ...rule, ...changes, cost: 0 })), NOON),
      )
      return verdicts[0]!.remaining
    }
    await engine.evaluate(evaluationOf(counted(rulesOf(rule)), NOON))
    expect(await remaining({})).toBe(1)
    expect(await remaining({ limit: 10 })).toBe(9)
    expect(await remaining({ limit: 1 })).toBe(0)
    expect(await remaining({ period: '1d' })).toBe(2)
    expect(await remaining({ algorithm: 'gcra' })).toBe(2)
    expect(await remaining({ name: 'b' })).toBe(2)

    // The state of gcra is a time, which rules with other numbers would misread, so it is stored under the numbers of the rule.
    // Two configs in use at the same time then do not undo each other's counts.
    const wide = rulesOf({ ...rule, algorithm: 'gcra', limit: 100 })
    const narrow = rulesOf({ ...rule, algorithm: 'gcra', limit: 10 })
    let admitted = 0
    for (let i = 0; i < 120; i++) {
      for (const rules of [wide, narrow]) {
        if ((await engine.evaluate(evaluationOf(counted(rules), NOON))).status === 'admitted') admitted += 1
      }
    }
    expect(admitted).toBe(110)
  })

  it('uses the plan of the credential, and applies only the rules of this plan', async () => {
    const engine = await fresh()
    const rules = counted(
      rulesOfPlans(
        { name: 'all', by: 'consumer', algorithm: 'gcra', limit: 9, period: '1s' },
        {
          name: 'free',
          by: 'consumer',
          algorithm: 'gcra',
          limit: 1,
          period: '1s',
          match: { plans: ['free'] },
        },
        { name: 'pro', by: 'consumer', algorithm: 'gcra', limit: 5, period: '1s', match: { plans: ['pro'] } },
      ),
    )
    const plans = ['free', 'pro']
    const ask = async (plan: string) => {
      const key = credentialKey('acme', plan)
      await engine.setRecord(key, credentialOf(plan))
      const { plan: applied, verdicts } = await engine.evaluate({
        rules,
        plans,
        subject: keyOf(key),
        now: NOON,
      })
      return [applied, ...verdicts.map(({ rule }) => rule.name)]
    }
    expect(await ask('pro')).toEqual(['pro', 'all', 'pro'])
    expect(await ask('free')).toEqual(['free', 'all', 'free'])
    // A plan that is no longer in the config is replaced by the first one, so the caller is never unlimited.
    expect(await ask('gone')).toEqual(['free', 'all', 'free'])
  })
})

const keyOf = (credentialKey: string) =>
  ({ kind: 'key', consumerKey: consumerKey('acme'), credentialKey }) as const

function waitOf({ verdicts }: Outcome): number {
  const waits = verdicts.map(verdict => verdict.retryAfter)
  return waits.includes(-1) ? -1 : Math.max(...waits)
}

function rulesOfPlans(...rules: Parameters<typeof rulesOf>): ReturnType<typeof rulesOf> {
  return configOf({ plans: ['free', 'pro'], rules }).rules
}
