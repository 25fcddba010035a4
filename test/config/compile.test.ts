import { describe, expect, it } from 'vitest'
import userConfig from '../../sluice.config.ts'
import { ALGORITHM_NAMES } from '../../src/algorithms/index.ts'
import { checkedConfig } from '../../src/config/check/check.ts'
import { ConfigError } from '../../src/config/config-error.ts'
import { parseDuration } from '../../src/config/duration.ts'
import { type IdentityPart, identityParts } from '../../src/config/identity-parts.ts'

const RULE = { name: 'a', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' }
const CONFIG = { origin: 'https://api.example.com', rules: [RULE] }

const withRule = (changes: object) => ({ ...CONFIG, rules: [{ ...RULE, ...changes }] })
const without = (key: string) => Object.fromEntries(Object.entries(RULE).filter(([name]) => name !== key))

function mistakesIn(config: unknown): string[] {
  try {
    checkedConfig(config)
    return []
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError)
    expect((error as ConfigError).code).toBe('ERR_CONFIG_INVALID')
    return (error as ConfigError).mistakes.map(({ path, message }) => `${path}: ${message}`)
  }
}

describe('the config that comes with the project', () => {
  it('has six limits, the same three for the consumer and for the address', () => {
    const { rules } = checkedConfig(userConfig)
    const limits = [
      [10, 1e6],
      [120, 60e6],
      [240, 3600e6],
    ]
    for (const by of ['consumer', 'address,mode']) {
      expect(rules.filter(rule => rule.by.join() === by).map(rule => [rule.limit, rule.period])).toEqual(
        limits,
      )
    }
  })
})

describe('a valid config', () => {
  it('gets its defaults', () => {
    expect(checkedConfig(CONFIG)).toMatchObject({
      originDeadlineMs: 30_000,
      onClientGone: 'wait',
      storeDeadlineMs: 250,
      plans: ['free'],
      credentials: { accept: ['api-key'], keyPrefix: 'slk', forward: false },
      routes: [],
      keyLocking: true,
      rules: [{ quota: { burst: 10 }, cost: 1, by: ['consumer'], on: 'request', match: {} }],
    })
  })

  it('with gcra reduces its rate to lowest terms, and keeps the limit and period as written', () => {
    const [rule] = checkedConfig(withRule({ limit: 240, period: '1h', burst: 20 })).rules
    expect(rule).toMatchObject({ limit: 240, period: 3600e6, quota: { rate: 1, period: 15e6, burst: 20 } })
  })

  it.each([
    ['1 per year', 1, '366d'],
    ['1e9 per second', 1e9, '1s'],
    ['1 per millisecond', 1, '1ms'],
    ['7 per day', 7, '1d'],
  ])('can have %s', (_, limit, period) => {
    expect(mistakesIn(withRule({ limit, period }))).toEqual([])
    expect(mistakesIn(withRule({ limit, period, algorithm: 'fixed-window' }))).toEqual([])
  })
})

describe('a lease', () => {
  const leasesIn = (settings: object, ...changes: object[]) => {
    const rules = changes.map((change, i) => ({ ...RULE, name: `r${i}`, ...change }))
    return checkedConfig({ ...CONFIG, ...settings, rules }).rules.map(({ lease }) => lease)
  }

  it('is that of the rule, or else that of the config; false means none', () => {
    const own = { lease: { for: '1s' } }
    expect(leasesIn({ lease: { for: '250ms' } }, {}, own, { lease: false })).toEqual([
      ...[{ forMs: 250 }, { forMs: 1000 }, undefined],
    ])
    expect(leasesIn({}, {}, own, { lease: false })).toEqual([undefined, { forMs: 1000 }, undefined])
  })

  it('of the config does not apply to sliding-log, concurrency and auth-failure', () => {
    const lease = { for: '250ms' } as const
    const numbers = (algorithm: string) =>
      algorithm === 'concurrency' ? { algorithm, limit: 10 } : { algorithm, limit: 10, period: '1s' }
    const rules = ALGORITHM_NAMES.map(name => ({ name, by: 'consumer', ...numbers(name) }))
    const guesses = { ...RULE, name: 'guesses', by: 'address', on: 'auth-failure' }
    const compiled = checkedConfig({ ...CONFIG, lease, rules: [...rules, guesses] }).rules
    expect(compiled.filter(rule => !rule.lease).map(({ name }) => name)).toEqual([
      ...['concurrency', 'sliding-log', 'guesses'],
    ])
  })

  it('applies to plans with their own numbers, and to limits by name', () => {
    const plans = { free: { limit: 5 } }
    expect(leasesIn({ lease: { for: '50ms' } }, { plans })).toEqual([{ forMs: 50 }, { forMs: 50 }])
    const { limits } = checkedConfig({
      ...CONFIG,
      lease: { for: '10s' },
      limits: { mails: [{ name: 'a', algorithm: 'gcra', limit: 10, period: '1s' }] },
    })
    expect(limits.get('mails')!.map(({ lease }) => lease)).toEqual([{ forMs: 10_000 }])
  })

  it('changes neither the tag nor the family of the rule', () => {
    const [plain] = checkedConfig(withRule({})).rules
    const [leased] = checkedConfig(withRule({ lease: { for: '1s' } })).rules
    expect([leased!.tag, leased!.family]).toEqual([plain!.tag, plain!.family])
  })
})

describe('a mistake', () => {
  const DURATION =
    "is not a duration. Write a number and a unit in quotes, as in '250ms', '1s', '15m', '1h' or '1d'."
  const SETTINGS =
    'Settings: name, unit, by, acrossModes, on, cost, countIf, match, plans, algorithm, limit, period'
  const MODES = 'mode, enforce, candidateFor, onStoreFailure, lease.'
  const listed = (items: readonly string[]) => `${items.slice(0, -1).join(', ')} or ${items.at(-1)}`
  const ALGORITHMS = listed(ALGORITHM_NAMES.map(name => `'${name}'`))
  const PARTS = Object.entries<IdentityPart>(identityParts).map(
    ([part, { isNamed }]) => `'${part}${isNamed ? ':<name>' : ''}'`,
  )

  it.each([
    ['no config', undefined, ['config: is missing. Write export default defineConfig({ … }).']],
    [
      'an origin that is not a URL',
      { ...CONFIG, origin: 'api.example.com' },
      [
        "origin: 'api.example.com' is not an origin. Write an http or https URL without query or credentials, such as " +
          "'https://api.example.com', or 'route'.",
      ],
    ],
    ['a period without unit', withRule({ period: '60' }), [`rules[0].period: '60' ${DURATION}`]],
    ['a period as a number', withRule({ period: 60 }), [`rules[0].period: 60 ${DURATION}`]],
    [
      'a period of less than a millisecond',
      withRule({ period: '0.5ms' }),
      [`rules[0].period: '0.5ms' ${DURATION}`],
    ],
    [
      'a period of zero',
      withRule({ period: '0s' }),
      ["rules[0].period: '0s' is out of range. Use a duration from '1ms' to '366d'."],
    ],
    [
      'a limit of zero',
      withRule({ limit: 0 }),
      ['rules[0].limit: 0 is not an amount. Write a whole number from 1 to 1000000000.'],
    ],
    [
      'a limit with a fraction',
      withRule({ limit: 1.5 }),
      ['rules[0].limit: 1.5 is not an amount. Write a whole number from 1 to 1000000000.'],
    ],
    [
      'a limit below one',
      withRule({ limit: 0.5 }),
      ['rules[0].limit: 0.5 is not an amount. Write a whole number from 1 to 1000000000.'],
    ],
    [
      'a limit as text',
      withRule({ limit: '10' }),
      ["rules[0].limit: '10' is not an amount. Write a whole number from 1 to 1000000000."],
    ],
    [
      'a rule without a limit',
      { ...CONFIG, rules: [without('limit')] },
      ['rules[0].limit: is missing. Write a whole number from 1 to 1000000000.'],
    ],
    [
      'a rule without an algorithm',
      { ...CONFIG, rules: [without('algorithm')] },
      [`rules[0].algorithm: is missing. Use ${ALGORITHMS}.`],
    ],
    [
      'an unknown algorithm',
      withRule({ algorithm: 'magic' }),
      [`rules[0].algorithm: 'magic' is not an algorithm. Use ${ALGORITHMS}.`],
    ],
    [
      'a misspelled setting',
      withRule({ brust: 3 }),
      [`rules[0].brust: is not a setting here. Did you mean 'burst'? ${SETTINGS}, burst, ${MODES}`],
    ],
    [
      'a burst for a fixed window',
      withRule({ algorithm: 'fixed-window', burst: 3 }),
      [`rules[0].burst: is not a setting here. ${SETTINGS}, timeZone, start, ${MODES}`],
    ],
    [
      'an unknown identity part',
      withRule({ by: 'user' }),
      [`rules[0].by: 'user' is not an identity part. Use ${listed(PARTS)}.`],
    ],
    [
      'a name with a space',
      withRule({ name: 'per second' }),
      ["rules[0].name: 'per second' is not a rule name. Use 1 to 63 lowercase letters, digits, '-' and '_'."],
    ],
    [
      'two rules with the same name',
      { ...CONFIG, rules: [RULE, RULE] },
      ["rules[1].name: 'a' is already the name of rules[0]. Give each rule its own name."],
    ],
    [
      'a cost above the burst',
      withRule({ cost: 11 }),
      ['rules[0].cost: 11 can never be admitted: it is above the burst of 10. Lower it.'],
    ],
    [
      'a cost above the limit',
      withRule({ algorithm: 'fixed-window', cost: 11 }),
      ['rules[0].cost: 11 can never be admitted: it is above the limit of 10. Lower it.'],
    ],
    [
      'callers without a credential counted by consumer',
      withRule({ match: { authenticated: false } }),
      [
        'rules[0].by: needs a credential, and match.authenticated: false is for callers without one. Change one of them.',
      ],
    ],
    [
      'a plan that is not listed',
      withRule({ match: { plans: ['pro'] } }),
      ["rules[0].match.plans: 'pro' is not in plans (free). Add it there."],
    ],
    [
      'a path without a slash',
      withRule({ match: { path: 'reports' } }),
      ["rules[0].match.path: 'reports' does not start with '/'. Write it like '/reports/*'."],
    ],
    [
      'a path that is not a pattern',
      withRule({ match: { path: '/(' } }),
      ["rules[0].match.path: '/(' is not a URLPattern. Write something like '/reports/*', without a query."],
    ],
    [
      'a method in lowercase',
      withRule({ match: { methods: ['get'] } }),
      ["rules[0].match.methods[0]: 'get' is not a method. Write it in capitals, as in 'GET'."],
    ],
    [
      'an empty list of methods',
      withRule({ match: { methods: [] } }),
      ['rules[0].match.methods: [] is empty: it would match nothing. Name a method, or leave it out.'],
    ],
    [
      'an origin of a web page with a path',
      { ...CONFIG, cors: { origins: ['https://app.example/'] } },
      [
        "cors.origins[0]: 'https://app.example/' is not an origin of a web page. Write it like 'https://app.example.com', without a path.",
      ],
    ],
    [
      'a deadline out of range',
      { ...CONFIG, store: { deadline: '2m' } },
      ["store.deadline: '2m' is out of range. Use a duration from '1ms' to '60s'."],
    ],
    [
      'a calendar period with another algorithm',
      withRule({ period: 'day' }),
      [`rules[0].period: 'day' ${DURATION}`],
    ],
    [
      'a calendar period that does not exist',
      withRule({ algorithm: 'fixed-window', period: 'fortnight' }),
      [
        "rules[0].period: 'fortnight' is not a period. Write a duration in quotes, as in '1s' or '1h', or 'day', 'week' or 'month' of the calendar.",
      ],
    ],
    [
      'a time zone that does not exist',
      withRule({ algorithm: 'fixed-window', period: 'day', timeZone: 'Europe/Atlantis' }),
      ["rules[0].timeZone: 'Europe/Atlantis' is not a time zone. Write an IANA name, as in 'Europe/Berlin'."],
    ],
    [
      'a time zone with a period of an hour',
      withRule({ algorithm: 'fixed-window', period: '1h', timeZone: 'Europe/Berlin' }),
      [
        "rules[0].timeZone: 'Europe/Berlin' needs a calendar period: 'day', 'week' or 'month'. Use one, or no timeZone.",
      ],
    ],
    [
      'a start of windows that does not exist',
      withRule({ algorithm: 'fixed-window', start: 'first' }),
      ["rules[0].start: 'first' is not a way to start windows. Use 'clock' or 'first-request'."],
    ],
    [
      'a start of windows with another algorithm',
      withRule({ algorithm: 'sliding-window', start: 'first-request' }),
      [`rules[0].start: is not a setting here. ${SETTINGS}, ${MODES}`],
    ],
    [
      'a calendar period from the first request',
      withRule({
        algorithm: 'fixed-window',
        period: 'month',
        timeZone: 'Europe/Berlin',
        start: 'first-request',
      }),
      [
        "rules[0].start: 'first-request' needs a period that is a duration, and 'month' follows the calendar. Use period: '30d' without timeZone, or leave start out.",
      ],
    ],
    [
      'a time zone from the first request',
      withRule({
        algorithm: 'fixed-window',
        period: '1d',
        timeZone: 'Europe/Berlin',
        start: 'first-request',
      }),
      [
        "rules[0].timeZone: 'Europe/Berlin' has no effect on windows with start: 'first-request'. Leave timeZone out.",
      ],
    ],
    [
      'more plans than one script can hold',
      {
        ...CONFIG,
        plans: Array.from({ length: 61 }, (_, i) => `plan-${i}`),
        rules: Array.from({ length: 200 }, (_, i) => ({
          ...RULE,
          name: `rule-${i}`,
          plans: { 'plan-0': false },
        })),
      },
      [
        'plans: 61 plans × 200 rules that depend on the plan (plans, match.plans) = 12200 combinations, and one script holds 12000. Use fewer plans, or fewer such rules.',
      ],
    ],
    [
      'more rules than one script can hold',
      { ...CONFIG, rules: Array.from({ length: 201 }, (_, i) => ({ ...RULE, name: `rule-${i}` })) },
      [
        expect.stringMatching(
          /^rules: .* has more than 200 rules, which one script cannot hold\. Use fewer: the numbers of a plan need no extra rule\.$/s,
        ),
      ],
    ],
    [
      'a sliding window with a limit that its record cannot hold',
      withRule({ algorithm: 'sliding-window', limit: 8_388_608 }),
      ['rules[0].limit: 8388608 is too high: sliding-window allows at most 8388607.'],
    ],
    [
      'a sliding window with too many steps',
      withRule({ algorithm: 'sliding-window', limit: 8_000_000, period: '31622399.999s' }),
      [
        "rules[0].limit: 8000000 per '31622399.999s' cannot be counted exactly: it needs more than 2^51 steps. Lower the limit, or choose a period of whole seconds.",
      ],
    ],
    [
      'a sliding log with a limit above its maximum',
      withRule({ algorithm: 'sliding-log', limit: 100_001 }),
      ['rules[0].limit: 100001 is too high: sliding-log allows at most 100000.'],
    ],
    [
      'a burst that takes years to come back',
      withRule({ limit: 1, period: '366d', burst: 3 }),
      ['rules[0].burst: 3 takes 1098 days to come back, and the maximum is 732 days. Lower it.'],
    ],
    [
      'a queue that holds a request for longer than clients wait',
      withRule({ algorithm: 'leaky-bucket', limit: 2, queue: 200 }),
      [
        'rules[0].queue: 200 could delay a request by 100 s, and the maximum is 60 s. At this rate, use at most 120.',
      ],
    ],
    [
      'a cost above the capacity of a queue',
      withRule({ algorithm: 'leaky-bucket', queue: 3, cost: 5 }),
      ['rules[0].cost: 5 can never be admitted: it is above the capacity (queue + 1) of 4. Lower it.'],
    ],
    [
      'an unknown mode',
      withRule({ mode: 'dry-run' }),
      ["rules[0].mode: 'dry-run' is not a mode. Use 'enforce', 'shadow' or 'off'."],
    ],
    [
      'a share in percent',
      withRule({ enforce: 10 }),
      ['rules[0].enforce: 10 is not a share. Write a number from 0 to 1.'],
    ],
    [
      'a share of a shadow rule',
      withRule({ mode: 'shadow', enforce: 0.5 }),
      ['rules[0].enforce: 0.5 has no effect on a shadow rule. Leave it out, or enforce the rule.'],
    ],
    [
      'a candidate for a rule that does not exist',
      withRule({ candidateFor: 'b' }),
      [
        "rules[0].candidateFor: 'b' is not a rule that can be replaced: it must be another rule in rules, not off, and not a candidate itself. Name the rule to replace.",
      ],
    ],
    [
      'a candidate that is enforced',
      { ...CONFIG, rules: [RULE, { ...RULE, name: 'b', candidateFor: 'a', mode: 'enforce' }] },
      [
        "rules[1].mode: 'enforce' cannot be combined with candidateFor: a candidate is a shadow rule. Leave one of them out.",
      ],
    ],
    [
      'a limit by name without rules',
      { ...CONFIG, limits: { zendesk: [] } },
      ['limits.zendesk: [] is empty. Write at least one rule.'],
    ],
    [
      'a limit by name whose `by` is not a list',
      { ...CONFIG, limits: { zendesk: [{ ...RULE, by: 'consumer' }] } },
      ["limits.zendesk[0].by: 'consumer' is not a list. Write it like ['account']."],
    ],
    [
      'a rule by address for a plan, on a cluster',
      {
        ...CONFIG,
        store: { cluster: true },
        rules: [RULE, { ...RULE, name: 'b', by: 'address', match: { plans: ['free'] } }],
      },
      [
        "rules[1].match.plans: needs by: 'consumer' on a cluster, because plans are stored in the slot of the consumer. Count by consumer, or leave the plans out.",
      ],
    ],
    [
      'a share of a rule that counts all callers together',
      { ...CONFIG, limits: { zendesk: [{ ...RULE, by: undefined, enforce: 0.5 }] } },
      [
        "limits.zendesk[0].enforce: 0.5 is a share of callers, and this rule counts all callers together. Leave it out, or add a by, such as by: ['account'].",
      ],
    ],
    [
      'two rules with the same name in a limit by name',
      {
        ...CONFIG,
        limits: {
          zendesk: [
            { ...RULE, by: ['account'] },
            { ...RULE, by: ['user'] },
          ],
        },
      },
      ["limits.zendesk[1].name: 'a' is already the name of limits.zendesk[0]. Give each rule its own name."],
    ],
    [
      'a rule that is text',
      { ...CONFIG, rules: ['10/s'] },
      [
        "rules[0]: '10/s' is not a rule. Write { name: 'second', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' }.",
      ],
    ],
  ] as const)('is reported with its path, its value and the fix: %s', (_, config, mistakes) => {
    expect(mistakesIn(config)).toEqual(mistakes)
  })

  it('is reported with ways to fix it, if units cannot be spaced exactly', () => {
    const [mistake] = mistakesIn(withRule({ limit: 999_999_937, period: '366d' }))
    expect(mistake).toContain(
      "rules[0].limit: 999999937 per '366d' with a burst of 999999937 cannot be spaced exactly",
    )
    expect(mistake).toContain('Lower the burst, or choose a limit that is a divisor of')
  })

  it('is reported together with all others', () => {
    const config = { origin: 'x', plans: [], rules: [{ ...RULE, limit: 0, period: 'soon' }, without('name')] }
    expect(mistakesIn(config).map(mistake => mistake.split(':')[0])).toEqual([
      'origin',
      'plans',
      'rules[0].limit',
      'rules[0].period',
      'rules[1].name',
    ])
  })
})

describe('a duration', () => {
  it.each([
    ['250ms', 250e3],
    ['1s', 1e6],
    ['90s', 90e6],
    ['15m', 900e6],
    ['1h', 3600e6],
    ['1d', 86400e6],
    ['1.5s', 1.5e6],
    ['1.001s', 1_001_000],
    ['1.1m', 66e6],
  ])('can be %s', (text, microseconds) => expect(parseDuration(text)).toBe(microseconds))

  it.each(['', '1', 's', '1 s', '1S', '-1s', '1e3s', '0.0001s', '١s', '1s ', '999999999999999d'])(
    'cannot be %j',
    text => expect(parseDuration(text)).toBeUndefined(),
  )
})
