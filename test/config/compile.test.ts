import { describe, expect, it } from 'vitest'
import userConfig from '../../sluice.config.ts'
import { compileConfig } from '../../src/config/compile.ts'
import { ConfigError } from '../../src/config/config-error.ts'
import { parseDuration } from '../../src/config/duration.ts'

const RULE = { name: 'a', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' }
const CONFIG = { origin: 'https://api.example.com', rules: [RULE] }

const withRule = (changes: object) => ({ ...CONFIG, rules: [{ ...RULE, ...changes }] })
const without = (key: string) => Object.fromEntries(Object.entries(RULE).filter(([name]) => name !== key))

function mistakesIn(config: unknown): string[] {
  try {
    compileConfig(config)
    return []
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError)
    expect((error as ConfigError).code).toBe('ERR_CONFIG_INVALID')
    return (error as ConfigError).mistakes.map(({ path, message }) => `${path}: ${message}`)
  }
}

describe('the config that comes with the project', () => {
  it('is the classic example: six limits, the same three for the consumer and for the address', () => {
    const { rules } = compileConfig(userConfig)
    const limits = [
      [10, 1e6],
      [120, 60e6],
      [240, 3600e6],
    ]
    for (const by of ['consumer', 'address']) {
      expect(rules.filter(rule => rule.by === by).map(rule => [rule.limit, rule.period])).toEqual(limits)
    }
  })
})

describe('a good config', () => {
  it('gets its defaults', () => {
    expect(compileConfig(CONFIG)).toMatchObject({
      originDeadlineMs: 30_000,
      storeDeadlineMs: 250,
      plans: ['free'],
      forwardCredential: false,
      keyLocking: true,
      rules: [{ quota: { burst: 10, cost: 1 }, anonymous: false, match: {} }],
    })
  })

  it('has gcra in lowest terms, and its limit and period as written beside it', () => {
    const [rule] = compileConfig(withRule({ limit: 240, period: '1h', burst: 20 })).rules
    expect(rule).toMatchObject({ limit: 240, period: 3600e6, quota: { limit: 1, period: 15e6, burst: 20 } })
  })

  it.each([
    ['1 per year', 1, '366d'],
    ['1e9 per second', 1e9, '1s'],
    ['1 per millisecond', 1, '1ms'],
    ['7 per day', 7, '1d'],
  ])('can say %s', (_, limit, period) => {
    expect(mistakesIn(withRule({ limit, period }))).toEqual([])
    expect(mistakesIn(withRule({ limit, period, algorithm: 'fixed-window' }))).toEqual([])
  })
})

describe('a mistake', () => {
  const DURATION =
    "is no duration. Write a number and a unit in quotes, as in '250ms', '1s', '15m', '1h' or '1d'."
  const RULE_SETTINGS = 'The settings are name, by, limit, period, cost, match, anonymous, algorithm'

  it.each([
    ['no config', undefined, ['config: is missing. Write export default defineConfig({ … }).']],
    [
      'no origin',
      { rules: [RULE] },
      ["origin: is missing. Write a URL such as 'https://api.example.com', or 'route'."],
    ],
    [
      'an origin that is no URL',
      { ...CONFIG, origin: 'api.example.com' },
      [
        "origin: 'api.example.com' is no origin. Write an http or https URL without query or credentials, such as " +
          "'https://api.example.com', or 'route'.",
      ],
    ],
    ['no rules', { origin: 'route' }, ['rules: is missing. Write [{ … }, { … }].']],
    [
      'an empty list of rules',
      { ...CONFIG, rules: [] },
      ['rules: [] is empty. Write at least one rule: a gateway without a limit is a proxy.'],
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
      ["rules[0].period: '0s' is out of range. It can be from '1ms' to '366d'."],
    ],
    [
      'a limit of zero',
      withRule({ limit: 0 }),
      ['rules[0].limit: 0 is no amount. Write a whole number from 1 to 1000000000.'],
    ],
    [
      'half a limit',
      withRule({ limit: 1.5 }),
      ['rules[0].limit: 1.5 is no amount. Write a whole number from 1 to 1000000000.'],
    ],
    [
      'a limit as text',
      withRule({ limit: '10' }),
      ["rules[0].limit: '10' is no amount. Write a whole number from 1 to 1000000000."],
    ],
    [
      'a rule without a limit',
      { ...CONFIG, rules: [without('limit')] },
      ['rules[0].limit: is missing. Write a whole number from 1 to 1000000000.'],
    ],
    [
      'a rule without an algorithm',
      { ...CONFIG, rules: [without('algorithm')] },
      ["rules[0].algorithm: is missing. Use 'gcra' or 'fixed-window'."],
    ],
    [
      'an unknown algorithm',
      withRule({ algorithm: 'magic' }),
      ["rules[0].algorithm: 'magic' is no algorithm. Use 'gcra' or 'fixed-window'."],
    ],
    [
      'a misspelt setting',
      withRule({ brust: 3 }),
      [`rules[0].brust: is not a setting here. ${RULE_SETTINGS}, burst.`],
    ],
    [
      'a burst of a fixed window',
      withRule({ algorithm: 'fixed-window', burst: 3 }),
      [`rules[0].burst: is not a setting here. ${RULE_SETTINGS}.`],
    ],
    [
      'nothing to count by',
      withRule({ by: 'user' }),
      ["rules[0].by: 'user' is nothing to count by. Use 'consumer' or 'address'."],
    ],
    [
      'a name with a space',
      withRule({ name: 'per second' }),
      ["rules[0].name: 'per second' is no rule name. Use 1 to 63 lower case letters, digits, '-' and '_'."],
    ],
    [
      'two rules of one name',
      { ...CONFIG, rules: [RULE, RULE] },
      ["rules[1].name: 'a' is taken by rules[0]. Give each rule a name of its own."],
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
      'anonymous callers counted by consumer',
      withRule({ anonymous: true }),
      ["rules[0].anonymous: true needs by: 'address': a caller without a credential has no consumer."],
    ],
    [
      'a plan that is not listed',
      withRule({ match: { plans: ['pro'] } }),
      ["rules[0].match.plans: 'pro' is not in plans (free). Add it there."],
    ],
    [
      'a path without a slash',
      withRule({ match: { path: 'reports' } }),
      ["rules[0].match.path: 'reports' does not start with '/'. Write it as in '/reports/*'."],
    ],
    [
      'a path that is no pattern',
      withRule({ match: { path: '/(' } }),
      ["rules[0].match.path: '/(' is no URLPattern. Write something like '/reports/*'."],
    ],
    [
      'a method in small letters',
      withRule({ match: { methods: ['get'] } }),
      ["rules[0].match.methods[0]: 'get' is no method. Write it in capitals, as in 'GET'."],
    ],
    [
      'an empty list of methods',
      withRule({ match: { methods: [] } }),
      ['rules[0].match.methods: [] is empty: the rule would match nothing. Name a method, or leave it out.'],
    ],
    [
      'an origin of a web page with a path',
      { ...CONFIG, cors: { origins: ['https://app.example/'] } },
      [
        "cors.origins[0]: 'https://app.example/' is no origin of a web page. Write it as in 'https://app.example.com', without a path.",
      ],
    ],
    [
      'a deadline out of range',
      { ...CONFIG, store: { deadline: '2m' } },
      ["store.deadline: '2m' is out of range. It can be from '1ms' to '60s'."],
    ],
    [
      'a rule that is text',
      { ...CONFIG, rules: ['10/s'] },
      [
        "rules[0]: '10/s' is no rule. Write { name: 'second', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' }.",
      ],
    ],
  ] as const)('%s is named with its place, its value and the fix', (_, config, mistakes) => {
    expect(mistakesIn(config)).toEqual(mistakes)
  })

  it('in numbers that cannot be spaced exactly says so, and what would do', () => {
    const [mistake] = mistakesIn(withRule({ limit: 999_999_937, period: '366d' }))
    expect(mistake).toContain(
      "rules[0].limit: 999999937 per '366d' with a burst of 999999937 needs more than 2^51 steps",
    )
    expect(mistake).toContain('Lower the burst, or choose a limit that divides the period')
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

describe('durations', () => {
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
  ])('%s', (text, microseconds) => expect(parseDuration(text)).toBe(microseconds))

  it.each(['', '1', 's', '1 s', '1S', '-1s', '1e3s', '0.0001s', '١s', '1s ', '999999999999999d'])(
    'not %j',
    text => expect(parseDuration(text)).toBeUndefined(),
  )
})
