/** The memory of refusals: it is bounded, and agrees with the store. test/gateway/refusals.test.ts tests it with the gateway. */
import { describe, expect, it } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import { createOwnAnswers } from '../../src/limiter/own-answers.ts'
import { createRefusalMemory, type LookupPhase } from '../../src/limiter/refusals.ts'
import type { Evaluation, Outcome } from '../../src/script/evaluation.ts'
import { ScriptModel } from '../../src/script/model.ts'
import type { Policy } from '../../src/script/policy-shape.ts'
import { addressStateKey } from '../../src/store/keys.ts'
import { NO_SWITCHES } from '../../src/switches/switches.ts'
import { bound } from '../support/bound.ts'
import { rulesOf } from '../support/engines.ts'

const [rule] = rulesOf({ name: 'a', by: 'address', algorithm: 'gcra', limit: 1, period: '1s' })

const demandOf = (address: string, cost = 1): Evaluation => ({
  policy: {} as Policy,
  rules: [bound(rule!, addressStateKey(address), cost)],
})

/** @param retryAfter µs; -1: never */
const refusal = (retryAfter: number): Outcome => ({
  ...{ status: 'refused', plan: '', at: 1e15 },
  verdicts: [
    { rule: rule!, mode: 'enforce', allowed: false, remaining: 0, resetAfter: 2e6, retryAfter, delay: 0 },
  ],
})

function memory(rememberForMs = 1000) {
  const world = { time: 1e6 }
  const refusals = createRefusalMemory(rememberForMs, () => world.time)
  return {
    world,
    refusals,
    keep: (demand: Evaluation, outcome: Outcome, askedAt = world.time) =>
      refusals.remember(demand, outcome, NO_SWITCHES, { begunAt: askedAt, notSentBefore: askedAt }),
    find: (demand: Evaluation, when?: LookupPhase) => refusals.find(demand, NO_SWITCHES, undefined, when),
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
    const { world, refusals, find } = memory()
    const demand = demandOf('10.0.0.1')
    const answer = createOwnAnswers(refusals, undefined)!.forRequest(demand, NO_SWITCHES, () => NO_SWITCHES)
    answer.beginTrip()
    world.time += 1500
    expect(answer.listener.isNoLongerNeeded()).toBe(false)
    world.time += 40
    answer.endTrip(refusal(5e6))
    world.time += 959
    expect(Boolean(find(demand))).toBe(true)
    world.time += 1
    expect(find(demand)).toBeUndefined()
  })

  it('counts the times down from the arrival of the reply, even if its request notices the reply later', () => {
    const { world, refusals, find } = memory()
    const demand = demandOf('10.0.0.1')
    const answer = createOwnAnswers(refusals, undefined)!.forRequest(demand, NO_SWITCHES, () => NO_SWITCHES)
    answer.beginTrip()
    answer.listener.isNoLongerNeeded()
    world.time += 40
    answer.listener.noteArrival()
    world.time += 700
    answer.endTrip(refusal(5e6))
    expect(find(demand)!.verdicts[0]).toMatchObject({ retryAfter: 4.3e6 })
  })

  it('discards a refusal if a change was made while its request waited for its turn', () => {
    const { world, refusals, find } = memory()
    const demand = demandOf('10.0.0.1')
    const answer = createOwnAnswers(refusals, undefined)!.forRequest(demand, NO_SWITCHES, () => NO_SWITCHES)
    answer.beginTrip()
    world.time += 10
    refusals.forget([addressStateKey('10.0.0.1')])
    world.time += 10
    answer.listener.isNoLongerNeeded()
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
      const { world, keep, find } = memory(60_000)
      const demand = demandOf('10.0.0.1')
      keep(demand, refusal(waitMs * 1e3))
      world.time += waitMs - 100
      expect(Boolean(find(demand))).toBe(true)
      world.time -= fall
      expect(find(demand)).toBeUndefined()
      // If the trip of a refusal may have started before the clock was set back, the refusal would end too late.
      keep(demand, refusal(waitMs * 1e3), world.time + 1)
      expect(find(demand)).toBeUndefined()
      keep(demand, refusal(waitMs * 1e3), world.time - 50)
      expect(find(demand)).toBeUndefined()
      world.time += Math.min(fall, 2000) + 1
      keep(demand, refusal(waitMs * 1e3))
      expect(Boolean(find(demand))).toBe(true)
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
    const { world, refusals, keep, find } = memory()
    const askedAt = world.time
    world.time += 5
    refusals.forget([addressStateKey('10.0.0.1')])
    world.time += 5
    keep(demandOf('10.0.0.1'), refusal(-1), askedAt)
    expect(find(demandOf('10.0.0.1'))).toBeUndefined()
    keep(demandOf('10.0.0.1'), refusal(-1))
    expect(Boolean(find(demandOf('10.0.0.1')))).toBe(true)
  })
})

describe('a repeated refusal has the verdicts of the store', () => {
  const POLICY = { plans: ['free'] } as unknown as Policy
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
      policy: POLICY,
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
