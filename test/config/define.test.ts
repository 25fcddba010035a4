/** The types of a config show mistakes in editors. The check refuses most of them too. */
import { expect, it } from 'vitest'
import { checkConfig } from '../../src/config/check/check.ts'
import type { ConfigInput, HooksInput } from '../../src/config/check/schema.ts'
import { defineConfig } from '../../src/config/define.ts'
import type { PlanHook } from '../../src/config/hooks.ts'

const RULE = { name: 'a', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' } as const
const OF_TOKENS = { ...RULE, unit: 'tokens' } as const
const TOKENS = { tokens: { estimate: 10 } } as const

it('accepts the numbers of the algorithm', () => {
  const config = defineConfig({
    origin: 'route',
    rules: [{ ...RULE, burst: 20, plans: { free: { burst: 5 } } }],
  })
  expect(() => checkConfig(config)).not.toThrow()
})

const withRules = (...rules: NonNullable<ConfigInput['rules']>) => defineConfig({ origin: 'route', rules })

it.each([
  // @ts-expect-error
  ['an algorithm that is misspelled', withRules({ ...RULE, algorithm: 'gcrra' })],
  // @ts-expect-error
  ['a number of another algorithm', withRules({ ...RULE, queue: 3 })],
  // @ts-expect-error
  ['a period without a unit', withRules({ ...RULE, period: '1 sec' })],
  // @ts-expect-error
  ['a calendar period for an algorithm without calendar', withRules({ ...RULE, period: 'month' })],
  // @ts-expect-error
  ['an unknown identity part', withRules({ ...RULE, by: 'ip' })],
  // @ts-expect-error
  ['a rule without numbers', withRules({ name: 'a', by: 'consumer' })],
  // @ts-expect-error
  ['a duration that is a number', defineConfig({ ...withRules(RULE), store: { deadline: 250 } })],
])('refuses %s, in the types and in the check', (_, config) => {
  expect(() => checkConfig(config)).toThrow()
})

it('accepts the plans, routes and rules that the config declares', () => {
  const config = defineConfig({
    origin: 'route',
    plans: ['free', 'pro'],
    routes: [{ name: 'reports', match: { path: '/reports/*' } }],
    rules: [
      { ...RULE, match: { plans: ['pro'], routes: ['reports'] }, plans: { pro: { limit: 20 } } },
      { ...RULE, name: 'b', by: 'address', plans: { free: false }, candidateFor: 'a' },
    ],
    hooks: {
      plan: async (_, { route }) => (route === 'reports' ? 'pro' : undefined),
      cost: (_, { route, cost }) => (route === 'reports' ? 2 * cost : cost),
      deadline: '100ms',
    },
  })
  expect(() => checkConfig(config)).not.toThrow()
})

/** A function for each config, so that each error is expected at its own line. */
const misnamed = {
  'a plan that is not declared': () =>
    defineConfig({
      origin: 'route',
      plans: ['free', 'pro'],
      // @ts-expect-error Type '"prp"' is not assignable to type '"free" | "pro"'.
      rules: [{ ...RULE, match: { plans: ['prp'] } }],
    }),
  'numbers for a plan that is not declared': () =>
    defineConfig({
      origin: 'route',
      plans: ['free', 'pro'],
      // @ts-expect-error 'gold' does not exist in type '{ free?: …, pro?: … }'
      rules: [{ ...RULE, plans: { gold: { limit: 20 } } }],
    }),
  'a route that is not declared': () =>
    defineConfig({
      origin: 'route',
      routes: [{ name: 'reports', match: { path: '/reports/*' } }],
      // @ts-expect-error Type '"report"' is not assignable to type '"reports"'.
      rules: [{ ...RULE, match: { routes: ['report'] } }],
    }),
  'a unit that is not declared': () =>
    defineConfig({
      origin: 'route',
      units: TOKENS,
      // @ts-expect-error Type '"token"' is not assignable to type '"tokens" | "requests" | undefined'.
      rules: [{ ...RULE, unit: 'token' }],
    }),
  'a unit in a config without units': () =>
    // @ts-expect-error Type '"tokens"' is not assignable to type '"requests" | undefined'.
    defineConfig({ origin: 'route', rules: [OF_TOKENS] }),
  'a unit of a limit that is not declared': () =>
    defineConfig({
      units: TOKENS,
      // @ts-expect-error Type '"token"' is not assignable to type '"tokens" | "requests" | undefined'.
      limits: { api: [{ ...RULE, by: ['user'], unit: 'token' }] },
    }),
  'a candidate for a rule that does not exist': () =>
    // @ts-expect-error Type '"c"' is not assignable to type '"a" | "b" | undefined'.
    defineConfig({ origin: 'route', rules: [RULE, { ...RULE, name: 'b', candidateFor: 'c' }] }),
}

it.each(Object.entries(misnamed))('refuses %s, in the types and in the check', (_, config) => {
  expect(() => checkConfig(config())).toThrow()
})

it('accepts only declared plans, routes and units in hooks', () => {
  const routes = [{ name: 'reports', match: { path: '/reports/*' } }] as const
  const planOfStore = (): string => 'pro'
  const configs = [
    // @ts-expect-error Type '"gold"' is not assignable to type '"free" | "pro"'.
    defineConfig({ plans: ['free', 'pro'], rules: [RULE], hooks: { plan: () => 'gold' } }),
    // @ts-expect-error The same, in a hook that is asynchronous.
    defineConfig({ plans: ['free', 'pro'], rules: [RULE], hooks: { plan: async () => 'gold' } }),
    // @ts-expect-error The same, in a config without rules.
    defineConfig({ plans: ['free', 'pro'], hooks: { plan: () => 'gold' } }),
    // @ts-expect-error Type 'string' is not assignable to type '"free" | "pro"'.
    defineConfig({ plans: ['free', 'pro'], hooks: { plan: planOfStore } }),
    // @ts-expect-error Type '{ token: number }' has no properties in common with type '{ tokens?: number }'.
    defineConfig({ units: TOKENS, rules: [OF_TOKENS], hooks: { amounts: () => ({ token: 5 }) } }),
    // @ts-expect-error The types '"reports"' and '"report"' have no overlap.
    defineConfig({ routes: [...routes], hooks: { skip: (_, { route }) => route === 'report' } }),
  ]
  // The check does not call hooks.
  for (const config of configs) expect(() => checkConfig(config)).not.toThrow()

  const isPlan = (plan: string) => plan === 'free' || plan === 'pro'
  const planOf: PlanHook<'free' | 'pro'> = () => [planOfStore()].find(isPlan)
  expect(() => checkConfig(defineConfig({ plans: ['free', 'pro'], hooks: { plan: planOf } }))).not.toThrow()
})

it('accepts the units that the config declares', () => {
  const config = defineConfig({
    origin: 'route',
    units: { tokens: { estimate: 10 }, images: { actual: 'hook', estimate: 1 } },
    rules: [RULE, { ...RULE, name: 'b', unit: 'tokens' }, { ...RULE, name: 'c', unit: 'images' }],
    limits: {
      api: [
        { ...RULE, by: ['user'], unit: 'tokens' },
        { ...RULE, name: 'b', by: ['user'] },
      ],
    },
    hooks: { amounts: async () => ({ tokens: 5 }), actual: () => ({ images: 2 }) },
  })
  expect(() => checkConfig(config)).not.toThrow()
})

it('accepts a generated config, whose names only the check can compare', () => {
  const rules: ConfigInput['rules'] = [{ ...RULE, match: { plans: ['free'] } }]
  const hooks: HooksInput = { plan: () => 'free' }
  const made: ConfigInput = { origin: 'route', plans: ['free'], rules }
  const units: ConfigInput['units'] = TOKENS
  for (const config of [
    defineConfig(made),
    defineConfig({ ...made, origin: 'route' }),
    defineConfig({ origin: 'route', plans: ['free'], rules }),
    defineConfig({ origin: 'route', plans: ['free'], rules: [...rules, { ...RULE, name: 'b' }] }),
    defineConfig({ ...made, plans: ['free'], hooks }),
    defineConfig({ rules, hooks: { plan: () => 'free' } }),
    defineConfig({ origin: 'route', units, rules: [OF_TOKENS] }),
    defineConfig({ hooks }),
  ]) {
    expect(() => checkConfig(config)).not.toThrow()
  }
})
