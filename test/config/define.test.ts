/** What an editor says of a config: the types that follow from the schema refuse what the schema refuses. */
import { expect, it } from 'vitest'
import { checkConfig } from '../../src/config/check/check.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { defineConfig } from '../../src/config/define.ts'

const RULE = { name: 'a', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' } as const

it('takes numbers that the algorithm has', () => {
  const config = defineConfig({
    origin: 'route',
    rules: [{ ...RULE, burst: 20, plans: { free: { burst: 5 } } }],
  })
  expect(() => checkConfig(config)).not.toThrow()
})

const withRules = (...rules: ConfigInput['rules']) => defineConfig({ origin: 'route', rules })

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
  ['an unknown part to count by', withRules({ ...RULE, by: 'ip' })],
  // @ts-expect-error
  ['a rule without numbers', withRules({ name: 'a', by: 'consumer' })],
  // @ts-expect-error
  ['a duration that is a number', defineConfig({ ...withRules(RULE), store: { deadline: 250 } })],
])('refuses %s, in the types and in the check', (_, config) => {
  expect(() => checkConfig(config)).toThrow()
})
