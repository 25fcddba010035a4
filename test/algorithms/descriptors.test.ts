/** Compares the descriptors with the models, the Lua files, the store and the config. */

import { existsSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { IDLE } from '../../src/algorithms/algorithm.ts'
import { ALL_ALGORITHMS, countings } from '../../src/algorithms/all.ts'
import type { Parameter, Units } from '../../src/algorithms/descriptor.ts'
import { ALGORITHM_NAMES, descriptionOf } from '../../src/algorithms/index.ts'
import { luaOf } from '../../src/algorithms/lua-of.ts'
import { planUnits } from '../../src/algorithms/plan-units.ts'
import { unitsAtOnce } from '../../src/algorithms/units-at-once.ts'
import type { LimitRuleInput } from '../../src/config/check/rule-schema.ts'
import { canBeLeased, compileLimitRule } from '../../src/config/compile-rule.ts'

const ruleOf = (numbers: object) =>
  compileLimitRule({ name: 'a', ...numbers } as LimitRuleInput, ALL_ALGORITHMS)

describe.each(ALGORITHM_NAMES)('the descriptor of %s', algorithm => {
  const description = descriptionOf({ algorithm })
  const { state, local } = countings[algorithm]
  const rule = ruleOf({ algorithm, limit: 10, period: '10s' })

  /** Two names have one code. */
  const file = new URL(
    `../../src/algorithms/${algorithm === 'token-bucket' ? 'gcra' : algorithm}.lua`,
    import.meta.url,
  )

  it('has the same name as in the index, and a Lua file', () => {
    expect(description.parameters.algorithm).toEqual({ kind: 'name', is: algorithm })
    expect(existsSync(file)).toBe(true)
  })

  it('names the parameter for the units that can come at once, and reads its value from a rule', () => {
    const atOnce = unitsAtOnce(description.numbers, rule.quota.burst)
    if (atOnce) expect(description.parameters).toHaveProperty(atOnce.parameter)
    expect(atOnce?.units ?? rule.quota.burst).toBe(10)
  })

  it('has the numbers that plans can set: the limit with its maximum, and the units at once', () => {
    const { maxLimit, atOnce } = description.numbers
    const ofPlans = Object.entries<Parameter>(description.parameters).filter(([, each]) => 'forPlans' in each)
    expect(ofPlans.map(([name]) => name)).toEqual(['limit', ...(atOnce ? [atOnce.parameter] : [])])
    expect(description.parameters.limit).toMatchObject({ kind: 'units' })
    expect((description.parameters.limit as Units).high).toBe(maxLimit)
  })

  it('has the numbers that its Lua file names, in the same order', () => {
    const text = readFileSync(file, 'utf8')
    const named = [...text.matchAll(/^--@ (?:numbers|text) (.+)$/gm)].flatMap(([, names]) =>
      names!.split(', '),
    )
    expect(luaOf(algorithm)!.numbers).toEqual(named)
  })

  it('gives a rule another tag when its limit changes, but only if the state is a time', () => {
    const other = ruleOf({ algorithm, limit: 20, period: '10s' })
    expect(other.tag !== rule.tag).toBe(state === 'time')
    expect(other.family).toBe(rule.family)
  })

  it('gives a reason against leases if and only if its rules cannot have one', () => {
    const input = { name: 'a', algorithm, limit: 10, period: '10s' } as LimitRuleInput
    expect(description.whyNoLease === undefined).toBe(canBeLeased(input, { state }))
  })

  it('lets an isolate admit a share of the limit locally, with a state of two numbers', () => {
    const quota = local.shareOf(rule.quota, 5, 0.5)
    const now = Date.UTC(2026, 10, 20, 12) * 1e3
    let state = IDLE
    let admitted = 0
    for (let i = 0; i < 10; i++) {
      // Units in flight come from the holding, not from the state.
      const holding = { holder: 'isolateA', epoch: 1, started: admitted, ended: 0 }
      const { after } = local.model.decide({ quota, state, now, holding, cost: 1 })
      if (after) admitted += 1
      state = after?.state ?? state
    }
    expect(admitted).toBe(5)
    expect(state).toHaveLength(2)
  })
})

it('plans and overrides can change the parameters that the descriptors name, down to their lower bounds', () => {
  const having = (parameter: string) =>
    ALGORITHM_NAMES.filter(algorithm => parameter in descriptionOf({ algorithm }).parameters)
  expect([...planUnits].map(([name, { low, algorithms }]) => [name, low, algorithms])).toEqual([
    ['limit', 1, ALGORITHM_NAMES],
    ['burst', 1, having('burst')],
    ['queue', 0, having('queue')],
  ])
})

it.each([
  [{ algorithm: 'gcra', limit: 10, period: '1s' }, 'W1O'],
  [{ algorithm: 'gcra', limit: 10, period: '1s', burst: 20 }, 'T0O'],
  [{ algorithm: 'token-bucket', limit: 10, period: '1s' }, '5px'],
  [{ algorithm: 'leaky-bucket', limit: 10, period: '1s', queue: 5 }, '3Es'],
  [{ algorithm: 'fixed-window', limit: 10, period: '1s' }, 'AGt'],
  [{ algorithm: 'fixed-window', limit: 10, period: '1s', start: 'clock' }, 'AGt'],
  [{ algorithm: 'fixed-window', limit: 10, period: '1s', start: 'first-request' }, 'iON'],
  [{ algorithm: 'fixed-window', limit: 10, period: 'month', timeZone: 'Europe/Berlin' }, 'ILP'],
  [{ algorithm: 'sliding-window', limit: 10, period: '1s' }, '8Hp'],
  [{ algorithm: 'sliding-log', limit: 10, period: '1s' }, 'QgW'],
])('the tag of %j stays the same, so that a new deployment finds the existing records', (numbers, tag) => {
  expect(ruleOf(numbers).tag).toBe(tag)
})
