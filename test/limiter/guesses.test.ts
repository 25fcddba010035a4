/** Guesses that the isolate has refused by itself: what of them travels with a trip, and what never does. */
import { beforeEach, describe, expect, it } from 'vitest'
import { ALL_ALGORITHMS } from '../../src/algorithms/all.ts'
import { compileGatewayRule } from '../../src/config/compile-rule.ts'
import { GatewayError } from '../../src/errors.ts'
import { createKnownAnswers } from '../../src/limiter/answers/known.ts'
import { createRefusalMemory } from '../../src/limiter/answers/refusals.ts'
import type { DemandedRule } from '../../src/limiter/bind.ts'
import { createGuesses } from '../../src/limiter/guesses.ts'
import { NO_SWITCHES, type Switches } from '../../src/switches/switches.ts'
import { keysOf, type Load, type TripInfo } from '../../src/trips/rider.ts'
import { ruleSetOf } from '../support/rule-set.ts'

const [PER_ADDRESS, PER_ROUTE] = (['address', ['address', 'route']] as const).map(
  by =>
    compileGatewayRule(
      {
        ...{ name: `guesses-${by.length}`, by: by as 'address', on: 'auth-failure' },
        ...{ algorithm: 'fixed-window', limit: 20, period: '300d' },
      },
      ['free'],
      ALL_ALGORITHMS,
    )[0]!,
)
const ruleSet = ruleSetOf([{ rule: PER_ADDRESS!, key: 'address' }], { hasSubject: true })
const ruleSetOfBoth = ruleSetOf(
  [
    { rule: PER_ADDRESS!, key: 'address' },
    { rule: PER_ROUTE!, key: 'route' },
  ],
  { hasSubject: true },
)
const of = (address: number): DemandedRule[] => [
  { rule: PER_ADDRESS!, key: `sluice:{a:${address}}:state`, cost: 1 },
]

let now: number
let switches: Switches
let guesses: ReturnType<typeof createGuesses>

beforeEach(() => {
  now = 1e12
  switches = NO_SWITCHES
  const known = createKnownAnswers(
    () => now,
    () => switches,
  )
  guesses = createGuesses(known, createRefusalMemory(known, 1000), {
    clock: { now: () => now },
    switchName: ({ name }) => name,
  })
})

const note = (address: number) => guesses.note({ ruleSet, rules: of(address) })
const load = (trip: Partial<TripInfo> = {}): Load | undefined =>
  guesses.rider.load({ calls: [], isAlone: false, isAnswering: true, keysPerCall: 50, ...trip })
/** The costs of the calls for each address. */
const costsIn = (loaded: Load | undefined) => {
  const costs: Record<string, number[]> = {}
  for (const call of loaded?.calls ?? []) {
    const { keys, args } = call as unknown as { keys: string[]; args: string[] }
    costs[keys[0]!] = [...(costs[keys[0]!] ?? []), Number(args.at(-1)) || 1]
  }
  return costs
}

describe('guesses that make no trip', () => {
  it('travel once, in calls whose last one is a single guess, and at most as many as the limit and one', () => {
    for (let i = 0; i < 5; i++) note(1)
    for (let i = 0; i < 10_000; i++) note(2)
    const all = Object.values(costsIn(load())).map(costs => [costs.reduce((a, b) => a + b), costs.at(-1)])
    expect(all).toEqual([
      [5, 1],
      [21, 1],
    ])
    now += 1000
    expect(load()).toBeUndefined()
  })

  it('make no trip of their own', () => {
    note(1)
    expect(guesses.rider.aloneAfterMs?.()).toBeUndefined()
  })

  it('of many addresses travel a few at a time, with a pause, and those that do not fit are dropped', () => {
    for (let address = 0; address < 5000; address++) note(address)
    let sent = 0
    for (let trip = 0; trip < 1000; trip++) {
      const { calls, done } = load() ?? { calls: [], done: () => {} }
      expect(calls.length).toBeLessThanOrEqual(20)
      expect(load()).toBeUndefined()
      sent += calls.length
      done(calls.map(() => [0, '', 0, -1, 0, 0]))
      now += 100
    }
    expect(sent).toBe(1000)
  })

  /** Ten seconds with 10,000 guesses and 100 trips each. The store admits 20 guesses of an address. */
  function flood(addresses: number) {
    const spent = new Map<string, number>()
    const perSecond: number[] = []
    let refused = 0
    for (let tick = 0; tick < 1000; tick++) {
      for (let i = 0; i < 100; i++) refused += note((tick * 100 + i) % addresses) ? 1 : 0
      const { calls, done } = load() ?? { calls: [], done: () => {} }
      const second = Math.floor(tick / 100)
      perSecond[second] = (perSecond[second] ?? 0) + calls.length
      done(
        calls.map(call => {
          const { keys, args } = call as unknown as { keys: string[]; args: string[] }
          const before = spent.get(keys[0]!) ?? 0
          const after = before + (Number(args.at(-1)) || 1)
          if (after > 20) return [0, '', now * 1e3, 3600e6, 20 - before, 3600e6]
          spent.set(keys[0]!, after)
          return [-1, '', now * 1e3, 0, 20 - after, 3600e6]
        }),
      )
      now += 10
    }
    return { perSecond, refused, spent: spent.get('sluice:{a:0}:state') }
  }

  it('of one address in a flood cost five commands, until the isolate refuses them by itself', () => {
    const { perSecond, refused, spent } = flood(1)
    expect(perSecond).toEqual([5, ...Array(9).fill(0)])
    expect(spent).toBe(20)
    expect(refused).toBe(99_900)
  })

  it('of 5,000 addresses in a flood cost at most 20 commands a second', () => {
    const { perSecond } = flood(5000)
    expect(Math.max(...perSecond)).toBeLessThanOrEqual(20)
    expect(Math.min(...perSecond)).toBeGreaterThan(0)
  })

  it('wait while the store does not answer, and are lost with a trip', () => {
    note(1)
    expect(load({ isAnswering: false })).toBeUndefined()
    load()!.done([new GatewayError('ERR_STORE_TIMEOUT', 'late')])
    note(2)
    // On a cluster, decisions wait for the node that has not answered.
    now += 9999
    expect(load()).toBeUndefined()
    now += 1
    expect(Object.keys(costsIn(load()))).toEqual(['sluice:{a:2}:state'])
    expect(note(1)).toBeUndefined()
  })

  it('are dropped if no trip leaves within a minute: the store would count old guesses as new ones', () => {
    for (let i = 0; i < 5; i++) note(1)
    note(2)
    now += 59_999
    note(2)
    expect(Object.keys(costsIn(load()))).toHaveLength(2)
    for (let i = 0; i < 5; i++) note(1)
    note(2)
    now += 60_000
    note(2)
    expect(costsIn(load())).toEqual({ 'sluice:{a:2}:state': [1] })
  })

  it('are dropped if the switches have changed, because their rule may be off', () => {
    note(1)
    switches = { ...NO_SWITCHES }
    expect(load()?.calls ?? []).toEqual([])
  })

  it('are refused once the store has refused one, until the store would admit them again', () => {
    note(1)
    const at = now * 1e3
    load()!.done([[0, '', at, 60e6, 0, 60e6]])
    expect(note(1)).toMatchObject({ kind: 'denied', from: 'refusals', retryAfter: 60e6 })
    expect(note(2)).toBeUndefined()
    now += 59_000
    expect(note(1)).toMatchObject({ kind: 'denied', retryAfter: 1e6 })
    now += 2000
    expect(note(1)).toBeUndefined()
  })

  it('have a call for each key on a cluster', () => {
    const rules = [...of(1), { rule: PER_ROUTE!, key: 'sluice:{b}:state', cost: 1 }]
    const noteBoth = () => guesses.note({ ruleSet: ruleSetOfBoth, rules })
    noteBoth()
    const together = load({ keysPerCall: 50 })!
    expect(together.calls).toHaveLength(1)
    together.done([[-1, '', 1, 0, 5, 1, 0, 5, 1]])
    now += 1000
    noteBoth()
    const calls = load({ keysPerCall: 1 })!.calls
    expect(calls.map(keysOf)).toEqual([['sluice:{a:1}:state'], ['sluice:{b}:state']])
  })

  it.each([
    ['one slot has refused', [0, 60e6], [-1, 0], true],
    ['the other has refused', [-1, 0], [0, 60e6], true],
    ['one has refused, and the other has not answered', [0, 60e6], undefined, true],
    ['none has refused', [-1, 0], [-1, 0], false],
    ['none has answered', undefined, undefined, false],
  ] as const)('are refused on a cluster if %s: %j', (_, ofAddress, ofRoute, isRefused) => {
    const rules = [...of(1), { rule: PER_ROUTE!, key: 'sluice:{b}:state', cost: 1 }]
    const noteBoth = () => guesses.note({ ruleSet: ruleSetOfBoth, rules })
    noteBoth()
    const failed = new GatewayError('ERR_STORE_TIMEOUT', 'late')
    const [absent, at] = [[-2, 0, 0], now * 1e3]
    load({ keysPerCall: 1 })!.done([
      ofAddress ? [ofAddress[0], '', at, ofAddress[1], 0, 60e6, ...absent] : failed,
      ofRoute ? [ofRoute[0], '', at, ...absent, ofRoute[1], 0, 60e6] : failed,
    ])
    const refusal = noteBoth()
    expect(refusal?.kind).toBe(isRefused ? 'denied' : undefined)
    if (isRefused) expect(refusal).toMatchObject({ from: 'refusals', retryAfter: 60e6 })
    // Guesses of another address go on.
    expect(note(2)).toBeUndefined()
    now += 59_000
    expect(noteBoth()?.kind).toBe(isRefused ? 'denied' : undefined)
  })
})
