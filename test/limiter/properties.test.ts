/** What is promised of every decision, whatever the rules and the traffic. */
import { expect, it } from 'vitest'
import type { BoundRule, Outcome } from '../../src/script/evaluation.ts'
import { consumerKey, consumerStateKey, credentialKey } from '../../src/store/keys.ts'
import { bound } from '../support/bound.ts'
import {
  aliveAt,
  configOf,
  credentialOf,
  describeOnEngines,
  describeOnRedisEngine,
  type Engine,
  rulesOf,
} from '../support/engines.ts'
import { randomFrom, SEED } from '../support/random.ts'
import { evaluationOf, NOON, randomCount, randomRules, randomStep } from '../support/traffic.ts'

const STATE = consumerStateKey('acme')

const counted = (rules: ReturnType<typeof rulesOf>, key = STATE): BoundRule[] =>
  rules.map(rule => bound(rule, key))

describeOnRedisEngine('a refused request', fresh => {
  it(`changes no byte in Redis, whatever else was asked (SEED=${SEED})`, async () => {
    const random = randomFrom(SEED)
    const redis = await fresh()
    let rules = randomRules(random)
    let now = NOON
    let refusals = 0
    for (let i = 0; refusals < 150 && i < 2000; i++) {
      if (random.chance(0.03)) rules = randomRules(random)
      now += randomStep(random)
      const before = await redis.snapshot()
      const { status } = await redis.evaluate(evaluationOf(randomCount(random, rules, now), now))
      if (status !== 'refused') continue
      refusals += 1
      const after = await redis.snapshot()
      const nowMs = Date.now()
      expect(aliveAt(nowMs, after), `request ${i}, SEED=${SEED}`).toEqual(aliveAt(nowMs, before))
    }
    expect(refusals).toBe(150)
  })

  it('changes nothing for a caller whose credential is unknown', async () => {
    const redis = await fresh()
    const rules = counted(rulesOf({ name: 'a', by: 'consumer', algorithm: 'gcra', limit: 5, period: '1s' }))
    const key = credentialKey('acme', 'ff')
    const outcome = await redis.evaluate({ ...evaluationOf(rules, NOON), subject: keyOf(key) })
    expect(outcome).toEqual({ status: 'unknown-credential', plan: '', at: NOON, verdicts: [] })
    expect(await redis.snapshot()).toEqual({})
  })

  it('writes nothing when it only peeks', async () => {
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
    const random = randomFrom(SEED)
    let tried = 0
    for (let set = 0; set < 20; set++) {
      const engine = await fresh()
      const rules = randomRules(random)
      let now = NOON + random.int(0, 3600e6)
      for (let i = 0; i < 25; i++) {
        now += random.int(0, 20_000)
        const evaluation = evaluationOf(randomCount(random, rules, now, 1), now)
        const wait = waitOf(await engine.evaluate(evaluation))
        if (wait === 0) continue
        if (wait < 0) {
          expect(waitOf(await engine.evaluate({ ...evaluation, now: now + 3600e6 }))).toBe(-1)
          continue
        }
        tried += 1
        const justBefore = await engine.evaluate({ ...evaluation, now: now + wait - 1 })
        expect(justBefore.status, `set ${set}, request ${i}, SEED=${SEED}`).toBe('refused')
        now += wait
        const then = await engine.evaluate({ ...evaluation, now })
        expect(then.status, `set ${set}, request ${i}, SEED=${SEED}`).toBe('admitted')
      }
    }
    expect(tried).toBeGreaterThan(50)
  })

  it(`of gcra never admits more than burst + rate × time, in any stretch of time (SEED=${SEED})`, async () => {
    const random = randomFrom(SEED)
    for (const [limit, burst] of [
      [7, 7],
      [3, 1],
      [10, 4],
    ] as const) {
      const engine = await fresh()
      const rules = rulesOf({ name: 'a', by: 'consumer', algorithm: 'gcra', limit, period: '1s', burst })
      const admitted = await greedily(engine, counted(rules), 300, () =>
        random.pick([0, 1, 70_000, 142_857, 333_333]),
      )
      for (const [i, from] of admitted.entries()) {
        for (const [j, to] of admitted.entries()) {
          if (j < i) continue
          // One more would need the time of j - i + 1 - burst units.
          expect(j - i + 1).toBeLessThanOrEqual(burst + Math.floor(((to - from) * limit) / 1e6))
        }
      }
    }
  })

  it(`of fixed-window never admits more than the limit in a window (SEED=${SEED})`, async () => {
    const random = randomFrom(SEED)
    const engine = await fresh()
    const rules = rulesOf({ name: 'a', by: 'consumer', algorithm: 'fixed-window', limit: 5, period: '100ms' })
    const admitted = await greedily(engine, counted(rules), 600, () => random.int(0, 20_000))
    const perWindow = new Map<number, number>()
    for (const at of admitted) {
      const window = Math.floor(at / 100e3)
      perWindow.set(window, (perWindow.get(window) ?? 0) + 1)
    }
    expect(Math.max(...perWindow.values())).toBe(5)
  })

  it('refuses all when one refuses, and still tells the truth about each', async () => {
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

  it('does not depend on the order of its rules', async () => {
    const random = randomFrom(SEED)
    const engine = await fresh()
    const rules = randomRules(random)
    let now = NOON
    const ofOthers = (asked: BoundRule[]) =>
      asked.map(({ rule, key, cost }) => bound(rule, key.replace('caller', 'other'), cost, now / 1e3))
    for (let i = 0; i < 100; i++) {
      now += randomStep(random)
      const asked = randomCount(random, rules, now)
      const one = await engine.evaluate(evaluationOf(asked, now))
      const other = await engine.evaluate(evaluationOf(ofOthers(asked).toReversed(), now))
      expect(other.verdicts.toReversed()).toEqual(one.verdicts)
    }
  })

  it('starts a rule afresh when its algorithm or period changes, and keeps its count when its limit does', async () => {
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

    // gcra keeps a time, which other numbers would misread: two configs that are live at once do not undo each other.
    const wide = rulesOf({ ...rule, algorithm: 'gcra', limit: 100 })
    const narrow = rulesOf({ ...rule, algorithm: 'gcra', limit: 10 })
    let admitted = 0
    for (let i = 0; i < 300; i++) {
      for (const rules of [wide, narrow]) {
        if ((await engine.evaluate(evaluationOf(counted(rules), NOON))).status === 'admitted') admitted += 1
      }
    }
    expect(admitted).toBe(110)
  })

  it("takes the plan from the credential, and applies that plan's rules only", async () => {
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
      const { plan: told, verdicts } = await engine.evaluate({ rules, plans, subject: keyOf(key), now: NOON })
      return [told, ...verdicts.map(({ rule }) => rule.name)]
    }
    expect(await ask('pro')).toEqual(['pro', 'all', 'pro'])
    expect(await ask('free')).toEqual(['free', 'all', 'free'])
    // A plan that is no longer in the config counts as the first one: never as unlimited.
    expect(await ask('gone')).toEqual(['free', 'all', 'free'])
  })
})

const keyOf = (credentialKey: string) =>
  ({ kind: 'key', consumerKey: consumerKey('acme'), credentialKey }) as const

function waitOf({ verdicts }: Outcome): number {
  const waits = verdicts.map(verdict => verdict.retryAfter)
  return waits.includes(-1) ? -1 : Math.max(...waits)
}

/** Asks again and again, waits exactly as told whenever refused or a little as `pause` says; when it was admitted. */
async function greedily(
  engine: Engine,
  rules: BoundRule[],
  requests: number,
  pause: () => number,
): Promise<number[]> {
  const admitted: number[] = []
  let now = NOON
  for (let i = 0; i < requests; i++) {
    const outcome = await engine.evaluate(evaluationOf(rules, now))
    if (outcome.status === 'admitted') admitted.push(now)
    now += outcome.status === 'refused' && i % 2 === 0 ? waitOf(outcome) : pause()
  }
  return admitted
}

function rulesOfPlans(...rules: Parameters<typeof rulesOf>): ReturnType<typeof rulesOf> {
  return configOf({ plans: ['free', 'pro'], rules }).rules
}
