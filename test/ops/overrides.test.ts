/** Overrides: the numbers that an algorithm accepts, and those that a rule cannot have. */
import { describe, expect, it } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { compileOverride, statusOf } from '../../src/ops/overrides.ts'

const config = (...rules: RuleInput[]): ConfigInput => {
  const input: ConfigInput = { origin: 'route', plans: ['free', 'pro'], rules }
  checkedConfig(input)
  return input
}
const by = 'consumer'
const ALL = config(
  { name: 'gcra', by, algorithm: 'gcra', limit: 10, period: '1s', burst: 20 },
  { name: 'tokens', by, algorithm: 'token-bucket', limit: 60, period: '1m' },
  { name: 'queue', by, algorithm: 'leaky-bucket', limit: 10, period: '1s', queue: 5 },
  { name: 'month', by, algorithm: 'fixed-window', limit: 1000, period: 'month' },
  { name: 'first', by, algorithm: 'fixed-window', limit: 100, period: '1h', start: 'first-request' },
  {
    name: 'window',
    by: ['consumer', 'route'],
    algorithm: 'sliding-window',
    limit: 100,
    period: '1h',
    cost: 3,
  },
  { name: 'log', by: 'credential', algorithm: 'sliding-log', limit: 100, period: '1h' },
  { name: 'address', by: 'address', algorithm: 'gcra', limit: 10, period: '1s' },
  { name: 'plans', by, algorithm: 'gcra', limit: 10, period: '2s', plans: { pro: { limit: 100 } } },
  { name: 'off', by, algorithm: 'gcra', limit: 10, period: '3s', mode: 'off' },
)

describe('an override', () => {
  // The rule, the requested numbers, and the numbers of the override: rate, period, burst or step, limit, burst.
  it.each([
    ['gcra', { limit: 50 }, [1, 20_000, 20, 50, 20]],
    ['gcra', { burst: 7 }, [1, 100_000, 7, 10, 7]],
    ['gcra', { limit: 50, burst: 100 }, [1, 20_000, 100, 50, 100]],
    // A rule without its own burst uses the limit.
    ['tokens', { limit: 120 }, [1, 500_000, 120, 120, 120]],
    ['queue', { queue: 8 }, [1, 100_000, 9, 10, 9]],
    ['queue', { limit: 20, queue: 0 }, [1, 50_000, 1, 20, 1]],
    ['month', { limit: 5 }, [5, undefined, undefined, 5, 5]],
    ['first', { limit: 5 }, [5, 3600e6, undefined, 5, 5]],
    ['window', { limit: 500 }, [500, 3600e6, 1, 500, 500]],
    ['log', { limit: 7 }, [7, 3600e6, undefined, 7, 7]],
  ])('of %s with %j is compiled to %j', (rule, numbers, [rate, period, burstOrStep, limit, burst]) => {
    const override = compileOverride(ALL, { rule, ...numbers })
    expect(override.numbers).toEqual({
      tag: expect.stringMatching(/^\w{3}$/),
      rate,
      period: period ?? expect.any(Number),
      ...(burstOrStep !== undefined && { burstOrStep }),
      limit,
      burst,
    })
    // The numbers are those of a rule with the same settings.
    const written = ALL.rules!.find(({ name }) => name === rule)!
    const [compiled] = checkedConfig(config({ ...written, ...numbers } as RuleInput)).rules
    expect([override.family, override.numbers!.tag]).toEqual([compiled!.family, compiled!.tag])
    expect(compiled!.quota).toMatchObject({ rate, burst })
  })

  it('can change only the mode, and for a limited time', () => {
    const until = new Date('2030-01-01')
    expect(compileOverride(ALL, { rule: 'gcra', mode: 'shadow', until })).toEqual({
      family: expect.any(String),
      rule: 'gcra',
      mode: 'shadow',
      until: until.getTime() * 1000,
    })
  })

  it.each([
    ['gcra', {}, 'usage', /^No change is given\. Use --limit or --burst, or --mode\.$/],
    ['gcra', { limit: 0 }, 'usage', /^Rule 'gcra' cannot have these numbers:\n {2}limit: 0 is not an amount/],
    ['gcra', { limit: 1.5 }, 'usage', /limit: 1\.5 is not an amount/],
    [
      'gcra',
      { queue: 5 },
      'usage',
      /^--queue has no effect on rule 'gcra', whose algorithm is gcra\. Use --limit or --burst\.$/,
    ],
    [
      'queue',
      { burst: 5 },
      'usage',
      /^--burst has no effect on rule 'queue', whose algorithm is leaky-bucket\. Use --limit or --queue\.$/,
    ],
    [
      'month',
      { limit: 0, burst: 5 },
      'usage',
      /^--burst .* 'month', whose algorithm is fixed-window\. Use --limit\.$/,
    ],
    [
      'window',
      { burst: 5 },
      'usage',
      /^--burst has no effect on rule 'window', whose algorithm is sliding-window\./,
    ],
    ['plans', { queue: 5 }, 'usage', /^--queue has no effect on rule 'plans'/],
    ['tokens', { limit: 999_999_937, burst: 1e9 }, 'usage', /more than 2\^51 steps/],
    ['window', { limit: 2 ** 23 }, 'usage', /limit: 8388608 is too high/],
    ['window', { limit: 2 }, 'usage', /cost: 3 can never be admitted: it is above the limit of 2/],
    ['queue', { queue: 700 }, 'usage', /queue: 700 could delay a request by 70 s/],
    [
      'plans',
      { burst: 5 },
      'usage',
      /^Rule 'plans' has other limits for plans \(pro: 100\): an override needs --limit too\.$/,
    ],
    [
      'address',
      { limit: 5 },
      'refused',
      /^Rule 'address' cannot be overridden.* Rules by consumer: gcra, tokens/,
    ],
    ['nothing', { limit: 5 }, 'not-found', /^The config has no rule 'nothing' that counts by consumer/],
  ])('of %s with %j is not possible: %s', (rule, numbers, kind, message) => {
    expect(() => compileOverride(ALL, { rule, ...numbers })).toThrow(
      expect.objectContaining({ kind, message: expect.stringMatching(message) }),
    )
  })

  it('says whether it still applies', () => {
    const override = compileOverride(ALL, { rule: 'gcra', limit: 50 })
    const rule = ALL.rules![0]!
    expect(statusOf(override, ALL)).toBe('applies')
    expect(statusOf({ ...override, until: Date.now() * 1000 }, ALL)).toBe('over')
    expect(statusOf(override, config({ ...rule, limit: 7 } as RuleInput))).toBe('applies')
    expect(statusOf(override, config({ ...rule, period: '2s' } as RuleInput))).toBe('rule-changed')
    expect(statusOf(override, config({ ...rule, by: 'address' } as RuleInput))).toBe('rule-changed')
    expect(statusOf(override, config({ ...rule, name: 'other' } as RuleInput))).toBe('rule-gone')
    expect(statusOf(compileOverride(ALL, { rule: 'off', limit: 5 }), ALL)).toBe('rule-off')
  })
})
