/** The local limiter: the requests that it admits, its memory, and the units that it hands over to the store afterwards. */

import { describe, expect, it } from 'vitest'
import type { LimitRuleInput } from '../../../src/config/check/schema.ts'
import { type ErrorCode, GatewayError } from '../../../src/errors.ts'
import { createLocalLimiter, type LocalLimiter } from '../../../src/limiter/outage/local.ts'
import { prepareDecide, runCalls } from '../../../src/limiter/prepared-call.ts'
import { gatewayRuleSet } from '../../../src/script/compiled.ts'
import type { DecideVerb } from '../../../src/script/decide.ts'
import type { BoundRule, Outcome } from '../../../src/script/evaluation.ts'
import { consumerKey, consumerStateKey } from '../../../src/store/keys.ts'
import type { Store } from '../../../src/store/store.ts'
import { withRiders } from '../../../src/trips/carry.ts'
import { bound } from '../../support/bound.ts'
import { compiled, configOf, describeOnRedisEngine } from '../../support/engines.ts'
import { counted, OTHER_KEY, RULES_FOR_TEN } from '../../support/local-rules.ts'
import { ruleSetOf } from '../../support/rule-set.ts'
import { storeOf } from '../../support/stores.ts'
import { NOON } from '../../support/traffic.ts'
import { sendAlone } from '../../support/trips.ts'

const decide = (local: LocalLimiter, rules: readonly BoundRule[], verb?: DecideVerb) =>
  local.decide(ruleSetOf(rules), rules, verb)

/** Decides by one rule for many identities. The rule and its rule set are compiled only once. */
function decideOf(local: LocalLimiter, input: LimitRuleInput) {
  const first = counted(input, 1)
  const ruleSet = ruleSetOf([first])
  return (key: string) => local.decide(ruleSet, [{ ...first, key }])
}

/** Whether units are handed over as soon as the store decides again. */
function isHandOverDue(local: LocalLimiter): boolean {
  local.noteReport([], { status: 'admitted', plan: '', at: 1, verdicts: [] })
  return local.handOvers.aloneAfterMs!() === 0
}
const withHandOvers = ({ handOvers }: LocalLimiter, store: Store) => withRiders(store, [handOvers])

/** A store whose requests fail until `mend` is called. */
function failingUntilMended(working: Store, error: GatewayError): Store & { mend(): void } {
  let isMended = false
  return {
    ...working,
    run: async calls => {
      if (!isMended) throw error
      return await working.run(calls)
    },
    mend: () => {
      isMended = true
    },
  }
}

describeOnRedisEngine('units that were spent in the isolate', fresh => {
  it.each(RULES_FOR_TEN)('are handed over to the store: $name', async rule => {
    const store = storeOf(await fresh())
    const local = createLocalLimiter(1, Date.now)
    for (const cost of [1, 3]) expect(decide(local, [counted(rule, cost)]).admitted).toBe(true)
    expect(isHandOverDue(local)).toBe(true)
    await sendAlone(local.handOvers, store)
    expect(isHandOverDue(local)).toBe(false)
    const [now] = await runCalls(store, [prepareDecide(compiled({ rules: [counted(rule, 0)], plans: [] }))])
    // A leaky bucket has room for the request that departs, and for ten more.
    const all = rule.algorithm === 'leaky-bucket' ? 11 : 10
    expect(now).toMatchObject({ verdicts: [{ remaining: all - 4 }] })
  })

  it('are handed over only if they have not refilled', async () => {
    const store = storeOf(await fresh())
    let time = Date.now()
    const local = createLocalLimiter(1, () => time)
    const rule: LimitRuleInput = { name: 'minute', algorithm: 'gcra', limit: 60, period: '1m' }
    expect(decide(local, [counted(rule, 60)]).admitted).toBe(true)
    time += 45_000
    await sendAlone(local.handOvers, store)
    const [now] = await runCalls(store, [prepareDecide(compiled({ rules: [counted(rule, 0)], plans: [] }))])
    const { remaining } = (now as Outcome).verdicts[0]!
    expect(remaining).toBeGreaterThanOrEqual(45)
    expect(remaining).toBeLessThan(50)
  })

  it('are handed over with the numbers of their plan', async () => {
    const store = storeOf(await fresh())
    const local = createLocalLimiter(1, Date.now)
    const onPlan = (limit: number, cost: number, key: string) =>
      counted({ name: 'plan', algorithm: 'fixed-window', limit, period: '7d' }, cost, key)
    decide(local, [onPlan(100, 80, 'sluice:{c:pro}:state')])
    decide(local, [onPlan(10, 1, 'sluice:{c:free}:state')])
    await sendAlone(local.handOvers, store)
    const questions = [onPlan(100, 0, 'sluice:{c:pro}:state'), onPlan(10, 0, 'sluice:{c:free}:state')]
    const answers = await runCalls(
      store,
      questions.map(rule => prepareDecide(compiled({ rules: [rule], plans: [] }))),
    )
    expect(answers.map(answer => (answer as Outcome).verdicts[0]!.remaining)).toEqual([20, 9])
  })

  it('are handed over to the state of their plan, if the plan has its own', async () => {
    const redis = await fresh()
    const store = storeOf(redis)
    const local = createLocalLimiter(1, Date.now)
    const config = configOf({
      plans: ['free', 'pro'],
      rules: [
        {
          ...{ name: 'r', by: 'consumer', algorithm: 'gcra', limit: 10, period: '7d' },
          plans: { pro: { limit: 100 } },
        },
      ],
    })
    const ruleSet = gatewayRuleSet(config)
    const pro = config.rules.find(({ match }) => match.plans?.includes('pro'))!
    const key = consumerStateKey('acme')
    expect(local.decide(ruleSet, [bound(pro, key, 30)]).admitted).toBe(true)
    await sendAlone(local.handOvers, store)
    const rules = config.rules.map(rule => bound(rule, key, 0))
    const subject = { kind: 'token', consumerKey: consumerKey('acme'), plan: 'pro' } as const
    const [now] = await runCalls(store, [prepareDecide({ ruleSet, rules, subject })])
    expect((now as Outcome).verdicts.map(({ remaining }) => remaining)).toEqual([70])
  })

  it.each([
    [1, 9],
    [5, 8],
    [5, 5],
    [7, 6],
    [10, 1],
    [6, 4],
  ])(
    'are handed over, but no more than the store has left: %i, after %i of 10 were spent',
    async (units, spent) => {
      const store = storeOf(await fresh())
      const rule = RULES_FOR_TEN[3]!
      await runCalls(store, [prepareDecide(compiled({ rules: [counted(rule, spent)], plans: [] }))])
      const local = createLocalLimiter(1, Date.now)
      decide(local, [counted(rule, units)])
      await sendAlone(local.handOvers, store)
      const [now] = await runCalls(store, [prepareDecide(compiled({ rules: [counted(rule, 0)], plans: [] }))])
      expect(now).toMatchObject({ verdicts: [{ remaining: Math.max(0, 10 - spent - units) }] })
    },
  )

  it('are handed over with the next request of their identity, before its decision', async () => {
    const store = storeOf(await fresh())
    const local = createLocalLimiter(1, Date.now)
    const rule = RULES_FOR_TEN[3]!
    decide(local, [counted(rule, 4)])
    decide(local, [counted(rule, 1, OTHER_KEY)])
    const one = prepareDecide(compiled({ rules: [counted(rule, 1)], plans: [] }))
    const outcomes = await runCalls(withHandOvers(local, store), [one])
    expect(outcomes).toMatchObject([{ status: 'admitted', verdicts: [{ remaining: 5 }] }])
    // Four units are handed over as two, one and one.
    expect(store.requests).toEqual([4])
    // The units of the other identity are handed over in the background.
    expect(isHandOverDue(local)).toBe(true)
    await sendAlone(local.handOvers, store)
    expect(isHandOverDue(local)).toBe(false)
    expect(store.requests).toEqual([4, 1])
  })

  it('are not handed over with a request if the request before it has failed', async () => {
    const working = storeOf(await fresh())
    const local = createLocalLimiter(1, Date.now)
    const failing = failingUntilMended(working, new GatewayError('ERR_STORE_UNREACHABLE', 'gone'))
    const store = withHandOvers(local, failing)
    const rule = RULES_FOR_TEN[3]!
    const one = () => runCalls(store, [prepareDecide(compiled({ rules: [counted(rule, 1)], plans: [] }))])
    await expect(one()).rejects.toThrow('gone')
    decide(local, [counted(rule, 4)])
    await expect(one()).rejects.toThrow('gone')
    failing.mend()
    expect(await one()).toMatchObject([{ verdicts: [{ remaining: 9 }] }])
    expect(await one()).toMatchObject([{ verdicts: [{ remaining: 4 }] }])
    expect(working.requests).toEqual([1, 4])
  })

  it('are handed over with the next request even if a slow one fails after the store has answered a newer one', async () => {
    const working = storeOf(await fresh())
    const local = createLocalLimiter(1, Date.now)
    const late = Promise.withResolvers<never>()
    let isLate = true
    const store = withHandOvers(local, {
      ...working,
      run: async calls => (isLate ? await late.promise : await working.run(calls)),
    })
    const rule = RULES_FOR_TEN[3]!
    const one = () => runCalls(store, [prepareDecide(compiled({ rules: [counted(rule, 1)], plans: [] }))])
    const first = one()
    isLate = false
    await one()
    late.reject(new GatewayError('ERR_STORE_TIMEOUT', 'late'))
    await expect(first).rejects.toThrow('late')
    decide(local, [counted(rule, 4)])
    expect(await one()).toMatchObject([{ verdicts: [{ remaining: 4 }] }])
  })

  it.each([
    ['ERR_STORE_REFUSED', 'again', 5],
    ['ERR_STORE_TIMEOUT', 'never again', 9],
    // Given up by a busy isolate after it was sent, and before.
    ['ERR_STORE_OVERLOAD', 'never again', 9],
    ['ERR_STORE_OVERLOAD', 'again', 5, 'not-sent'],
  ] as const)(
    'that were in a request that failed with %s are handed over %s',
    async (code, _, left, fate?) => {
      const working = storeOf(await fresh())
      const local = createLocalLimiter(1, Date.now)
      const failing = failingUntilMended(working, new GatewayError(code, 'no', fate && { fate }))
      const store = withHandOvers(local, failing)
      const rule = RULES_FOR_TEN[3]!
      const prepared = prepareDecide(compiled({ rules: [counted(rule, 1)], plans: [] }))
      decide(local, [counted(rule, 4)])
      await expect(runCalls(store, [prepared])).rejects.toThrow('no')
      failing.mend()
      await sendAlone(local.handOvers, working)
      expect(await runCalls(store, [prepared])).toMatchObject([{ verdicts: [{ remaining: left }] }])
    },
  )

  it('are handed over, but no more than the store has left, before the decision of the request that carries them', async () => {
    const store = storeOf(await fresh())
    const rule = RULES_FOR_TEN[3]!
    await runCalls(store, [prepareDecide(compiled({ rules: [counted(rule, 8)], plans: [] }))])
    const local = createLocalLimiter(1, Date.now)
    decide(local, [counted(rule, 5)])
    const one = prepareDecide(compiled({ rules: [counted(rule, 1)], plans: [] }))
    expect(await runCalls(withHandOvers(local, store), [one])).toMatchObject([{ status: 'refused' }])
    expect(isHandOverDue(local)).toBe(false)
  })

  it('are handed over for twenty identities at a time', async () => {
    const store = storeOf(await fresh(), { isCluster: true })
    const local = createLocalLimiter(1, Date.now)
    for (let i = 0; i < 50; i++)
      decide(local, [counted(RULES_FOR_TEN[0]!, 1, `sluice:{ip:192.0.2.${i}}:state`)])
    while (isHandOverDue(local)) await sendAlone(local.handOvers, store)
    expect(store.requests).toEqual([20, 20, 10])
  })
})

describe('the local limiter', () => {
  /** A store that fails with this code, and records the number of calls in each request. */
  const failing = (code: ErrorCode) => {
    const callCounts: number[] = []
    const run = async (calls: readonly unknown[]) => {
      callCounts.push(calls.length)
      throw new GatewayError(code, 'no')
    }
    return { callCounts, run, ping: async () => {} }
  }

  it('never hands over units again if the store may have received them, and keeps counting them', async () => {
    const local = createLocalLimiter(0.5, Date.now)
    const few: LimitRuleInput = { name: 'few', algorithm: 'fixed-window', limit: 2, period: '7d' }
    expect(decide(local, [counted(few, 1)]).admitted).toBe(true)
    const store = failing('ERR_STORE_TIMEOUT')
    await expect(sendAlone(local.handOvers, store)).rejects.toThrow('no')
    expect(decide(local, [counted(few, 1)]).admitted).toBe(false)
    await sendAlone(local.handOvers, store)
    expect(store.callCounts).toEqual([1])
    expect(isHandOverDue(local)).toBe(false)
  })

  it('keeps counting during a hand-over, and runs one hand-over at a time', async () => {
    const local = createLocalLimiter(0.5, Date.now)
    const few: LimitRuleInput = { name: 'few', algorithm: 'fixed-window', limit: 4, period: '7d' }
    decide(local, [counted(few, 1)])
    const answers = Promise.withResolvers<never>()
    const telling = sendAlone(local.handOvers, { run: () => answers.promise, ping: async () => {} })
    expect(isHandOverDue(local)).toBe(false)
    expect([1, 1, 1].map(() => decide(local, [counted(few, 1)]).admitted)).toEqual([true, false, false])
    answers.reject(new GatewayError('ERR_STORE_REFUSED', 'READONLY'))
    await expect(telling).rejects.toThrow('READONLY')
    expect(decide(local, [counted(few, 1)]).admitted).toBe(false)
    expect(isHandOverDue(local)).toBe(true)
  })

  it('keeps units that the store has refused, so that a read-only Redis does not give callers a new share', async () => {
    const local = createLocalLimiter(0.5, Date.now)
    const few: LimitRuleInput = { name: 'few', algorithm: 'fixed-window', limit: 2, period: '7d' }
    expect(decide(local, [counted(few, 1)]).admitted).toBe(true)
    await expect(sendAlone(local.handOvers, failing('ERR_STORE_REFUSED'))).rejects.toThrow('no')
    expect(decide(local, [counted(few, 1)]).admitted).toBe(false)
    expect(isHandOverDue(local)).toBe(true)
  })

  it('keeps a bounded number of identities, and drops the oldest', async () => {
    const local = createLocalLimiter(1, Date.now)
    const few: LimitRuleInput = { name: 'one', algorithm: 'fixed-window', limit: 1, period: '7d' }
    const key = (i: number) => `sluice:{ip:${i}}:state`
    const decideAt = decideOf(local, few)
    let admitted = 0
    for (let i = 0; i < 30_000; i++) if (decideAt(key(i)).admitted) admitted += 1
    expect(admitted).toBe(30_000)
    expect(decideAt(key(29_999)).admitted).toBe(false)
    expect(decideAt(key(0)).admitted).toBe(true)
  })

  it('hands over all identities, however many there are', async () => {
    const local = createLocalLimiter(1, Date.now)
    const few: LimitRuleInput = { name: 'one', algorithm: 'fixed-window', limit: 2, period: '7d' }
    const keys = Array.from({ length: 10_030 }, (_, i) => `sluice:{ip:${i}}:state`)
    const decideAt = decideOf(local, few)
    for (const key of keys) decideAt(key)
    const sentKeys = new Set<string>()
    const store: Store = {
      async run(calls) {
        for (const call of calls) if ('keys' in call) sentKeys.add(call.keys[0]!)
        return calls.map(() => [1, '', NOON, 0, 1, 1, 0])
      },
      ping: async () => {},
    }
    while (isHandOverDue(local)) await sendAlone(local.handOvers, store)
    expect(sentKeys.size).toBe(keys.length)
  })

  it('does not give an identity a new share after a hand-over', async () => {
    let time = 1.7e12
    const local = createLocalLimiter(1, () => time)
    const rule: LimitRuleInput = { name: 'ten', algorithm: 'gcra', limit: 10, period: '10s' }
    const sentUnits: number[] = []
    const store: Store = {
      async run(calls) {
        for (const call of calls)
          if ('args' in call) sentUnits.push(...call.args.map(Number).filter(n => n === 5 || n === 2))
        return calls.map(() => [1, '', NOON, 0, 1, 1, 0])
      },
      ping: async () => {},
    }
    expect(decide(local, [counted(rule, 10)]).admitted).toBe(true)
    await sendAlone(local.handOvers, store)
    expect(isHandOverDue(local)).toBe(false)
    expect(decide(local, [counted(rule, 1)]).admitted).toBe(false)
    // Units that have refilled can be spent again, and only the units that were spent again are handed over.
    time += 3000
    expect(decide(local, [counted(rule, 3)]).admitted).toBe(true)
    expect(decide(local, [counted(rule, 1)]).admitted).toBe(false)
    expect(isHandOverDue(local)).toBe(true)
    sentUnits.length = 0
    await sendAlone(local.handOvers, store)
    // Three units, as two and one.
    expect(sentUnits).toContain(2)
    expect(sentUnits).not.toContain(5)
    expect(isHandOverDue(local)).toBe(false)
  })

  it('has nothing to hand over after a request with cost 0 or a peek', () => {
    const local = createLocalLimiter(1, Date.now)
    const rule: LimitRuleInput = { name: 'free', algorithm: 'fixed-window', limit: 10, period: '7d' }
    expect(decide(local, [counted(rule, 0)])).toMatchObject({ verdicts: [{ allowed: true, remaining: 10 }] })
    expect(decide(local, [counted(rule, 1)], 'peek')).toMatchObject({ verdicts: [{ remaining: 10 }] })
    expect(isHandOverDue(local)).toBe(false)
    expect(decide(local, [counted(rule, 11)], 'peek').admitted).toBe(false)
    expect(decide(local, [counted(rule, 10)]).admitted).toBe(true)
    expect(isHandOverDue(local)).toBe(true)
  })

  it('stores two numbers for a log, and no entries', () => {
    const local = createLocalLimiter(1, Date.now)
    const log: LimitRuleInput = { name: 'log', algorithm: 'sliding-log', limit: 50_000, period: '1h' }
    for (let i = 0; i < 5; i++) expect(decide(local, [counted(log, 10_000)]).admitted).toBe(true)
    const { admitted, verdicts } = decide(local, [counted(log, 1)])
    expect(admitted).toBe(false)
    expect(verdicts[0]).toMatchObject({ remaining: 0, rule: { algorithm: 'sliding-log', limit: 50_000 } })
  })

  it.each(RULES_FOR_TEN)(
    'does not lose counts because of requests that cost more than the share: $name',
    rule => {
      let time = 1.7e12
      const local = createLocalLimiter(0.1, () => time)
      const hundred = { ...rule, limit: 100, period: '1h', queue: undefined } as LimitRuleInput
      let [admitted, dear] = [0, 0]
      for (let i = 0; i < 20; i++, time += 170_000) {
        dear += decide(local, [counted(hundred, 50)]).admitted ? 1 : 0
        admitted += decide(local, [counted(hundred, 1)]).admitted ? 1 : 0
      }
      // Within an hour the share is available once or twice: each time for one expensive request, or for ten cheap ones.
      expect(dear).toBeLessThanOrEqual(2)
      expect(dear * 10 + admitted).toBeLessThanOrEqual(22)
    },
  )

  it('starts a window with its first request, if the rule says so', () => {
    let time = NOON / 1e3 + 3_599_000
    const local = createLocalLimiter(0.5, () => time)
    const rule: LimitRuleInput = {
      ...{ name: 'hour', algorithm: 'fixed-window', limit: 10, period: '1h', start: 'first-request' },
    }
    const admitted = () => {
      let count = 0
      while (decide(local, [counted(rule, 1)]).admitted) count += 1
      return count
    }
    expect(admitted()).toBe(5)
    time += 2000
    expect(admitted()).toBe(0)
    time += 3_597_999
    expect(admitted()).toBe(0)
    time += 1
    expect(admitted()).toBe(5)
  })

  it('admits as much as a limit that equals its share, with every algorithm', () => {
    for (const algorithm of ['gcra', 'token-bucket'] as const) {
      let time = 1.7e12
      const local = createLocalLimiter(0.1, () => time)
      const rule: LimitRuleInput = { name: 'r', algorithm, limit: 100, period: '10s', burst: 20 }
      let admitted = 0
      // A minute with ten requests a second: 2 are admitted at once, then one a second.
      for (let i = 0; i < 600; i++, time += 100)
        admitted += decide(local, [counted(rule, 1)]).admitted ? 1 : 0
      expect(admitted, algorithm).toBe(2 + 59)
    }
  })
})
