/** The memory of refusals: it is bounded, and agrees with the store. test/gateway/refusals.test.ts tests it with the gateway. */
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { RuleInput } from '../../../src/config/check/schema.ts'
import { createAnswers } from '../../../src/limiter/answers/answers.ts'
import type { KnownRequest } from '../../../src/limiter/answers/known.ts'
import { createRefusalMemory, type LookupPhase } from '../../../src/limiter/answers/refusals.ts'
import type { Evaluation, Outcome } from '../../../src/script/evaluation.ts'
import { ScriptModel } from '../../../src/script/model.ts'
import type { RuleSet } from '../../../src/script/rule-set-shape.ts'
import { addressStateKey, consumerKey, consumerStateKey, credentialKey } from '../../../src/store/keys.ts'
import { randomCases } from '../../selection.ts'
import { bound } from '../../support/bound.ts'
import { rulesOf } from '../../support/engines.ts'
import { knownAnswers, knownRequest } from '../../support/known-request.ts'
import { forEvery } from '../../support/property.ts'
import { FC_PATH } from '../../support/random.ts'

const [rule] = rulesOf({ name: 'a', by: 'address', algorithm: 'gcra', limit: 1, period: '1s' })

const demandOf = (address: string, cost = 1): Evaluation => ({
  ruleSet: {} as RuleSet,
  rules: [bound(rule!, addressStateKey(address), cost)],
})

/** @param retryAfter µs; -1: never */
const refusal = (retryAfter: number): Outcome => ({
  ...{ status: 'refused', plan: '', at: 1e15 },
  verdicts: [
    { rule: rule!, mode: 'enforce', allowed: false, remaining: 0, resetAfter: 2e6, retryAfter, delay: 0 },
  ],
})

const admission = (remaining: number): Outcome => ({
  ...{ status: 'admitted', plan: '', at: 1e15 },
  verdicts: [
    { rule: rule!, mode: 'enforce', allowed: true, remaining, resetAfter: 1e6, retryAfter: 0, delay: 0 },
  ],
})

function memory(rememberForMs = 1000) {
  const world = { time: 1e6 }
  const known = knownAnswers(() => world.time)
  const refusals = createRefusalMemory(known, rememberForMs)
  const answers = createAnswers(known, refusals, undefined)
  const answerTo = (demand: Evaluation) => answers.forRequest(knownRequest(demand))
  const requestFor = (demand: Evaluation, trip?: KnownRequest['trip']) => ({ ...knownRequest(demand), trip })
  return {
    world,
    known,
    answers,
    answerTo,
    requestFor,
    /** @param asOf the changes that were known when the trip began */
    keep: (demand: Evaluation, outcome: Outcome, begunAt = world.time, asOf = known.changes) =>
      refusals.remember(requestFor(demand, { asOf, begunAt, notSentBefore: begunAt }), outcome),
    find: (demand: Evaluation, when: LookupPhase = 'before-trip') => refusals.find(requestFor(demand), when),
    pause: (request: KnownRequest) => refusals.pauseBeforeTrip(request),
  }
}

describe('the memory of refusals', () => {
  it('drops the oldest refusals in a flood of identities, and does not grow', () => {
    const { keep, find } = memory()
    for (let i = 0; i < 20_000; i++) keep(demandOf(`10.0.${i >> 8}.${i & 255}`), refusal(-1))
    const known = Array.from({ length: 20_000 }, (_, i) => find(demandOf(`10.0.${i >> 8}.${i & 255}`)))
    expect(known.filter(Boolean).length).toBeLessThanOrEqual(8000)
    expect(known.slice(-4000).every(Boolean)).toBe(true)
  })

  it('keeps what other rules say about a caller to itself, if there were too many guesses from an address', () => {
    const [guesses, minute] = rulesOf(
      { name: 'guesses', by: 'address', on: 'auth-failure', algorithm: 'gcra', limit: 1, period: '1s' },
      { name: 'minute', by: 'consumer', algorithm: 'fixed-window', limit: 1, period: '1m' },
    )
    const demandBy = (consumer: string): Evaluation => ({
      ruleSet: {} as RuleSet,
      rules: [bound(guesses!, addressStateKey('10.0.0.1')), bound(minute!, consumerStateKey(consumer))],
      subject: {
        kind: 'key',
        consumerKey: consumerKey(consumer),
        credentialKey: credentialKey(consumer, 'ff'),
      },
    })
    const verdict = { mode: 'enforce', allowed: false, remaining: 0, resetAfter: 60e6, delay: 0 } as const
    const { world, keep, find } = memory()
    keep(demandBy('acme'), {
      ...{ status: 'refused', plan: 'pro', at: 1e15 },
      verdicts: [
        { ...verdict, rule: guesses!, retryAfter: 300e3 },
        { ...verdict, rule: minute!, retryAfter: 30e6 },
      ],
    })
    const { plan, verdicts } = find(demandBy('globex'))!
    expect([plan, verdicts.map(({ rule }) => rule.name)]).toEqual(['', ['guesses']])
    // The store would refuse acme for 30 s, but no other caller.
    world.time += 300
    expect(find(demandBy('globex'))).toBeUndefined()
    expect(find(demandBy('globex'), 'after-failure')).toBeUndefined()
  })

  it('ends a refusal when its retry time has passed since the start of the trip, and counts its times down from its end', () => {
    const { world, keep, find } = memory(60_000)
    const askedAt = world.time
    world.time += 40
    keep(demandOf('10.0.0.1'), refusal(500_000), askedAt)
    world.time += 100
    expect(find(demandOf('10.0.0.1'))!.verdicts[0]).toMatchObject({ retryAfter: 400_000, resetAfter: 1.9e6 })
    // From now on the store may admit the request, because it may have decided right after the start of the trip.
    world.time = askedAt + 500
    expect(find(demandOf('10.0.0.1'))).toBeUndefined()
  })

  it('measures the end of a refusal from the end of the wait for a turn at the store', () => {
    const { world, answerTo, find } = memory()
    const demand = demandOf('10.0.0.1')
    const answer = answerTo(demand)
    answer.beginTrip()
    world.time += 1500
    expect(answer.isNoLongerNeeded()).toBe(false)
    world.time += 40
    answer.endTrip(refusal(5e6))
    world.time += 959
    expect(Boolean(find(demand))).toBe(true)
    world.time += 1
    expect(find(demand)).toBeUndefined()
  })

  it('counts the times down from the arrival of the reply, even if its request notices the reply later', () => {
    const { world, answerTo, find } = memory()
    const demand = demandOf('10.0.0.1')
    const answer = answerTo(demand)
    answer.beginTrip()
    answer.isNoLongerNeeded()
    world.time += 40
    answer.noteArrival()
    world.time += 700
    answer.endTrip(refusal(5e6))
    expect(find(demand)!.verdicts[0]).toMatchObject({ retryAfter: 4.3e6 })
  })

  it('discards a refusal if a change was made while its request waited for its turn', () => {
    const { world, answers, answerTo, find } = memory()
    const demand = demandOf('10.0.0.1')
    const answer = answerTo(demand)
    answer.beginTrip()
    world.time += 10
    answers.forget([addressStateKey('10.0.0.1')], 'refund')
    world.time += 10
    answer.isNoLongerNeeded()
    answer.endTrip(refusal(5e6))
    expect(find(demand)).toBeUndefined()
  })

  it('does not remember a refusal whose retry time is over when the answer arrives', () => {
    const { world, keep, find } = memory()
    const askedAt = world.time
    world.time += 300
    keep(demandOf('10.0.0.1'), refusal(200_000), askedAt)
    expect(find(demandOf('10.0.0.1'))).toBeUndefined()
  })

  it('keeps a refusal for its retry time while the store does not answer, and for at most a minute', () => {
    const { world, keep, find } = memory()
    keep(demandOf('10.0.0.1'), refusal(5e6))
    keep(demandOf('10.0.0.2'), refusal(-1))
    world.time += 4999
    expect([find(demandOf('10.0.0.1')), Boolean(find(demandOf('10.0.0.1'), 'after-failure'))]).toEqual([
      undefined,
      true,
    ])
    world.time += 1
    expect(find(demandOf('10.0.0.1'), 'after-failure')).toBeUndefined()
    world.time += 54_999
    expect(Boolean(find(demandOf('10.0.0.2'), 'after-failure'))).toBe(true)
    world.time += 1
    expect(find(demandOf('10.0.0.2'), 'after-failure')).toBeUndefined()
  })

  it('sends one request to the store when a refusal ends, and refuses the others until the answer arrives or is lost', () => {
    const { world, keep, find } = memory()
    const [first, ...others] = Array.from({ length: 4 }, () => demandOf('10.0.0.1'))
    keep(first!, refusal(-1))
    world.time += 1000
    expect(find(first!)).toBeUndefined()
    for (const when of ['before-trip', 'waiting'] as const)
      for (const other of others) expect(Boolean(find(other, when))).toBe(true)
    // The request for the store is not refused while it waits for its turn.
    expect(find(first!, 'waiting')).toBeUndefined()
    world.time += 1000
    expect(find(others[0]!)).toBeUndefined()
    keep(others[0]!, refusal(-1))
    expect([Boolean(find(first!)), Boolean(find(others[0]!, 'waiting'))]).toEqual([true, true])
  })

  it('sends one of the requests that wait for their turn to the store when a refusal ends', () => {
    const { world, keep, find } = memory()
    const waiting = Array.from({ length: 50 }, () => demandOf('10.0.0.1'))
    keep(waiting[0]!, refusal(-1))
    world.time += 1000
    expect(waiting.filter(demand => !find(demand, 'waiting'))).toEqual([waiting[0]])
    expect(waiting.filter(demand => !find(demand, 'waiting'))).toEqual([waiting[0]])
  })

  it.each([
    [101, 500],
    [900, 500],
    [900, 5000],
    [4000, 5000],
    [900e3, 5000],
  ])(
    'is forgotten if the clock is set back by %d ms, so that a refusal for %d ms never lasts longer',
    (fall, waitMs) => {
      const { world, known, keep, find } = memory(60_000)
      const demand = demandOf('10.0.0.1')
      keep(demand, refusal(waitMs * 1e3))
      world.time += waitMs - 100
      expect(Boolean(find(demand))).toBe(true)
      const [startedAt, asOf] = [world.time, known.changes]
      world.time -= fall
      expect(find(demand)).toBeUndefined()
      // If the trip of a refusal has started before the clock was set back, the refusal would end too late.
      keep(demand, refusal(waitMs * 1e3), startedAt, asOf)
      expect(find(demand)).toBeUndefined()
      world.time += 2 * fall
      keep(demand, refusal(waitMs * 1e3), startedAt, asOf)
      expect(find(demand)).toBeUndefined()
      keep(demand, refusal(waitMs * 1e3))
      expect(Boolean(find(demand))).toBe(true)
      world.time += waitMs
      expect(find(demand)).toBeUndefined()
    },
  )

  it('does not conclude that the clock was set back if a waiting request reads an older time, or any request in a busy isolate', () => {
    const { world, keep, find } = memory()
    const demand = demandOf('10.0.0.1')
    keep(demand, refusal(-1))
    world.time -= 900
    expect([Boolean(find(demand, 'waiting')), Boolean(find(demand, 'after-failure'))]).toEqual([true, true])
    world.time += 800
    expect(Boolean(find(demand))).toBe(true)
  })

  it('does not remember a refusal if its state was changed during the trip', () => {
    const { world, known, answers, keep, find } = memory()
    const [askedAt, asOf] = [world.time, known.changes]
    world.time += 5
    answers.forget([addressStateKey('10.0.0.1')], 'refund')
    world.time += 5
    keep(demandOf('10.0.0.1'), refusal(-1), askedAt, asOf)
    expect(find(demandOf('10.0.0.1'))).toBeUndefined()
    keep(demandOf('10.0.0.1'), refusal(-1))
    expect(Boolean(find(demandOf('10.0.0.1')))).toBe(true)
  })
})

describe('after an admission that leaves too little for another', () => {
  const RULE_SET = { plans: ['free'] } as unknown as RuleSet
  const ofAddress = (algorithm: string, input: object): RuleInput =>
    ({ name: 'x', by: 'address', algorithm, period: '1s', ...input }) as unknown as RuleInput
  const INPUTS = fc.oneof(
    fc.record({
      algorithm: fc.constantFrom('gcra', 'token-bucket'),
      limit: fc.integer({ min: 1, max: 9 }),
      burst: fc.integer({ min: 1, max: 9 }),
    }),
    fc.record({
      algorithm: fc.constant('leaky-bucket'),
      limit: fc.integer({ min: 1, max: 9 }),
      queue: fc.integer({ min: 0, max: 9 }),
    }),
    fc.record({
      algorithm: fc.constantFrom('fixed-window', 'sliding-window', 'sliding-log'),
      limit: fc.integer({ min: 1, max: 9 }),
    }),
    fc.record({
      algorithm: fc.constant('fixed-window'),
      limit: fc.integer({ min: 1, max: 9 }),
      start: fc.constant('first-request'),
    }),
  )
  const CASES = fc.record({
    inputs: fc.array(INPUTS, { minLength: 1, maxLength: 3 }),
    shadow: fc.boolean(),
    steps: fc.array(
      fc.record({ ms: fc.constantFrom(0, 0, 0, 1, 13, 111, 350), cost: fc.integer({ min: 1, max: 3 }) }),
      { minLength: 5, maxLength: 30 },
    ),
  })

  it('the isolate refuses as the store would, with its times, and admits nothing', async () => {
    let refusedInAdvance = 0
    await forEvery(CASES, randomCases(1000), async ({ inputs, shadow, steps }) => {
      const { world, keep, find } = memory(60_000)
      const start = world.time
      const model = new ScriptModel()
      const rules = rulesOf(
        ...inputs.map(({ algorithm, ...input }, i) =>
          ofAddress(algorithm, { ...input, name: `r${i}`, ...(shadow && i > 0 && { mode: 'shadow' }) }),
        ),
      )
      let last: { outcome: Outcome; cost: number } | undefined
      for (const { ms, cost } of steps) {
        world.time += ms
        const now = 1e12 + (world.time - start) * 1e3
        const evaluation = { ruleSet: RULE_SET, rules: rules.map(rule => bound(rule, 'x', cost, world.time)) }
        const repeated = find(evaluation)
        const decided = model.decide({ ...evaluation, now })
        if (!repeated) {
          keep(evaluation, decided)
          last = { outcome: decided, cost }
          continue
        }
        if (last?.outcome.status === 'admitted') refusedInAdvance += 1
        expect([decided.status, repeated.status]).toEqual(['refused', 'refused'])
        // A refusal of a higher cost can be older than the last answer.
        if (cost !== last?.cost) continue
        for (const [
          i,
          { rule, mode, allowed, resetAfter, retryAfter, delay },
        ] of decided.verdicts.entries()) {
          const known = repeated.verdicts[i]!
          expect([known.rule, known.mode, known.delay]).toEqual([rule, mode, delay])
          // After its own retry time, a rule admits again a microsecond late.
          if (Math.abs(known.retryAfter - retryAfter) > 1) expect(known.allowed).toBe(allowed)
          expect(Math.abs(known.resetAfter - resetAfter)).toBeLessThanOrEqual(1)
          expect(Math.abs(known.retryAfter - retryAfter)).toBeLessThanOrEqual(1)
        }
      }
    })
    if (!FC_PATH) expect(refusedInAdvance).toBeGreaterThan(100)
  })

  it.each([
    ['gcra', { burst: 1 }, 333_334],
    ['token-bucket', { burst: 1 }, 333_334],
    ['leaky-bucket', { queue: 0 }, 333_334],
    ['fixed-window', { limit: 1 }, 1e6],
    ['fixed-window', { limit: 1, start: 'first-request' }, 1e6],
  ] as const)('of %s, the retry time is that of the store', (algorithm, input, retryAfter) => {
    const { world, keep, find } = memory(60_000)
    const model = new ScriptModel()
    const rules = rulesOf(ofAddress(algorithm, { limit: 3, ...input }))
    const evaluation = { ruleSet: RULE_SET, rules: rules.map(rule => bound(rule, 'x', 1, world.time)) }
    const decide = () => model.decide({ ...evaluation, now: 1e12 })
    keep(evaluation, decide())
    const [known, decided] = [find(evaluation)!, decide()]
    expect([known.status, known.verdicts]).toEqual([decided.status, decided.verdicts])
    expect(known.verdicts[0]!.retryAfter).toBe(retryAfter)
  })

  it('one request asks the store when that is over, and the others wait for its answer, but not for long', () => {
    const { world, keep, find, pause, requestFor } = memory()
    const pauseOf = (evaluation: Evaluation) => pause(requestFor(evaluation))
    const demand = () => demandOf('10.0.0.1')
    const trip = () => {
      const askedAt = world.time
      world.time += 20
      return (outcome: Outcome) => keep(demand(), outcome, askedAt)
    }
    trip()(refusal(100_000))
    expect(pauseOf(demand())).toBe(0)
    world.time += 100
    expect([find(demand()), pauseOf(demand())]).toEqual([undefined, 0])
    const waiting = Array.from({ length: 5 }, () => requestFor(demand()))
    expect(waiting.every(each => pause(each) > 0)).toBe(true)
    // The answer is the next refusal.
    trip()(refusal(100_000))
    expect(waiting.every(({ demand }) => find(demand) !== undefined)).toBe(true)
    // An answer that is late keeps nothing waiting.
    world.time += 100
    expect([pauseOf(demand()), pauseOf(demand()) > 0]).toEqual([0, true])
    expect(Array.from({ length: 9 }, () => pause(waiting[0]!)).indexOf(0)).toBe(7)
    world.time += 1000
    expect(pauseOf(demand())).toBe(0)
  })

  it('requests that wait in a busy isolate, in which answers are late, do not all ask the store', () => {
    const { world, keep, pause, requestFor } = memory()
    world.time += 5
    keep(demandOf('10.0.0.1'), refusal(100_000), world.time - 5)
    world.time += 100
    const requests = Array.from({ length: 4 }, () => requestFor(demandOf('10.0.0.1')))
    expect(requests.map(each => pause(each) > 0)).toEqual([false, true, true, true])
    // All look again when the isolate has time, later than an answer usually comes.
    world.time += 100
    expect(requests.slice(1).map(each => pause(each) > 0)).toEqual([false, true, true])
  })

  it('an answer to a lower cost keeps nothing waiting, either', () => {
    const { world, keep, pause, requestFor } = memory()
    const pauseOf = (cost: number) => pause(requestFor(demandOf('10.0.0.1', cost)))
    const askedAt = world.time
    world.time += 100
    keep(demandOf('10.0.0.1', 5), refusal(300_000), askedAt)
    world.time += 200
    // The refusal is over: one request asks, and another waits.
    expect([pauseOf(1), pauseOf(1) > 0]).toEqual([0, true])
    world.time += 20
    keep(demandOf('10.0.0.1', 1), admission(4), world.time - 20)
    expect(pauseOf(1)).toBe(0)
  })

  it('a refusal is counted from the decision, as far as the clock of the store shows it', () => {
    const { world, keep, find } = memory(60_000)
    const trip = (ms: number, decidedAfterMs: number) => {
      const askedAt = world.time
      world.time += ms
      keep(demandOf('10.0.0.1'), { ...refusal(100_000), at: (askedAt + decidedAfterMs) * 1e3 }, askedAt)
      return askedAt
    }
    // The quickest trip: it is unknown when within it the store has decided.
    world.time = trip(2, 1) + 100
    expect(find(demandOf('10.0.0.1'))).toBeUndefined()
    // 29 ms of the next trip were over when the store decided, at least.
    const askedAt = trip(40, 30)
    world.time = askedAt + 29 + 99
    expect(find(demandOf('10.0.0.1'))).toBeDefined()
    world.time = askedAt + 29 + 100
    expect(find(demandOf('10.0.0.1'))).toBeUndefined()
    // The clock of the store was set forward. The reply has arrived after the decision.
    const setForward = trip(10, 90_000)
    world.time = setForward + 10 + 100
    expect(find(demandOf('10.0.0.1'))).toBeUndefined()
  })
})

describe('a repeated refusal has the verdicts of the store', () => {
  const RULE_SET = { plans: ['free'] } as unknown as RuleSet
  const KEY = addressStateKey('10.0.0.1')
  const LIVE: RuleInput = { name: 'live', by: 'address', algorithm: 'fixed-window', limit: 3, period: '1d' }
  const second = { by: 'address', limit: 4, period: '1s' } as const
  const candidate = { mode: 'shadow', candidateFor: 'live' } as const

  it.each<[string, RuleInput]>([
    ['a gcra shadow', { ...second, ...candidate, name: 'b', algorithm: 'gcra', burst: 1 }],
    ['a token-bucket shadow', { ...second, ...candidate, name: 'b', algorithm: 'token-bucket', burst: 1 }],
    ['a fixed-window shadow', { ...second, ...candidate, name: 'b', algorithm: 'fixed-window', limit: 2 }],
    [
      'a sliding-window shadow',
      { ...second, ...candidate, name: 'b', algorithm: 'sliding-window', limit: 2 },
    ],
    ['a sliding-log shadow', { ...second, ...candidate, name: 'b', algorithm: 'sliding-log', limit: 2 }],
    [
      'a leaky-bucket shadow',
      { ...second, ...candidate, name: 'b', algorithm: 'leaky-bucket', limit: 1, queue: 1 },
    ],
    [
      'a shadow that does not refill',
      { ...second, ...candidate, name: 'b', algorithm: 'gcra', limit: 2, period: '1d' },
    ],
    ['a shadow with room', { ...second, ...candidate, name: 'b', algorithm: 'fixed-window', limit: 99 }],
    ['a second enforced rule', { ...second, name: 'b', algorithm: 'gcra', burst: 1 }],
  ])('on %s', (_, other) => {
    const { world, keep, find } = memory(60_000)
    const model = new ScriptModel()
    const rules = rulesOf(LIVE, other)
    // The clocks of the store and the isolate run alike.
    const start = world.time
    const demand = () => ({
      ruleSet: RULE_SET,
      rules: rules.map(rule => bound(rule, KEY, 1, world.time)),
    })
    const decide = () => model.decide({ ...demand(), now: 1e12 + (world.time - start) * 1e3 })
    for (let i = 0; i < 3; i++, world.time += 300) expect(decide().status).toBe('admitted')
    world.time -= 300
    const refused = decide()
    expect(refused.status).toBe('refused')
    keep(demand(), refused)
    // A rule may admit again a microsecond late, so no check is made at the very moment.
    world.time += 0.5
    for (let i = 0; i < 300; i++, world.time += 7) {
      const [repeated, decided] = [find(demand())!, decide()]
      const shown = ({ status, verdicts }: Outcome) => [
        status,
        ...verdicts.map(({ rule, mode, allowed, agrees, resetAfter, retryAfter, delay }) => ({
          rule: rule.name,
          mode,
          allowed,
          agrees,
          resetAfter,
          retryAfter,
          delay,
        })),
      ]
      expect(shown(repeated)).toEqual(shown(decided))
      // Between the retry time and the reset, the isolate does not know how much has refilled.
      for (const [i, { remaining, resetAfter }] of decided.verdicts.entries()) {
        const known = repeated.verdicts[i]!.remaining
        if (resetAfter === 0) expect(known).toBe(remaining)
        else expect(known).toBeLessThanOrEqual(remaining)
      }
    }
  })
})
