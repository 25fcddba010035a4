/** Units: what rules count besides requests. How they are compiled, and the mistakes and warnings of `check`. */
import { describe, expect, it } from 'vitest'
import { checkConfig, checkedConfig } from '../../src/config/check/check.ts'
import { warningsOf } from '../../src/config/check/warnings.ts'
import { ConfigError } from '../../src/config/config-error.ts'
import { createLocalLimiter } from '../../src/limiter/outage/local.ts'
import { gatewayRuleSet } from '../../src/script/compiled.ts'
import { bound } from '../support/bound.ts'
import { NOON } from '../support/traffic.ts'

const TOKENS = { estimate: 2000, actual: { usage: 'openai' } }
const RULE = {
  name: 'day',
  unit: 'tokens',
  by: 'consumer',
  algorithm: 'fixed-window',
  limit: 1_000_000,
  period: 'day',
}
const ALL = { name: 'all', by: 'global', algorithm: 'gcra', limit: 100, period: '1s' }
const withUnit = (unit: object, changes: object = {}) => ({
  origin: 'https://api.example.com',
  units: { tokens: unit },
  rules: [{ ...RULE, ...changes }],
})
const withRule = (changes: object) => withUnit(TOKENS, changes)
const LOGINS = {
  name: 'logins',
  by: 'address',
  algorithm: 'sliding-window',
  limit: 10,
  period: '15m',
  countIf: { status: [401, 403] },
}
const withLogins = (changes: object = {}) => ({ rules: [{ ...LOGINS, ...changes }] })
const withLimit = (changes: object, config: object = {}) => ({
  units: { tokens: {} },
  limits: { llm: [{ ...RULE, by: ['team'], ...changes }] },
  ...config,
})

function mistakesIn(config: unknown): string[] {
  try {
    checkedConfig(config)
    return []
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError)
    return (error as ConfigError).mistakes.map(({ path, message }) => `${path}: ${message}`)
  }
}

describe('a unit', () => {
  it('has defaults: keep after 10 minutes, and an estimate above the limit reserves the whole limit', () => {
    const { units } = checkedConfig(withUnit({ estimate: 2000, actual: { json: '/usage/total_tokens' } }))
    expect(units?.get('tokens')).toEqual({
      estimate: 2000,
      actual: { json: '/usage/total_tokens' },
      includesUsage: false,
      settlement: { ttlMs: 600_000, onUnsettled: 'keep', aboveLimit: 'clamp' },
    })
  })

  it.each([
    [{ estimate: 'llm' }, { estimate: {} }],
    [{ estimate: { maxOutput: 4000 } }, { estimate: { maxOutput: 4000 } }],
    [
      { actual: { usage: 'openai', weights: { output: 5 }, includeUsage: true } },
      { actual: { usage: 'openai', weights: { output: 5 } }, includesUsage: true },
    ],
    [{ actual: { usage: 'anthropic' } }, { actual: { usage: 'anthropic' } }],
    [{ actual: { header: 'x-cost', keep: true } }, { actual: { header: 'x-cost', keep: true } }],
    [{ actual: 'bytes' }, { actual: 'bytes' }],
    [
      { ttl: '1d', onUnsettled: 'release', aboveLimit: 'refuse' },
      { settlement: { ttlMs: 86_400_000, onUnsettled: 'release', aboveLimit: 'refuse' } },
    ],
  ])('%j', (settings, expected) => {
    const { units } = checkedConfig(withUnit({ estimate: 1, ...settings }))
    expect(units?.get('tokens')).toMatchObject(expected)
  })
})

describe('a rule with a unit', () => {
  const ruleOf = (config: object) => checkedConfig(config).rules[0]!

  it('counts the unit, and reserves the estimate', () => {
    const settlement = { ttlMs: 600_000, onUnsettled: 'keep', aboveLimit: 'clamp' }
    expect(ruleOf(withRule({}))).toMatchObject({ unit: 'tokens', cost: 2000, settlement })
  })

  it('has no settlement if the amount is known before the call', () => {
    const hooks = { amounts: () => ({ tokens: 5 }) }
    const rule = ruleOf({ ...withUnit({}), hooks })
    expect(rule).toMatchObject({ unit: 'tokens', cost: 1 })
    expect(rule).not.toHaveProperty('settlement')
  })

  it('can always be settled as a limit by name, because the caller knows when it has an actual amount', () => {
    const [rule] = checkedConfig(withLimit({})).limits.get('llm')!
    expect(rule).toMatchObject({ unit: 'tokens', settlement: { onUnsettled: 'keep' } })
  })

  it('has the numbers of plans, and each variant is settled', () => {
    const { rules } = checkedConfig({
      ...withRule({ plans: { pro: { limit: 5_000_000 } } }),
      plans: ['free', 'pro'],
    })
    expect(rules.map(({ limit, unit, settlement }) => [limit, unit, settlement?.aboveLimit])).toEqual([
      [1_000_000, 'tokens', 'clamp'],
      [5_000_000, 'tokens', 'clamp'],
    ])
  })

  it('starts with a new state if its unit changes, and rules of requests keep their tags', () => {
    const tagsWith = (unit: string | undefined) => {
      const config = {
        ...withRule({ unit, algorithm: 'gcra', period: '1d' }),
        units: { tokens: TOKENS, usd: TOKENS },
      }
      const { tag, family } = ruleOf(config)
      return { tag, family }
    }
    const tags = [undefined, 'tokens', 'usd'].map(tagsWith)
    expect(new Set(tags.map(({ tag }) => tag)).size).toBe(3)
    expect(new Set(tags.map(({ family }) => family)).size).toBe(3)
    expect(tagsWith('requests')).toEqual(tagsWith(undefined))
    expect(tagsWith('requests')).toEqual({ tag: 'G5R', family: 'exG' })
  })

  it.each([
    ['clamp', true, 0],
    ['refuse', false, 1_000_000],
  ] as const)(
    'is counted by an isolate with at most its limit, and without a debt: %s',
    (aboveLimit, admitted, remaining) => {
      const { rules } = checkedConfig(withUnit({ ...TOKENS, aboveLimit }))
      const local = createLocalLimiter(1, () => NOON / 1e3)
      const decided = local.decide(gatewayRuleSet({ rules, plans: ['free'] }), [
        bound(rules[0]!, 'C', 3_000_000),
      ])
      expect(decided).toMatchObject({ admitted, verdicts: [{ remaining, debt: 0 }] })
    },
  )

  it('has no lease, even if the config has one', () => {
    const config = { ...withRule({}), lease: { for: '250ms' } }
    expect(ruleOf({ ...config, rules: [RULE, ALL] })).not.toHaveProperty('lease')
  })
})

describe('a rule with countIf', () => {
  it('reserves the cost of the request, and keeps the state of the rule without countIf', () => {
    const [rule] = checkedConfig(withLogins()).rules
    expect(rule).toMatchObject({ unit: 'requests', cost: 1, countIf: { status: new Set([401, 403]) } })
    expect(rule!.settlement).toEqual({ ttlMs: 600_000, onUnsettled: 'keep', aboveLimit: 'refuse' })
    const [without] = checkedConfig(withLogins({ countIf: undefined })).rules
    expect([rule!.tag, rule!.family]).toEqual([without!.tag, without!.family])
    expect(without).not.toHaveProperty('settlement')
  })
})

describe('a mistake in units', () => {
  const ACTUAL =
    "is not a source of amounts. Write { usage: 'openai' }, { header: 'x-cost' }, { json: '/usage/total_tokens' }, 'bytes', 'ms' or 'hook'."
  const ROUNDED =
    'is too small: weights are rounded to six decimals. Count a smaller unit, such as millionths of a dollar.'
  const ESTIMATE = "is not an estimate. Write a whole number, 'llm' or { maxOutput: 4000 }."

  it.each<[string, object, string[]]>([
    [
      'units in a list',
      { units: [] },
      [
        "units: [] is not an object. Write it like { tokens: { estimate: 2000, actual: { json: '/usage/total_tokens' } } }.",
      ],
    ],
    [
      'a unit with the name of the default',
      { units: { requests: TOKENS }, rules: [ALL] },
      ['units.requests: is the unit of rules without a unit. Choose another name.'],
    ],
    [
      'an estimate below 0',
      withUnit({ estimate: -1 }),
      ['units.tokens.estimate: -1 is not an amount. Write a whole number from 1 to 1000000000.'],
    ],
    [
      'a price of bodies that are not read',
      withUnit({ ...TOKENS, estimateUnreadable: 5000 }),
      ["units.tokens.estimateUnreadable: has no effect without estimate: 'llm'. Leave it out."],
    ],
    ['an estimate in words', withUnit({ estimate: 'many' }), [`units.tokens.estimate: 'many' ${ESTIMATE}`]],
    ['an estimate in a list', withUnit({ estimate: [] }), [`units.tokens.estimate: [] ${ESTIMATE}`]],
    [
      'an estimate with an unknown setting',
      withUnit({ estimate: { maxTokens: 4000 } }),
      [
        'units.tokens.estimate.maxTokens: is not a setting here. Settings: maxOutput, defaultOutput, maxBytes.',
      ],
    ],
    [
      'a source in words',
      withUnit({ ...TOKENS, actual: 'tokens' }),
      [`units.tokens.actual: 'tokens' ${ACTUAL}`],
    ],
    [
      'no source',
      withUnit({ ...TOKENS, actual: {} }),
      ['units.tokens.actual: has no source. Write one of usage, header and json.'],
    ],
    [
      'two sources',
      withUnit({ ...TOKENS, actual: { usage: 'openai', json: '/usage' } }),
      ['units.tokens.actual: has usage and json. Write one of usage, header and json.'],
    ],
    [
      'an unknown format',
      withUnit({ ...TOKENS, actual: { usage: 'open-ai' } }),
      [
        "units.tokens.actual.usage: 'open-ai' is not a format of usage. Did you mean 'openai'? Use 'openai', 'anthropic' or 'gemini'.",
      ],
    ],
    [
      'a path that is no pointer',
      withUnit({ ...TOKENS, actual: { json: 'usage.total' } }),
      ["units.tokens.actual.json: 'usage.total' is not a JSON pointer. Write it like '/usage/total_tokens'."],
    ],
    [
      'weights without usage',
      withUnit({ ...TOKENS, actual: { json: '/usage', weights: { output: 5 } } }),
      ['units.tokens.actual.weights: has no effect without usage. Leave it out.'],
    ],
    [
      'a weight below 0',
      withUnit({ ...TOKENS, actual: { usage: 'openai', weights: { output: -5 } } }),
      ['units.tokens.actual.weights.output: -5 is not a weight. Write a number from 0 to 1000000.'],
    ],
    [
      'dollars per token, as weights that would be rounded to 0 and to 0.000002',
      withUnit({ ...TOKENS, actual: { usage: 'openai', weights: { input: 0.15e-6, output: 1.5e-6 } } }),
      [
        `units.tokens.actual.weights.input: 1.5e-7 ${ROUNDED}`,
        `units.tokens.actual.weights.output: 0.0000015 ${ROUNDED}`,
      ],
    ],
    [
      'usage to include at another API',
      withUnit({ ...TOKENS, actual: { usage: 'anthropic', includeUsage: true } }),
      ["units.tokens.actual.includeUsage: has no effect without usage: 'openai'. Leave it out."],
    ],
    [
      'a header to keep without a header',
      withUnit({ ...TOKENS, actual: { json: '/usage', keep: true } }),
      ['units.tokens.actual.keep: has no effect without header. Leave it out.'],
    ],
    [
      'a ttl that is too short',
      withUnit({ ...TOKENS, ttl: '5s' }),
      ["units.tokens.ttl: '5s' is out of range. Use a duration from '10s' to '1d'."],
    ],
    [
      'a ttl that is too long',
      withUnit({ ...TOKENS, ttl: '2d' }),
      ["units.tokens.ttl: '2d' is out of range. Use a duration from '10s' to '1d'."],
    ],
    [
      'an unknown end of a reservation',
      withUnit({ ...TOKENS, onUnsettled: 'drop' }),
      ["units.tokens.onUnsettled: 'drop' is not a way to end a reservation. Use 'keep' or 'release'."],
    ],
    [
      'an unknown unit',
      withRule({ unit: 'tokns' }),
      ["rules[0].unit: 'tokns' is not in units (tokens). Did you mean 'tokens'?"],
    ],
    [
      'a unit without units',
      { rules: [RULE] },
      ["rules[0].unit: 'tokens' is not in units (which is empty). Add it there."],
    ],
    [
      'a log',
      withRule({ algorithm: 'sliding-log', limit: 1000, period: '1h' }),
      [
        "rules[0].unit: 'tokens' cannot be combined with sliding-log. Use fixed-window, gcra, sliding-window or token-bucket.",
      ],
    ],
    [
      'a queue',
      withRule({ algorithm: 'leaky-bucket', limit: 1000, period: '1h' }),
      [
        'rules[0].queue: 1000 could delay a request by 3600 s, and the maximum is 60 s. At this rate, use at most 16.',
        "rules[0].unit: 'tokens' cannot be combined with leaky-bucket. Use fixed-window, gcra, sliding-window or token-bucket.",
      ],
    ],
    [
      'units in flight',
      withRule({ algorithm: 'concurrency', limit: 1000, period: undefined }),
      [
        'rules[0].period: is not a setting here. Settings: name, unit, by, acrossModes, on, cost, countIf, match, plans, algorithm, limit, ttl, adaptive, mode, enforce, candidateFor, onStoreFailure, lease.',
        "rules[0].unit: 'tokens' cannot be combined with concurrency. Use fixed-window, gcra, sliding-window or token-bucket.",
      ],
    ],
    [
      'a lease of a rule with a unit',
      withRule({ lease: { for: '1s' } }),
      ['rules[0].lease: cannot be combined with unit: not all requests cost the same. Leave it out.'],
    ],
    [
      'a cost of a rule with a unit',
      withRule({ cost: 5 }),
      ["rules[0].cost: 5 has no effect with unit: 'tokens': each request has an amount of it. Leave it out."],
    ],
    [
      'a unit of bad credentials',
      withRule({ by: 'address', on: 'auth-failure' }),
      [
        "rules[0].unit: 'tokens' cannot be combined with on: 'auth-failure', which counts requests. Leave it out.",
      ],
    ],
    [
      'a unit on a cluster',
      { ...withRule({}), store: { cluster: true } },
      [
        "rules[0].unit: 'tokens' cannot be combined with store.cluster: its reservations need a Redis without slots. Leave one of them out.",
      ],
    ],
    [
      'a unit without an amount',
      withUnit({ actual: { json: '/usage' } }),
      [
        "rules[0].unit: 'tokens' has no amount to count for a request. Add units.tokens.estimate, or hooks.amounts.",
      ],
    ],
    [
      'more rules of one identity that reserve than Redis compiles',
      {
        ...withRule({}),
        rules: Array.from({ length: 21 }, (_, i) => ({ ...withRule({}).rules[0]!, name: `rule-${i}` })),
      },
      [
        "rules[20]: 'rule-20' is one more rule by ['consumer'] that reserves units, and 20 are the maximum. Remove it, or count by another identity.",
      ],
    ],
    [
      'an estimate that is never admitted',
      withUnit({ ...TOKENS, aboveLimit: 'refuse' }, { limit: 1000 }),
      [
        "rules[0].limit: 1000 is below the estimate of a request (2000 tokens), so no request would ever be admitted. Raise it, or lower units.tokens.estimate, or set aboveLimit: 'clamp' there.",
      ],
    ],
    [
      'an estimate that a plan never admits',
      { ...withUnit({ ...TOKENS, aboveLimit: 'refuse' }, { plans: { free: { limit: 1000 } } }) },
      [
        "rules[0].plans.free.limit: 1000 is below the estimate of a request (2000 tokens), so no request would ever be admitted. Raise it, or lower units.tokens.estimate, or set aboveLimit: 'clamp' there.",
      ],
    ],
    [
      'an estimate without an actual amount that is never admitted',
      withUnit({ estimate: 2000 }, { limit: 1000 }),
      [
        'rules[0].limit: 1000 is below the estimate of a request (2000 tokens), so no request would ever be admitted. Raise it, or lower units.tokens.estimate.',
      ],
    ],
    [
      'a sliding window without room for a debt',
      withRule({ algorithm: 'sliding-window', limit: 5_000_000, period: '1d' }),
      [
        'rules[0].limit: 5000000 leaves no room for costs above their estimates: with sliding-window, the maximum is 4194304. Lower it, or use fixed-window or gcra.',
      ],
    ],
    [
      'a rate without room for a debt',
      withRule({ algorithm: 'gcra', limit: 999_983, period: '1d', burst: 10_000 }),
      [
        'rules[0].limit: 999983 with a burst of 10000 leaves no room for costs above their estimates: it needs more than 2^48 steps. Lower the burst, or choose a limit that is a divisor of the period in microseconds.',
      ],
    ],
    [
      'a hook for amounts that nothing counts',
      { rules: [ALL], hooks: { amounts: () => ({}) } },
      [
        'hooks.amounts: is never called: no rule has a unit. Add one, or use hooks.cost for rules of requests.',
      ],
    ],
    [
      'a hook for actual amounts that no unit has',
      { ...withRule({}), hooks: { actual: () => ({}) } },
      ["hooks.actual: is never called: no unit has actual: 'hook'. Add it to a unit, or leave this out."],
    ],
    [
      'a missing hook',
      withUnit({ estimate: 1, actual: 'hook' }),
      ["units.tokens.actual: 'hook' needs the hook: add hooks.actual."],
    ],
    [
      'replies to read on that no unit is read from',
      { ...withLogins(), onClientGone: 'read-on' },
      [
        "onClientGone: 'read-on' has no effect: no unit is read from replies. Use 'wait', or add actual to a unit.",
      ],
    ],
    [
      'countIf without a status',
      withLogins({ countIf: { status: [] } }),
      ['rules[0].countIf.status: [] is empty, so no request would count. Name a status.'],
    ],
    [
      'countIf with no status of HTTP',
      withLogins({ countIf: { status: [4010] } }),
      ['rules[0].countIf.status[0]: 4010 is too high: the maximum is 599.'],
    ],
    [
      'countIf with one status',
      withLogins({ countIf: { status: 401 } }),
      ['rules[0].countIf.status: 401 is not a list of statuses. Write it like [401, 403].'],
    ],
    [
      'countIf of a log',
      withLogins({ algorithm: 'sliding-log' }),
      [
        'rules[0].countIf: cannot be combined with sliding-log. Use fixed-window, gcra, sliding-window or token-bucket.',
      ],
    ],
    [
      'countIf of tokens',
      withRule({ countIf: { status: [200] } }),
      ["rules[0].countIf: cannot be combined with unit: 'tokens', because it counts requests. Leave it out."],
    ],
    [
      'countIf of bad credentials',
      withLogins({ on: 'auth-failure' }),
      ["rules[0].countIf: cannot be combined with on: 'auth-failure', which counts requests. Leave it out."],
    ],
    [
      'countIf without a cost',
      withLogins({ cost: 0 }),
      ['rules[0].cost: 0 with countIf counts no request. Leave it out.'],
    ],
    [
      'countIf with a cost above the limit',
      withLogins({ cost: 11 }),
      ['rules[0].cost: 11 can never be admitted: it is above the limit of 10. Lower it.'],
    ],
    [
      'countIf with a lease',
      withLogins({ lease: { for: '1s' } }),
      ['rules[0].lease: cannot be combined with countIf: not all requests cost the same. Leave it out.'],
    ],
    [
      'countIf on a cluster',
      { ...withLogins(), store: { cluster: true } },
      [
        'rules[0].countIf: cannot be combined with store.cluster: its reservations need a Redis without slots. Leave one of them out.',
      ],
    ],
    [
      'a limit by name with an unknown unit',
      withLimit({ unit: 'usd' }),
      ["limits.llm[0].unit: 'usd' is not in units (tokens). Add it there."],
    ],
    [
      'a limit by name with a unit and a lease',
      withLimit({ lease: { for: '1s' } }),
      ['limits.llm[0].lease: cannot be combined with unit: not all requests cost the same. Leave it out.'],
    ],
    [
      'a limit by name with a unit, on a cluster',
      withLimit({}, { store: { cluster: true } }),
      [
        "limits.llm[0].unit: 'tokens' cannot be combined with store.cluster: its reservations need a Redis without slots. Leave one of them out.",
      ],
    ],
    [
      'countIf in a limit by name',
      withLimit({ countIf: { status: [401] } }),
      [
        'limits.llm[0].countIf: is not a setting here. Settings: name, unit, by, overridable, algorithm, limit, period, timeZone, start, mode, enforce, candidateFor, onStoreFailure, lease.',
      ],
    ],
  ])('%s', (_, config, expected) => {
    expect(mistakesIn(config)).toEqual(expected)
  })

  it('in a unit leaves the mistakes of its rules out that depend on it', () => {
    const config = withUnit({ estimate: -1, actual: { json: 'x' } }, { unit: 'tokns', limit: 0 })
    expect(mistakesIn(config).map(mistake => mistake.split(':')[0])).toEqual([
      'rules[0].limit',
      'units.tokens.estimate',
      'units.tokens.actual.json',
    ])
  })
})

describe('a warning', () => {
  const UNREADABLE =
    "units.tokens.estimateUnreadable: is missing: files, forms and other bodies that are not JSON get a 415 where 'day' applies. Write what such a request costs, or count only the paths of models, as in match: { path: '/v1/(chat/completions|completions|responses|embeddings)' }."
  const withLlm = (changes: object) => {
    const { rules, ...config } = withUnit({ estimate: 'llm', actual: { usage: 'openai' } }, changes)
    return { ...config, rules: [...rules, ALL] }
  }
  const warningsIn = (config: unknown) =>
    warningsOf(checkConfig(config)).map(({ path, message }) => `${path}: ${message}`)

  it.each([
    [
      'a unit that no rule counts',
      { ...withRule({}), units: { tokens: TOKENS, usd: TOKENS } },
      ["units.usd: is not counted: no rule has unit: 'usd'. Add it to a rule, or leave the unit out."],
    ],
    [
      'an estimate that uses up a limit',
      withRule({ limit: 1000 }),
      [
        'rules[0].limit: 1000 is below the estimate of a request (2000 tokens): each request reserves the whole limit, so an identity can have only one at a time. Raise it, or lower units.tokens.estimate.',
      ],
    ],
    [
      'no warning: a limit above what callers send in requests',
      withRule({ limit: 1e9, period: '1s', algorithm: 'gcra', burst: 10_000 }),
      [],
    ],
    [
      'a limit that callers share, and that one estimate can use up',
      {
        ...withUnit({ estimate: 'llm', estimateUnreadable: 5000, actual: { usage: 'openai' } }),
        rules: [RULE, { ...RULE, name: 'all', by: 'global', limit: 9e6 }],
      },
      [
        "rules[1].unit: callers share this limit, and each chooses its estimate: one request can reserve all of it, and keeps it if the response reports no usage. Add a rule with unit: 'tokens' by: 'consumer', and set units.tokens.aboveLimit: 'refuse'.",
      ],
    ],
    [
      'no warning: the limit of the caller refuses larger estimates',
      {
        ...withUnit({
          ...{ estimate: { maxOutput: 4000 }, estimateUnreadable: 5000, aboveLimit: 'refuse' },
          actual: { usage: 'openai' },
        }),
        rules: [RULE, { ...RULE, name: 'all', by: 'global', limit: 9e6 }],
      },
      [],
    ],
    [
      'no warning: the config chooses the estimate',
      { ...withUnit(TOKENS), rules: [RULE, { ...RULE, name: 'all', by: 'global', limit: 9e6 }] },
      [],
    ],
    ['a missing price of bodies that are not JSON', withLlm({}), [UNREADABLE]],
    ...['/v1/*', '/v1/:a/completions{/*}?', '/v1/(files|completions)', '/v1/(completions|files)'].map(
      (path): [string, object, string[]] => [`and at ${path}`, withLlm({ match: { path } }), [UNREADABLE]],
    ),
    [
      'and on a route',
      {
        ...withLlm({ match: { routes: ['models', 'all'] } }),
        routes: [
          { name: 'models', match: { path: '/v1/responses' } },
          { name: 'all', match: { path: '/v1/*' } },
        ],
        rules: [{ ...RULE, match: { routes: ['models', 'all'] } }, ALL],
      },
      [UNREADABLE],
    ],
    ...[
      ['the paths of models', { path: '/v1/(chat/completions|completions|responses|embeddings)' }],
      ['one path', { path: '/v1/messages' }],
      ['requests without a body', { methods: ['GET', 'DELETE'] }],
    ].map(([what, match]): [string, object, string[]] => [
      `no warning: the rule counts only ${what}`,
      { ...withLlm({ match }), rules: [{ ...RULE, match }, ALL] },
      [],
    ]),
    ['no warning: two rules of different units', withRule({ limit: 1e9 }), []],
    [
      'a rule with countIf covers no request',
      withLogins({ by: 'consumer' }),
      [
        "rules: has no rule that is enforced: every request passes without a limit. Set mode: 'enforce' for a rule, unless this is intended.",
      ],
    ],
  ])('%s', (_, config, expected) => {
    expect(warningsIn(config)).toEqual(expected)
  })
})
