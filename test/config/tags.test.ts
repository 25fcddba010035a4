/** The tags of rules: the store has records with them, so a rule keeps its tag, and no two rules of a config have the same one. */
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ALGORITHM_NAMES, descriptionOf } from '../../src/algorithms/index.ts'
import { BASE62 } from '../../src/base62.ts'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput, LimitRuleInput, RuleInput } from '../../src/config/check/schema.ts'
import type { Rule } from '../../src/config/compile.ts'
import { findFreeTag, tagOf, withUniqueTags } from '../../src/config/tags.ts'
import { randomCases } from '../selection.ts'
import { forEvery } from '../support/property.ts'
import { listOf } from '../support/traffic.ts'

const windowOf = (name: string, numbers: object = {}) =>
  ({
    ...{ name, by: 'consumer', algorithm: 'fixed-window', limit: 100, period: '1h' },
    ...numbers,
  }) as RuleInput
const rulesOf = (...rules: RuleInput[]) => checkedConfig({ rules }).rules

const tagsOf = (rules: readonly Rule[]) => rules.map(({ name, tag }) => [name, tag])

/** Expects that no two rules share a tag or a family. The variants of a rule for several plans have one name. */
function expectOwnTags(rules: readonly Rule[]): void {
  for (const key of ['tag', 'family'] as const) {
    const owners = new Map<string, string>()
    for (const rule of rules) {
      const owner = owners.get(rule[key]) ?? rule.name
      if (owner !== rule.name) expect.fail(`${owner} and ${rule.name} have the same ${key} ${rule[key]}`)
      owners.set(rule[key], rule.name)
    }
  }
}

/** Three names whose windows have the same hash. */
const SAME = ['w-2320', 'w-2328', 'w-4331'] as const

describe('a tag', () => {
  it('never changes, because the store has records with it', () => {
    const { rules, limits } = checkedConfig({
      plans: ['free', 'pro'],
      rules: [
        windowOf('hour', { algorithm: 'gcra', burst: 10, plans: { pro: { limit: 1000 } } }),
        windowOf('window', { period: '1m', plans: { pro: { limit: 1000 } } }),
        windowOf('month', { period: 'month', timeZone: 'Europe/Berlin' }),
        windowOf('sliding', { by: 'address', algorithm: 'sliding-window', period: '1m' }),
        windowOf('log', { by: 'address', algorithm: 'sliding-log', period: '1m' }),
        windowOf('bucket', { by: 'address', algorithm: 'token-bucket', period: '1m' }),
        windowOf('queue', { by: 'address', algorithm: 'leaky-bucket', period: '1m', queue: 7 }),
        { name: 'slots', by: 'address', algorithm: 'concurrency', limit: 100 },
      ],
      limits: { mails: [{ name: 'hour', algorithm: 'gcra', limit: 100, period: '1h' }] },
      shedding: {
        classes: [{ name: 'a', match: { path: '/a' } }, { name: 'b' }],
        fleetUsage: { capacity: 100 },
      },
    })
    const all = [...rules, ...limits.get('mails')!]
    expect(all.map(({ name, tag, family }) => `${name} ${tag} ${family}`)).toEqual([
      ...['hour ZX8 r7d', 'hour Fzj r7d', 'window aYr aYr', 'window aYr aYr', 'month 1xI 1xI'],
      ...['sliding s3M s3M', 'log 66c 66c', 'bucket jJL jng', 'queue Wkh T92', 'slots nca nca'],
      ...['fleet-usage Q75 Q75', 'fleet-usage-b 5GZ 5GZ', 'hour dWH r7d'],
    ])
  })

  it('is the hash of the first of several rules with the same hash; the others get other tags', () => {
    const [first, second, third] = SAME
    const hash = tagOf([first, 'fixed-window', 3600e6])
    const rules = rulesOf(windowOf(first), windowOf(second), windowOf(third))
    expectOwnTags(rules)
    expect(rules[0]!.tag).toBe(hash)
    // The tags of the others never change either.
    expect(rules[1]!.tag).toBe(tagOf([second, hash, 1]))
    expect(rules[2]!.tag).toBe(tagOf([third, hash, 1]))
    // Alone, each has the hash, as in configs of before.
    for (const name of SAME) expect(rulesOf(windowOf(name))[0]!.tag).toBe(hash)
  })

  it('stays if rules are added behind it', () => {
    const [first, second, third] = SAME
    const before = rulesOf(windowOf(first), windowOf(second))
    const after = rulesOf(windowOf(first), windowOf(second), windowOf('new'), windowOf(third))
    expect(tagsOf(after).slice(0, 2)).toEqual(tagsOf(before))
  })

  it('of a rule with its own hash stays wherever the rule is', () => {
    const [first, second] = SAME
    const [a, b, own] = [windowOf(first), windowOf(second), windowOf('own')]
    const tagIn = (...rules: RuleInput[]) => rulesOf(...rules).find(({ name }) => name === 'own')!.tag
    expect([tagIn(a, own, b), tagIn(own, b, a), tagIn(b, own)]).toEqual([
      ...[tagIn(own), tagIn(own), tagIn(own)],
    ])
  })

  it('is that of the rule for every plan if its state does not depend on the limit', () => {
    const [first, second] = SAME
    const { rules } = checkedConfig({
      plans: ['free', 'pro'],
      rules: [windowOf(first), windowOf(second, { plans: { pro: { limit: 7 } } })],
    })
    expect(rules[2]!.tag).toBe(rules[1]!.tag)
    expectOwnTags(rules)
  })

  it('is unique in a limit by name', () => {
    const limit = SAME.map(name => ({ name, algorithm: 'fixed-window', limit: 1, period: '1h' }) as const)
    const rules = checkedConfig({ limits: { mails: limit as LimitRuleInput[] } }).limits.get('mails')!
    expect(rules).toHaveLength(3)
    expectOwnTags(rules)
  })

  it('of a shedder is not that of a rule', () => {
    const hash = tagOf(['fleet-usage', 'concurrency', 15e6])
    // A rule with this name has the same hash.
    const name = 'slots-400350'
    const { rules } = checkedConfig({
      rules: [{ name, by: 'consumer', algorithm: 'concurrency', limit: 9 }],
      shedding: {
        classes: [{ name: 'a', match: { path: '/a' } }, { name: 'b' }],
        fleetUsage: { capacity: 100 },
      },
    })
    expect(rules[0]!.tag).toBe(hash)
    expectOwnTags(rules)
  })

  it('is found even if nearly all tags are taken', () => {
    const owners = new Map<string, string>()
    const letters = [...BASE62]
    const pairs = letters.flatMap(first => letters.map(second => first + second))
    // Tags with one of six last letters are free.
    for (const last of letters.slice(6)) for (const pair of pairs) owners.set(pair + last, 'other')
    expect(owners.has(findFreeTag('mine', owners.keys().next().value!, owners))).toBe(false)
  })
})

describe('a config of up to 200 rules and 12,000 numbers for plans', () => {
  const config = fc.record({
    rules: fc.integer({ min: 1, max: 200 }),
    /** The share of the 12,000 that the plans take. */
    share: fc.constantFrom(0.1, 0.5, 1, 1),
    /** Rules differ in their names, or also in their algorithms. */
    algorithms: listOf(fc.constantFrom(...ALGORITHM_NAMES), 4),
    salt: fc.nat(1e6),
  })

  const ruleOf = (name: string, algorithm: RuleInput['algorithm'], limit: number, plans: string[]) => {
    const period = 'period' in descriptionOf({ algorithm }).parameters ? { period: '1m' } : {}
    const numbers = plans.map((plan, p) => [plan, { limit: limit + p + 1 }])
    return {
      ...{ name, by: 'consumer', algorithm, limit, ...period },
      plans: Object.fromEntries(numbers),
    } as RuleInput
  }

  it('is accepted, and each rule has a tag and a family of its own', async () => {
    await forEvery(config, randomCases(20), async ({ rules, share, algorithms, salt }) => {
      const plans = Array.from({ length: Math.floor((share * 12_000) / rules) }, (_, p) => `plan-${p}`)
      const input: ConfigInput = {
        plans,
        rules: Array.from({ length: rules }, (_, i) =>
          ruleOf(`r${salt}-${i}`, algorithms[i % (algorithms.length || 1)] ?? 'gcra', 100 + i, plans),
        ),
      }
      const compiled = checkedConfig(input).rules
      expect(compiled).toHaveLength(rules * (plans.length + 1))
      expectOwnTags(compiled)
      // The rules before the last one have the same tags without it.
      const before = checkedConfig({ ...input, rules: input.rules!.slice(0, -1) }).rules
      expect(tagsOf(compiled.slice(0, before.length))).toEqual(tagsOf(before))
    })
  }, 60_000)

  it('can have 200 plans × 6 rules, of which many have the same hash', () => {
    const plans = Array.from({ length: 200 }, (_, p) => `plan-${p}`)
    const rules = Array.from({ length: 6 }, (_, i) => ruleOf(`rule-${i}`, 'gcra', 100 + 1000 * i, plans))
    const compiled = checkedConfig({ plans, rules }).rules
    expect(compiled).toHaveLength(1206)
    expectOwnTags(compiled)
    const again = withUniqueTags(compiled)
    expect(tagsOf(again)).toEqual(tagsOf(compiled))
  })
})
