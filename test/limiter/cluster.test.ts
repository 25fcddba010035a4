/** One decision over several slots of a cluster: the units that each slot spends, and the units that are given back. */

import { describe, expect, it, vi } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import { GatewayError } from '../../src/errors.ts'
import { splitBySlot } from '../../src/limiter/cluster.ts'
import type { Evaluation, Outcome, Verdict } from '../../src/script/evaluation.ts'
import {
  addressStateKey,
  consumerKey,
  consumerStateKey,
  credentialKey,
  pointerKey,
} from '../../src/store/keys.ts'
import { formatConsumer } from '../../src/store/records.ts'
import type { ScriptCall, Store } from '../../src/store/store.ts'
import { GUESSES } from '../script/subject-rules.ts'
import { bound } from '../support/bound.ts'
import {
  compiled,
  configOf,
  credentialOf,
  describeOnRedisEngine,
  rulesOf,
  type TimedEvaluation,
} from '../support/engines.ts'
import { type EvaluateOptions, evaluate } from '../support/evaluate.ts'
import { overrideOf } from '../support/overrides.ts'
import { forEvery } from '../support/property.ts'
import { FC_PATH, SEED } from '../support/random.ts'
import { storeOf } from '../support/stores.ts'
import { NOON, namedRules, newCaller, traffic } from '../support/traffic.ts'
import { after, pauses } from '../support/waits.ts'

const [CONSUMER, ADDRESS] = [consumerStateKey('acme'), addressStateKey('198.51.100.7')]
const CREDENTIAL = credentialKey('acme', 'ff')
const WHO = { kind: 'key', consumerKey: consumerKey('acme'), credentialKey: CREDENTIAL } as const

const [wide, log, narrow] = rulesOf(
  { name: 'wide', by: 'consumer', algorithm: 'token-bucket', limit: 5, period: '5s' },
  { name: 'log', by: 'consumer', algorithm: 'sliding-log', limit: 4, period: '1h' },
  { name: 'narrow', by: 'address', algorithm: 'fixed-window', limit: 2, period: '1h' },
)

const evaluationAt = (now: number, changes: Partial<TimedEvaluation> = {}): Evaluation =>
  compiled({
    rules: [bound(narrow!, ADDRESS), bound(wide!, CONSUMER), bound(log!, CONSUMER)],
    subject: WHO,
    plans: ['free'],
    now,
    ...changes,
  })

const decideOn = (store: Store, evaluation: Evaluation, options: EvaluateOptions = {}) =>
  evaluate(store, evaluation, { isCallerKnown: () => true, ...options })

describe('an evaluation', () => {
  it('of an anonymous caller with a plan has the plan in every slot', () => {
    const { subject: _, ...anonymous } = evaluationAt(NOON, { plan: 'free' })
    expect(splitBySlot(anonymous).map(({ plan }) => plan)).toEqual(['free', 'free'])
  })

  it('wants a lease only if it has a single slot', () => {
    const one = evaluationAt(NOON, { rules: [bound(wide!, CONSUMER)], wantedRequests: 20 })
    expect(splitBySlot(one).map(({ wantedRequests }) => wantedRequests)).toEqual([20])
    const parts = splitBySlot(evaluationAt(NOON, { wantedRequests: 20 }))
    expect(parts.map(part => 'wantedRequests' in part)).toEqual([false, false])
  })

  it('is split by slot; only the slot of the credential gets the subject', () => {
    const parts = splitBySlot(evaluationAt(NOON))
    expect(parts.map(({ rules, subject }) => [rules.map(({ rule }) => rule.name), subject])).toEqual([
      [['narrow'], undefined],
      [['wide', 'log'], WHO],
    ])
  })

  it('includes the slot of the credential even if nothing is counted there', () => {
    const parts = splitBySlot(evaluationAt(NOON, { rules: [bound(narrow!, ADDRESS)] }))
    expect(parts.map(({ rules, subject }) => [rules.length, subject])).toEqual([
      [1, undefined],
      [0, WHO],
    ])
  })
})

describeOnRedisEngine('a lease on a cluster', fresh => {
  const lease = { for: '250ms' } as const
  const hour = { algorithm: 'fixed-window', limit: 1600, period: '1h', lease } as const
  const leased = rulesOf(
    { ...hour, name: 'ours', by: 'consumer' },
    { ...hour, name: 'theirs', by: 'address' },
    { ...hour, name: 'also-ours', by: 'consumer', algorithm: 'gcra' },
  )
  const [ours, theirs, alsoOurs] = leased
  const OURS = [bound(ours!, CONSUMER, 1, NOON / 1e3), bound(alsoOurs!, CONSUMER, 1, NOON / 1e3)]
  const ruleSet = evaluationAt(NOON, { rules: [...OURS, bound(theirs!, ADDRESS)] }).ruleSet

  it.each([
    ['is granted in one slot', OURS, 60, [1540, 1540]],
    ['is not granted over several slots', [...OURS, bound(theirs!, ADDRESS)], undefined, [1599, 1599, 1599]],
  ] as const)('%s', async (_, rules, granted, remaining) => {
    const redis = await fresh()
    await redis.setRecord(CREDENTIAL, credentialOf('free'))
    const store = storeOf(redis, { isCluster: true })
    const evaluation: Evaluation = { ruleSet, rules, subject: WHO, now: NOON, wantedRequests: 60 }
    const outcome = (await decideOn(store, evaluation)) as Outcome
    expect([outcome.status, outcome.granted]).toEqual(['admitted', granted])
    expect(outcome.verdicts.map(verdict => verdict.remaining)).toEqual(remaining)
    const peek = (await decideOn(store, evaluation, { verb: 'peek' })) as Outcome
    expect([peek.granted, peek.verdicts.map(verdict => verdict.remaining)]).toEqual([undefined, remaining])
  })
})

describeOnRedisEngine('a decision over two slots', fresh => {
  const prepared = async () => {
    const redis = await fresh()
    await redis.setRecord(CREDENTIAL, credentialOf('free'))
    return { redis, store: storeOf(redis, { isCluster: true }) }
  }
  const summaryOf = (outcome: Outcome) => [
    outcome.status,
    ...outcome.verdicts.map(({ rule, allowed, remaining }) => [rule.name, allowed, remaining]),
  ]
  const ask = async (store: ReturnType<typeof storeOf>, evaluation: Evaluation) => {
    const outcome = await decideOn(store, evaluation)
    if (outcome.status === 'degraded') throw new Error(outcome.detail)
    return outcome
  }

  it('is one HTTP request with one call per slot, and the verdicts are in the order of the rules', async () => {
    const { store } = await prepared()
    const outcome = await ask(store, evaluationAt(NOON))
    expect(summaryOf(outcome)).toEqual(['admitted', ['narrow', true, 1], ['wide', true, 4], ['log', true, 3]])
    expect(outcome.plan).toBe('free')
    expect(store.requests).toEqual([2])
  })

  it('gives back the units that one slot has spent if the other refuses, and reports the true state of both', async () => {
    const { store } = await prepared()
    await ask(store, evaluationAt(NOON))
    await ask(store, evaluationAt(NOON))
    store.requests.length = 0
    const third = await ask(store, evaluationAt(NOON))
    expect(summaryOf(third)).toEqual(['refused', ['narrow', false, 0], ['wide', true, 3], ['log', true, 2]])
    expect(store.requests).toEqual([2, 1])
    // A peek shows the same state.
    const peek = await ask(
      store,
      evaluationAt(NOON, { rules: evaluationAt(NOON).rules.map(({ rule, key }) => bound(rule, key, 0)) }),
    )
    expect(peek.verdicts.map(({ remaining }) => remaining)).toEqual([0, 3, 2])
  })

  it('also gives units back while the limit on calls in flight is reached', async () => {
    const { store } = await prepared()
    for (let i = 0; i < 2; i++) await ask(store, evaluationAt(NOON))
    let isFull = false
    const bounded: Store = {
      ...store,
      run(calls) {
        if (isFull)
          throw new GatewayError('ERR_STORE_OVERLOAD', 'The isolate has 1 call to the store in flight.')
        isFull = true
        return store.run(calls)
      },
    }
    expect(await decideOn(bounded, evaluationAt(NOON), { undoStore: store })).toMatchObject({
      status: 'refused',
    })
    expect((await decideOn(store, evaluationAt(NOON), { verb: 'peek' })) as Outcome).toMatchObject({
      verdicts: [{ remaining: 0 }, { remaining: 3 }, { remaining: 2 }],
    })
  })

  it('waits in the line of its caller before each trip', async () => {
    const { redis, store } = await prepared()
    await redis.setRecord(pointerKey('ff'), 'acme')
    const lines: unknown[] = []
    const observed: Store = {
      ...store,
      run(calls, own) {
        lines.push(own!.line?.())
        return store.run(calls, own)
      },
    }
    const subject = {
      ...{ kind: 'pointer' as const, pointerKey: pointerKey('ff') },
      ...{ consumerKey: consumerKey('?'), credentialKey: CREDENTIAL },
    }
    const options = { isCallerKnown: () => false, listener: { line: () => 'of the caller' } }
    const outcome = await decideOn(observed, evaluationAt(NOON, { subject }), options)
    expect(outcome).toMatchObject({ status: 'admitted' })
    expect(lines).toEqual(['of the caller', 'of the caller', 'of the caller'])
  })

  it('passes on to the listener of the request what happens to the calls that decide', async () => {
    const { store } = await prepared()
    const listener = { isNoLongerNeeded: vi.fn(() => true), noteArrival: vi.fn() }
    const observed: Store = {
      ...store,
      async run(calls, own) {
        expect(own!.isNoLongerNeeded!()).toBe(true)
        const replies = await store.run(calls)
        own!.noteArrival!()
        return replies
      },
    }
    expect(await decideOn(observed, evaluationAt(NOON), { listener })).toMatchObject({ status: 'admitted' })
    expect([listener.isNoLongerNeeded.mock.calls.length, listener.noteArrival.mock.calls.length]).toEqual([
      1, 1,
    ])
  })

  it('gives units back for a caller with an unknown credential', async () => {
    const { redis, store } = await prepared()
    await redis.send(['DEL', CREDENTIAL])
    const outcome = await ask(store, evaluationAt(NOON))
    expect(outcome).toMatchObject({ status: 'unknown-credential', verdicts: [] })
    const peek = await ask(
      store,
      compiled({ rules: [bound(narrow!, ADDRESS, 0)], plans: ['free'], now: NOON }),
    )
    expect(peek.verdicts[0]!.remaining).toBe(2)
  })

  it('also gives units back under rules of a plan', async () => {
    const { redis, store } = await prepared()
    const [ofPlan] = rulesOf({
      ...{ name: 'plan', by: 'consumer', algorithm: 'fixed-window', limit: 9, period: '1h' },
      match: { plans: ['free'] },
    } as RuleInput)
    const rules = [bound(narrow!, ADDRESS), bound(ofPlan!, CONSUMER)]
    for (let i = 0; i < 3; i++) await ask(store, evaluationAt(NOON, { rules }))
    const { verdicts } = await redis.evaluate({
      ...{ rules: [bound(ofPlan!, CONSUMER, 0)], plans: ['free'], subject: WHO, now: NOON },
    })
    expect(verdicts[0]!.remaining).toBe(7)
  })

  // The state of a gcra rule depends on the numbers of the plan.
  it.each(['fixed-window', 'gcra'] as const)(
    'counts and gives back the units of a rule once, although the rule has an entry for each plan: %s',
    async algorithm => {
      const { store, redis } = await prepared()
      const plans = ['free', 'pro']
      const numbers = {
        algorithm,
        limit: 3,
        period: '1h',
        plans: { pro: { limit: 9 } },
      } as const
      const { rules } = configOf({ plans, rules: [{ name: 'plans', by: 'consumer', ...numbers }] })
      await redis.setRecord(CREDENTIAL, credentialOf('pro'))
      const rows = rules.map(rule => bound(rule, CONSUMER))
      const both = evaluationAt(NOON, { rules: [...rows, bound(narrow!, ADDRESS)], plans })
      for (let i = 0; i < 2; i++) await ask(store, both)
      // The address refuses, so the units that the consumer's slot has spent are given back.
      expect((await ask(store, both)).status).toBe('refused')
      const { verdicts } = await ask(store, evaluationAt(NOON, { rules: rows, plans }))
      expect(verdicts.map(({ rule, remaining }) => [rule.limit, remaining])).toEqual([[9, 6]])
    },
  )

  it.each([
    ['is unreadable', [1, 'free']],
    ['is a failure', new GatewayError('ERR_STORE_UNREACHABLE', 'gone')],
  ])('refuses if one slot refuses, even if the answer of the other %s', async (_, other) => {
    const { store } = await prepared()
    const [consumer] = [bound(log!, CONSUMER)]
    for (let i = 0; i < 4; i++) await ask(store, evaluationAt(NOON, { rules: [consumer] }))
    const broken = {
      ...store,
      run: async (calls: Parameters<typeof store.run>[0]) => {
        const replies = await store.run(calls)
        return calls.map((call, i) => ('keys' in call && call.keys.includes(ADDRESS) ? other : replies[i]))
      },
    }
    expect((await ask(broken, evaluationAt(NOON))).status).toBe('refused')
    const free = evaluationAt(NOON, { rules: [bound(narrow!, ADDRESS), bound(wide!, CONSUMER)] })
    expect((await decideOn(broken, free)).status).toBe('degraded')
  })

  it(`has the same result as a decision in one slot (SEED=${SEED})`, async () => {
    const { redis, store } = await prepared()
    const alone = storeOf(redis)
    let refused = 0
    await forEvery(traffic(30, pauses), 14, async ({ numbers, steps }) => {
      // Places in a queue are not given back, and units in flight are released by the next message of the isolate.
      const rules = namedRules(numbers).filter(
        ({ algorithm }) => algorithm !== 'leaky-bucket' && algorithm !== 'concurrency',
      )
      const caller = newCaller()
      let now = NOON
      let verdicts: readonly Verdict[] = []
      for (const [i, { pause }] of steps.entries()) {
        now = after(pause, now, rules.length > 0 ? rules : [wide!], verdicts)
        const boundTo = (keyOf: (name: string) => string) =>
          rules.map((rule, i) => bound(rule, keyOf(`${caller}-${i % 3}`), undefined, now / 1e3))
        const [inOne, inSeveral] = [boundTo(name => `sluice:{one}:state:${name}`), boundTo(consumerStateKey)]
        const expected = await ask(alone, compiled({ rules: inOne, plans: ['free'], now }))
        const { isBySlot: _, ...actual } = await ask(
          store,
          compiled({ rules: inSeveral, plans: ['free'], now }),
        )
        expect(actual, `step ${i}`).toEqual(expected)
        verdicts = actual.verdicts
        if (actual.status === 'refused') refused += 1
      }
    })
    if (!FC_PATH) expect(refused).toBeGreaterThan(10)
  })
})

describeOnRedisEngine('a repeated refusal over two slots', fresh => {
  const MINUTE_US = 60e6
  /** The address has refused once. Each decision of `ask` counts its HTTP requests, and the verbs of their calls. */
  const refusedOnce = async () => {
    const redis = await fresh()
    for (const consumer of ['acme', 'globex']) {
      await redis.setRecord(credentialKey(consumer, 'ff'), credentialOf('free'))
    }
    const sent: string[] = []
    const counted = storeOf(redis, { isCluster: true })
    const store: Store = {
      ...counted,
      run(calls, listener) {
        const scripts = calls as readonly ScriptCall[]
        sent.push(scripts.map(({ args: [verb] }) => (/^[a-z]/.test(verb!) ? verb : 'refund')).join(' '))
        return counted.run(calls, listener)
      },
    }
    const ask = async (
      now: number,
      {
        consumer = 'acme',
        cost = 1,
        ...options
      }: EvaluateOptions & { consumer?: string; cost?: number } = {},
    ) => {
      const state = consumerStateKey(consumer)
      const rules = [bound(narrow!, ADDRESS, cost), bound(wide!, state), bound(log!, state)]
      const subject = {
        kind: 'key',
        ...{ consumerKey: consumerKey(consumer), credentialKey: credentialKey(consumer, 'ff') },
      } as const
      sent.length = 0
      const outcome = await decideOn(store, evaluationAt(now, { rules, subject }), {
        now: () => now / 1e3,
        ...options,
      })
      const verdicts = outcome.status === 'degraded' ? [] : outcome.verdicts
      return { outcome, remaining: verdicts.map(({ remaining }) => remaining), sent: [...sent] }
    }
    await ask(NOON, { cost: 2 })
    const first = await ask(NOON)
    expect(first).toMatchObject({ outcome: { status: 'refused' }, sent: ['decide decide', 'refund'] })
    return { redis, store, sent, ask, first }
  }

  it('takes one HTTP request that spends nothing, also for other callers whom the same rule refuses', async () => {
    const { ask, first } = await refusedOnce()
    const again = await ask(NOON)
    expect(again.sent).toEqual(['peek peek'])
    const { isBySlot, ...expected } = first.outcome as Outcome
    expect([isBySlot, again.outcome]).toEqual([true, expected])
    const other = await ask(NOON, { consumer: 'globex' })
    expect([other.outcome.status, other.remaining, other.sent]).toEqual(['refused', [0, 5, 4], ['peek peek']])
  })

  it('is decided at once when the refusal is over, or if the request costs less', async () => {
    const { ask } = await refusedOnce()
    expect((await ask(NOON, { cost: 0 })).sent).toEqual(['decide decide'])
    // The window has 1 h, but a refusal is likely for a minute at most.
    expect((await ask(NOON + MINUTE_US)).sent).toEqual(['decide decide', 'refund'])
  })

  it('is decided in a second HTTP request if the store admits it after all, and then at once again', async () => {
    const { redis, ask } = await refusedOnce()
    await redis.send(['DEL', ADDRESS])
    const admitted = await ask(NOON)
    expect([admitted.outcome.status, admitted.remaining, admitted.sent]).toEqual([
      ...['admitted', [1, 3, 2]],
      ['peek peek', 'decide decide'],
    ])
    expect((await ask(NOON)).sent).toEqual(['decide decide'])
  })

  it('takes one HTTP request for a caller that the isolate does not know, too', async () => {
    const { redis, ask } = await refusedOnce()
    const isCallerKnown = () => false
    const refused = await ask(NOON, { consumer: 'globex', isCallerKnown })
    expect([refused.outcome.status, refused.sent]).toEqual(['refused', ['peek peek']])
    await redis.send(['DEL', ADDRESS])
    const admitted = await ask(NOON, { consumer: 'globex', isCallerKnown })
    expect([admitted.outcome.status, admitted.sent]).toEqual(['admitted', ['peek peek', 'decide decide']])
  })

  it('counts a bad credential, until there were too many of them', async () => {
    const { store, sent } = await refusedOnce()
    const guesses = rulesOf(GUESSES)[0]!
    const rules = [bound(guesses, ADDRESS), bound(narrow!, ADDRESS), bound(wide!, CONSUMER)]
    const subject = { ...WHO, credentialKey: credentialKey('acme', 'no') }
    const guess = async () => {
      sent.length = 0
      const options = { isCallerKnown: () => false, now: () => NOON / 1e3 }
      const { status, verdicts } = (await decideOn(
        store,
        evaluationAt(NOON, { rules, subject }),
        options,
      )) as Outcome
      return [status, verdicts.find(({ rule }) => rule === guesses)!.remaining, ...sent]
    }
    expect(await guess()).toEqual(['unknown-credential', 1, 'peek peek', 'decide'])
    expect(await guess()).toEqual(['unknown-credential', 0, 'peek peek', 'decide'])
    expect(await guess()).toEqual(['refused', 0, 'peek peek'])
  })

  it('takes one HTTP request if a slot does not answer, and is decided at once from then on', async () => {
    const { redis, ask, store } = await refusedOnce()
    await redis.send(['DEL', ADDRESS])
    const { run } = store
    vi.spyOn(store, 'run').mockImplementation(async calls => {
      const replies = await run(calls)
      const failure = new GatewayError('ERR_STORE_UNREACHABLE', 'gone')
      return calls.map((call, i) => ('keys' in call && call.keys.includes(ADDRESS) ? failure : replies[i]))
    })
    expect(await ask(NOON)).toMatchObject({ outcome: { status: 'degraded' }, sent: ['peek peek'] })
    expect(await ask(NOON)).toMatchObject({ outcome: { status: 'degraded' }, sent: ['decide decide'] })
  })

  it('is a peek too if the refusal becomes likely while the calls wait for their turn', async () => {
    const { redis, ask, store } = await refusedOnce()
    await redis.send(['DEL', ADDRESS])
    await ask(NOON)
    await ask(NOON)
    const { run } = store
    vi.spyOn(store, 'run').mockImplementationOnce(async (calls, listener) => {
      // Another request is refused meanwhile.
      await ask(NOON, { consumer: 'globex' })
      expect(listener!.isNoLongerNeeded!()).toBe(false)
      return await run(calls, listener)
    })
    const waited = await ask(NOON)
    expect(waited.outcome).toMatchObject({ status: 'refused', verdicts: [{ remaining: 0 }, {}, {}] })
    expect(waited.sent).toEqual(['decide decide', 'refund', 'peek peek'])
  })

  it('by units in flight is always decided at once, because they can be free at any moment', async () => {
    const { store } = await refusedOnce()
    const [held] = rulesOf({ name: 'held', by: 'address', algorithm: 'concurrency', limit: 1, ttl: '30s' })
    const rules = [bound(held!, addressStateKey('198.51.100.8')), bound(wide!, CONSUMER)]
    const requests = vi.spyOn(store, 'run')
    for (let i = 0; i < 3; i++)
      await decideOn(store, evaluationAt(NOON, { rules }), { now: () => NOON / 1e3 })
    const verbs = requests.mock.calls.map(([calls]) => (calls[0] as ScriptCall).args[0])
    expect(verbs.filter(verb => verb === 'peek')).toEqual([])
  })
})

describeOnRedisEngine('the caller, over two slots', fresh => {
  const guesses = rulesOf(GUESSES)[0]!
  const rules = [bound(guesses, ADDRESS), bound(narrow!, ADDRESS), bound(wide!, CONSUMER)]
  const prepared = async (record = credentialOf()) => {
    const redis = await fresh()
    await redis.setRecord(CREDENTIAL, record)
    const store = storeOf(redis, { isCluster: true })
    const ask = async (subject: Evaluation['subject'] = WHO, changes: Partial<Evaluation> = {}) => {
      store.requests.length = 0
      const outcome = await decideOn(store, evaluationAt(NOON, { rules, subject: subject!, ...changes }))
      if (outcome.status === 'degraded') throw new Error(outcome.detail)
      return outcome
    }
    return { redis, store, ask }
  }
  const left = ({ verdicts }: Outcome) =>
    Object.fromEntries(verdicts.map(({ rule, remaining }) => [rule.name, remaining]))

  it('with a bad credential spends under rules on guesses in a second request, and gets all other units back', async () => {
    const { store, ask } = await prepared('nonsense')
    const first = await ask()
    expect([first.status, left(first), store.requests]).toEqual([
      'unknown-credential',
      { guesses: 1 },
      [2, 2],
    ])
    await ask()
    // One request is enough, because the slot of the address refuses. A valid credential gets the same reply.
    const third = await ask()
    expect([third.status, left(third).guesses]).toEqual(['refused', 0])
    expect(store.requests).toEqual([2])
    const peek = await decideOn(
      store,
      compiled({ rules: [bound(narrow!, ADDRESS, 0)], plans: [], now: NOON }),
    )
    expect(peek).toMatchObject({ verdicts: [{ remaining: 2 }] })
  })

  it('with a bad credential can peek at the rule on guesses, which spends nothing', async () => {
    const { store } = await prepared('nonsense')
    const peek = () => decideOn(store, evaluationAt(NOON, { rules }), { verb: 'peek' })
    for (let i = 0; i < 2; i++) {
      expect(await peek()).toMatchObject({
        status: 'unknown-credential',
        verdicts: [{ rule: { name: 'guesses' }, remaining: 2 }],
      })
    }
    expect(((await peek()) as Outcome).verdicts).toHaveLength(1)
    expect(store.requests).toEqual([2, 2, 2])
  })

  it('with a valid credential spends nothing under rules on guesses', async () => {
    const { store, ask } = await prepared()
    expect([left(await ask()), store.requests]).toEqual([{ guesses: 2, narrow: 1, wide: 4 }, [2]])
  })

  it('spends nothing if its consumer is blocked', async () => {
    const { redis, store, ask } = await prepared()
    const blockedUntil = NOON + 1
    const record = formatConsumer({ blockedAt: new Date(0), blockedUntil, overrides: [] })
    await redis.setRecord(consumerKey('acme'), record)
    expect(await ask()).toMatchObject({ status: 'blocked', blockedUntil })
    const peek = await decideOn(
      store,
      compiled({ rules: [bound(narrow!, ADDRESS, 0)], plans: [], now: NOON }),
    )
    expect(peek).toMatchObject({ verdicts: [{ remaining: 2 }] })
  })

  describe('that the isolate does not know', () => {
    const askFirst = async (record?: string) => {
      const { redis, store } = await prepared(record)
      const ask = async () => {
        store.requests.length = 0
        return await decideOn(store, evaluationAt(NOON, { rules }), { isCallerKnown: () => false })
      }
      const askOutcome = async () => {
        const outcome = await ask()
        if (outcome.status === 'degraded') throw new Error(outcome.detail)
        return outcome
      }
      const peekAddress = async () =>
        left(
          (await decideOn(
            store,
            compiled({ rules: [bound(narrow!, ADDRESS, 0)], plans: [], now: NOON }),
          )) as Outcome,
        )
      return { redis, store, ask, askOutcome, peekAddress }
    }

    it('never spends under rules that other callers share, if its credential is bad', async () => {
      const { store, askOutcome, peekAddress } = await askFirst('nonsense')
      const { run } = store
      const sent = vi.spyOn(store, 'run').mockImplementation(run)
      const first = await askOutcome()
      expect([first.status, left(first), store.requests]).toEqual([
        'unknown-credential',
        { guesses: 1 },
        [1, 1],
      ])
      // The first request asks about the consumer, the second one counts the guess.
      const keys = sent.mock.calls.map(([calls]) => calls.flatMap(call => ('keys' in call ? call.keys : [])))
      expect(keys).toEqual([[consumerKey('acme'), CREDENTIAL, CONSUMER], [ADDRESS]])
      await askOutcome()
      expect([(await askOutcome()).status, store.requests]).toEqual(['refused', [1, 1]])
      expect(await peekAddress()).toEqual({ narrow: 2 })
    })

    it('is decided by the other slots in a second request, if its credential is good', async () => {
      const { store, askOutcome } = await askFirst()
      const first = await askOutcome()
      expect([first.status, left(first), store.requests]).toEqual([
        'admitted',
        { guesses: 2, narrow: 1, wide: 4 },
        [1, 1],
      ])
    })

    it('gets its units back if another slot refuses', async () => {
      const { store, askOutcome } = await askFirst()
      for (let i = 0; i < 2; i++) await askOutcome()
      const refused = await askOutcome()
      expect([refused.status, left(refused), store.requests]).toEqual([
        'refused',
        { guesses: 2, narrow: 0, wide: 3 },
        [1, 1, 1],
      ])
    })

    it('spends nothing elsewhere if its own slot refuses, and the reply has every rule', async () => {
      const { redis, store, askOutcome, peekAddress } = await askFirst()
      const input: RuleInput = {
        name: 'wide',
        by: 'consumer',
        algorithm: 'token-bucket',
        limit: 5,
        period: '5s',
      }
      const overrides = [overrideOf(input, { limit: 1, burst: 1 })]
      await redis.setRecord(consumerKey('acme'), formatConsumer({ overrides }))
      await askOutcome()
      const refused = await askOutcome()
      expect([refused.status, left(refused), store.requests]).toEqual([
        'refused',
        { guesses: 2, narrow: 1, wide: 0 },
        [1, 1],
      ])
      expect(await peekAddress()).toEqual({ narrow: 1 })
    })

    it('is refused after too many guesses, whether its consumer is blocked or not', async () => {
      const { redis, askOutcome } = await askFirst('nonsense')
      for (let i = 0; i < 2; i++) await askOutcome()
      await redis.setRecord(CREDENTIAL, credentialOf())
      const good = await askOutcome()
      await redis.setRecord(consumerKey('acme'), formatConsumer({ blockedAt: new Date(0), overrides: [] }))
      const blocked = await askOutcome()
      expect([good.status, blocked.status]).toEqual(['refused', 'refused'])
    })

    it('gets the units of its own slot back if the others do not answer', async () => {
      const { store, ask, askOutcome } = await askFirst()
      const { run } = store
      vi.spyOn(store, 'run')
        .mockImplementationOnce(run)
        .mockRejectedValueOnce(new GatewayError('ERR_STORE_UNREACHABLE', 'The store is away.'))
        .mockImplementation(run)
      expect(await ask()).toMatchObject({ status: 'degraded' })
      expect(left(await askOutcome())).toMatchObject({ wide: 4 })
    })

    it('may have spent units if the second request is not sent', async () => {
      const { store, ask } = await askFirst()
      const { run } = store
      vi.spyOn(store, 'run')
        .mockImplementationOnce(run)
        .mockRejectedValueOnce(new GatewayError('ERR_STORE_BREAKER_OPEN', 'The breaker is open.'))
      expect(await ask()).toMatchObject({ status: 'degraded', cause: 'breaker-open', fate: 'may-have-run' })
    })
  })

  it('with an override gets units back under the numbers of the override', async () => {
    const { redis, ask } = await prepared()
    const input: RuleInput = {
      name: 'wide',
      by: 'consumer',
      algorithm: 'token-bucket',
      limit: 5,
      period: '5s',
    }
    const overrides = [overrideOf(input, { limit: 50, burst: 50 })]
    await redis.setRecord(consumerKey('acme'), formatConsumer({ overrides }))
    expect(left(await ask())).toEqual({ guesses: 2, narrow: 1, wide: 49 })
    await ask()
    // From now on the address refuses, which spends nothing from the bucket of the consumer.
    for (let i = 0; i < 3; i++) expect(left(await ask())).toEqual({ guesses: 2, narrow: 0, wide: 48 })
  })

  it('with an opaque key is looked up first, and then handled like any other key', async () => {
    const { redis, store, ask } = await prepared()
    const unknown = {
      kind: 'pointer',
      ...{
        consumerKey: consumerKey('?'),
        credentialKey: credentialKey('?', 'ff'),
        pointerKey: pointerKey('ff'),
      },
    } as const
    const cold = [
      bound(guesses, ADDRESS),
      bound(wide!, consumerStateKey('?')),
      bound(log!, consumerStateKey('?')),
    ]
    const ofUnknownKey = await ask(unknown, { rules: cold })
    expect([ofUnknownKey.status, left(ofUnknownKey), store.requests]).toEqual([
      'unknown-credential',
      { guesses: 1 },
      [2, 1],
    ])
    await redis.setRecord(pointerKey('ff'), 'acme')
    const found = await ask(unknown, { rules: cold })
    expect(found).toMatchObject({ status: 'admitted', consumer: 'acme' })
    expect([left(found), store.requests]).toEqual([{ guesses: 1, wide: 4, log: 3 }, [2, 2]])
  })
})
