/** Many concurrent decisions over HTTP, with the real client and the bridge: no unit is lost or spent twice. */

import { afterAll, beforeAll, expect, it } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import type { Rule } from '../../src/config/compile.ts'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import type { BoundRule, Evaluation, Outcome } from '../../src/script/evaluation.ts'
import { ScriptModel } from '../../src/script/model.ts'
import { addressStateKey, consumerStateKey } from '../../src/store/keys.ts'
import type { Store } from '../../src/store/store.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { sized } from '../selection.ts'
import { bound } from '../support/bound.ts'
import { compiled, rulesOf } from '../support/engines.ts'
import { evaluate } from '../support/evaluate.ts'
import { randomFrom, SEED } from '../support/random.ts'
import { describeOnRedis, type TestRedis } from '../support/redis.ts'

const TOKEN = 'a token for tests'

/** Long, because hundreds of concurrent calls are slow on a busy machine. Other tests are about the deadline. */
const PATIENT_MS = 60_000

/** One rule of each algorithm except concurrency, tight enough to refuse. The two buckets regain units during the run. */
const RULES: RuleInput[] = [
  { name: 'a', by: 'consumer', algorithm: 'fixed-window', limit: 60, period: '300d' },
  { name: 'b', by: 'consumer', algorithm: 'token-bucket', limit: 40, period: '10s', burst: 50 },
  { name: 'c', by: 'consumer', algorithm: 'leaky-bucket', limit: 100, period: '1s', queue: 50 },
  { name: 'd', by: 'address', algorithm: 'sliding-window', limit: 80, period: '1h' },
  { name: 'e', by: 'address', algorithm: 'sliding-log', limit: 70, period: '1h' },
  { name: 'f', by: 'address', algorithm: 'gcra', limit: 75, period: '1h' },
]

describeOnRedis('300 decisions at once', (start, kind) => {
  let redis: TestRedis
  let bridge: Bridge
  let store: Store
  beforeAll(async () => {
    redis = await start()
    bridge = await startBridge({ redisUrl: redis.url, token: TOKEN, port: 0, deadlineMs: PATIENT_MS })
    store = upstashStore({ url: bridge.url, token: TOKEN, deadlineMs: PATIENT_MS, keyLocking: true })
  })
  afterAll(async () => {
    await bridge?.close()
    await redis?.close()
  })

  const rules = rulesOf(...RULES)
  const countFor = (consumer: string, address: string, cost: number): BoundRule[] =>
    rules.map((rule, i) => bound(rule, i < 3 ? consumerStateKey(consumer) : addressStateKey(address), cost))

  const ask = async (evaluation: Evaluation): Promise<Outcome> => {
    const outcome = await evaluate(store, evaluation)
    if (outcome.status === 'degraded') throw new Error(outcome.detail)
    return outcome
  }

  it('on one identity admit exactly the limit of its rule', async () => {
    const [narrow] = rules
    const evaluation = compiled({ rules: [bound(narrow!, consumerStateKey('one'))], plans: [] })
    const outcomes = await Promise.all(Array.from({ length: 300 }, () => ask(evaluation)))
    expect(outcomes.filter(({ status }) => status === 'admitted')).toHaveLength(60)
    // Each value of `remaining` was returned to exactly one caller.
    const left = outcomes
      .filter(({ status }) => status === 'admitted')
      .map(({ verdicts }) => verdicts[0]!.remaining)
    expect(left.sort((a, b) => b - a)).toEqual(Array.from({ length: 60 }, (_, i) => 59 - i))
  })

  it(`on overlapping identities match the model, in the order of the store (SEED=${SEED})`, async () => {
    // A plain seed without shrinking, because a race between requests cannot be repeated.
    const random = randomFrom(SEED)
    const evaluations = Array.from({ length: 300 }, () => ({
      rules: countFor(`c${random.int(1, 3)}`, `198.51.100.${random.int(1, 3)}`, random.pick([1, 1, 2, 3])),
      plans: [],
    }))
    const outcomes = await Promise.all(
      evaluations.map(async evaluation => ({ evaluation, outcome: await ask(compiled(evaluation)) })),
    )

    // The store decides one request at a time, so its clock gives their order.
    const inOrder = outcomes.sort((a, b) => a.outcome.at - b.outcome.at)
    const times = new Set(inOrder.map(({ outcome }) => outcome.at))
    const model = new ScriptModel()
    if (times.size === inOrder.length) {
      for (const { evaluation, outcome } of inOrder) {
        expect(outcome).toEqual(model.decide({ ...evaluation, ruleSet: evaluation, now: outcome.at }))
      }
    } else {
      // With a coarse clock, two requests can have the same time. Only the embedded Redis has one.
      expect(kind).toBe('embedded')
    }
    const statuses = inOrder.map(({ outcome }) => outcome.status)
    expect(statuses.filter(status => status === 'admitted').length).toBeGreaterThan(60)
    expect(statuses.filter(status => status === 'refused').length).toBeGreaterThan(60)

    // In any order, the units left are the limit minus the units of admitted requests.
    const spent = new Map<string, number>()
    for (const { evaluation, outcome } of inOrder) {
      for (const { key, rule, cost } of outcome.status === 'admitted' ? evaluation.rules : []) {
        spent.set(`${rule.name} ${key}`, (spent.get(`${rule.name} ${key}`) ?? 0) + cost)
      }
    }
    for (const name of ['1', '2', '3']) {
      const { verdicts } = await ask(
        compiled({ rules: countFor(`c${name}`, `198.51.100.${name}`, 0), plans: [] }),
      )
      const left = Object.fromEntries(verdicts.map(({ rule, remaining }) => [rule.name, remaining]))
      expect(left.a).toBe(60 - (spent.get(`a ${consumerStateKey(`c${name}`)}`) ?? 0))
      expect(left.d).toBe(80 - (spent.get(`d ${addressStateKey(`198.51.100.${name}`)}`) ?? 0))
      expect(left.e).toBe(70 - (spent.get(`e ${addressStateKey(`198.51.100.${name}`)}`) ?? 0))
    }
  })

  it.each([
    ['their common address refuses', 1, 70],
    ['each consumer refuses', 15, 40],
  ] as const)(
    'over several slots never exceed a limit, and units that were given back are available again: %s',
    async (name, cost, most) => {
      const options = { url: bridge.url, token: TOKEN, deadlineMs: PATIENT_MS, keyLocking: true }
      const slots = upstashStore({ ...options, cluster: true })
      const [a, , , , e] = rules
      const address = addressStateKey(name.replaceAll(' ', '-'))
      const consumers = Array.from({ length: 10 }, (_, i) => consumerStateKey(`${cost}-${i}`))
      const left = async (rule: Rule, key: string) =>
        (await ask(compiled({ rules: [bound(rule, key, 0)], plans: [] }))).verdicts[0]!.remaining

      const admitted = { all: 0, by: consumers.map(() => 0) }
      const attempt = async (i: number) => {
        const rules = [bound(a!, consumers[i]!, cost), bound(e!, address)]
        const outcome = await evaluate(slots, compiled({ rules, plans: [] }))
        if (outcome.status === 'degraded') throw new Error(outcome.detail)
        if (outcome.status !== 'admitted') return
        admitted.all += 1
        admitted.by[i]! += 1
      }
      // Each attempt takes two or three HTTP calls, and the embedded Redis is slow.
      const attempts = kind === 'embedded' ? 100 : sized(200, 100)
      await Promise.all(Array.from({ length: attempts }, (_, i) => attempt(i % 10)))

      expect(admitted.all).toBeLessThanOrEqual(most)
      // Some requests were refused because of units that were given back later. They are admitted now.
      for (let i = 0; i < 10; i++) for (let again = 0; again < 8; again++) await attempt(i)
      expect(admitted.all).toBe(most)
      expect(await left(e!, address)).toBe(70 - most)
      for (const [i, key] of consumers.entries())
        expect(await left(a!, key)).toBe(60 - cost * admitted.by[i]!)
    },
  )
})
