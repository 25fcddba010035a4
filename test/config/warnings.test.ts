/** The warnings of `check`, about settings that are valid but may not be intended. */
import { describe, expect, it } from 'vitest'
import shipped from '../../sluice.config.ts'
import { checkConfig } from '../../src/config/check/check.ts'
import { warningsOf } from '../../src/config/check/warnings.ts'
import { jwt } from '../../src/credentials/jwt.ts'

const RULE = { name: 'a', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' }
const rule = (changes: object) => ({ ...RULE, ...changes })
/** A rule that covers all callers, and itself causes no warning: no other rule is always reached before it. */
const ALL = rule({ name: 'all', by: 'address', algorithm: 'sliding-log', limit: 100, period: '1h' })

const warningsIn = (config: object) =>
  warningsOf(checkConfig({ origin: 'route', rules: [RULE], ...config })).map(
    ({ path, message }) => `${path}: ${message}`,
  )
const pathsIn = (config: object) => warningsIn(config).map(text => text.split(': ')[0])

it('the config that comes with the project has no warnings', () => {
  expect(warningsOf(shipped)).toEqual([])
})

it.each([
  ['1s', true],
  ['4999ms', true],
  ['5s', false],
  ['1h', false],
  [undefined, false],
])('a ttl of %s that an event loop can outlast is a warning: %s', (ttl, isWarning) => {
  const held = { name: 'b', by: 'consumer', algorithm: 'concurrency', limit: 5, ...(ttl && { ttl }) }
  const { by, ...named } = held
  const limits = { jobs: [{ ...named, by: ['account'] }] }
  const texts = warningsIn({ rules: [RULE, held], limits }).filter(text => text.includes('ttl'))
  expect(texts.map(text => text.split(': ')[0])).toEqual(
    isWarning ? ['rules[1].ttl', 'limits.jobs[0].ttl'] : [],
  )
  if (isWarning) expect(texts[0]).toContain(`'${ttl}' is short`)
})

describe('a rule by a field of the body', () => {
  const match = { methods: ['POST'], path: '/login' }
  const withField = (changes: object) => ({ rules: [RULE, rule({ name: 'b', match, ...changes })] })

  it('is a warning where it enforces without an address, because strangers can lock the account', () => {
    const [warning] = warningsIn(withField({ by: 'field:email' })).filter(text =>
      text.startsWith('rules[1].by'),
    )
    expect(warning).toBe(
      "rules[1].by: anyone can name the email of another, so strangers can use up its limit. Write by: ['field:email', 'address'], or mode: 'shadow'.",
    )
    for (const changes of [
      { by: ['field:email', 'address'] },
      { by: 'field:email', mode: 'shadow' },
      { by: ['field:email', 'consumer'] },
    ])
      expect(pathsIn(withField(changes))).not.toContain('rules[1].by')
  })

  it('is a warning if it matches all paths, whose requests have no such field', () => {
    const texts = warningsIn(withField({ by: ['field:email', 'address'], match: { methods: ['POST'] } }))
    expect(texts.filter(text => text.startsWith('rules[1]:'))).toEqual([
      expect.stringContaining('counts all requests without the email together'),
    ])
  })
})

describe('a rule that never refuses', () => {
  const issuer = { access: 'https://team.cloudflareaccess.com', audience: 'api' }
  it.each([
    ['is off', rule({ name: 'b', mode: 'off' }), {}, 'rules[1].mode'],
    ['is enforced for no caller', rule({ name: 'b', enforce: 0 }), {}, 'rules[1].enforce'],
    ['counts nothing', rule({ name: 'b', cost: 0 }), {}, 'rules[1].cost'],
    ['has a limit that no caller reaches', rule({ name: 'b', limit: 1e9 }), {}, 'rules[1].limit'],
    [
      'is for routes without limits',
      rule({ name: 'b', match: { routes: ['status'] } }),
      { routes: [{ name: 'status', match: { path: '/status' }, limits: false }] },
      'rules[1].match.routes',
    ],
    [
      'is for callers without a credential, but no route accepts them',
      rule({ name: 'b', by: 'address', match: { authenticated: false } }),
      {},
      'rules[1].match.authenticated',
    ],
    [
      'counts bad keys where only tokens are accepted',
      rule({ name: 'b', by: 'address', on: 'auth-failure' }),
      { credentials: { jwt: { staff: jwt(issuer) }, accept: ['staff'] } },
      'rules[1].on',
    ],
  ])('is reported if it %s', (_, second, settings, path) => {
    expect(pathsIn({ rules: [RULE, second], ...settings })).toEqual([path])
  })

  const minute = { algorithm: 'fixed-window', period: '1m' }
  it.each([
    ['an equal one', RULE, rule({ name: 'b' }), ['rules[1]']],
    ['a stricter one', RULE, rule({ name: 'b', limit: 11 }), ['rules[1]']],
    ['a stricter one that follows', rule({ limit: 11 }), rule({ name: 'b' }), ['rules[0]']],
    // The bound for the first rule is 200 at once (two windows), plus 100 per minute: at most 300 in any minute.
    ['windows', rule({ limit: 100, ...minute }), rule({ name: 'b', limit: 300, ...minute }), ['rules[1]']],
    [
      'windows that can admit more together',
      rule({ limit: 100, ...minute }),
      rule({ name: 'b', limit: 299, ...minute }),
      [],
    ],
    ['a rate', rule({ limit: 2 }), rule({ name: 'b', limit: 122, ...minute }), ['rules[1]']],
    ['a rate that is too fast', rule({ limit: 2 }), rule({ name: 'b', limit: 121, ...minute }), []],
    [
      'a rate with twice the cost',
      rule({ limit: 2, cost: 2 }),
      rule({ name: 'b', limit: 61, ...minute }),
      ['rules[1]'],
    ],
    ['one for more callers', rule({ by: 'global' }), rule({ name: 'b', limit: 11 }), ['rules[1]']],
    ['one for fewer callers', rule({ by: ['consumer', 'route'] }), rule({ name: 'b', limit: 11 }), []],
    ['one for other callers', rule({ by: 'address' }), rule({ name: 'b', limit: 11 }), []],
    ['one for fewer requests', rule({ match: { methods: ['GET'] } }), rule({ name: 'b', limit: 11 }), []],
    [
      'one for the same requests',
      rule({ limit: 11, match: { methods: ['GET'] } }),
      rule({ name: 'b', match: { methods: ['GET'] } }),
      ['rules[0]'],
    ],
    ['a shadow', rule({ mode: 'shadow' }), rule({ name: 'b', limit: 11 }), []],
    ['one for some callers', rule({ enforce: 0.5 }), rule({ name: 'b', limit: 11 }), []],
    [
      'one with other numbers for a plan',
      rule({ plans: { free: { limit: 50 } } }),
      rule({ name: 'b', limit: 11 }),
      [],
    ],
    ['one beside a queue', RULE, rule({ name: 'b', algorithm: 'leaky-bucket', limit: 11 }), []],
    [
      'one beside a month',
      RULE,
      rule({ name: 'b', algorithm: 'fixed-window', limit: 1e9, period: 'month' }),
      ['rules[1]'],
    ],
    [
      'one beside a month that it can fill',
      RULE,
      rule({ name: 'b', algorithm: 'fixed-window', limit: 26e6, period: 'month' }),
      [],
    ],
  ] as const)('is reported only if another rule is always reached first: %s', (_, first, second, paths) => {
    const rules = [first, second, ALL]
    expect(pathsIn({ rules })).toEqual(paths)
  })

  it('is reported with the rule that is reached first', () => {
    expect(warningsIn({ rules: [RULE, rule({ name: 'b', limit: 11 })] })).toEqual([
      "rules[1]: never refuses: 'a' (10 per second) counts the same requests, and its limit is always reached first. Lower the limit of this rule, or remove one of the two.",
    ])
  })
})

describe('requests that no rule covers', () => {
  const REPORTS = { name: 'reports', match: { path: '/reports/*' } }
  const DOCS = { name: 'docs', match: { path: '/docs/*' }, accept: ['api-key', 'anonymous'] }
  const uncoveredIn = (config: object) =>
    warningsIn(config).flatMap(
      text => /^rules: (.*) may pass without a limit\. Add a rule/.exec(text)?.[1] ?? [],
    )

  it.each([
    ['a rule for all', [RULE], {}, []],
    ['a path', [rule({ match: { path: '/reports/*' } })], {}, ['every request from callers with a key']],
    [
      'a route',
      [rule({ match: { routes: ['reports'] } })],
      { routes: [REPORTS] },
      ['requests without a route from callers with a key'],
    ],
    [
      'all routes',
      [rule({ match: { routes: ['all'] } })],
      { routes: [{ name: 'all', match: { path: '/*' } }] },
      [],
    ],
    [
      'methods',
      [rule({ match: { methods: ['GET', 'POST'] } })],
      {},
      ['every request with a method other than GET, POST and HEAD from callers with a key'],
    ],
    [
      'callers without a credential',
      [RULE],
      { routes: [DOCS] },
      ['requests on the route docs from callers without a credential'],
    ],
    ['an address', [ALL], { routes: [DOCS] }, []],
    ['a route where nothing is counted', [RULE], { routes: [{ ...DOCS, limits: false }] }, []],
    [
      'a plan',
      [rule({ match: { plans: ['free'] } })],
      { plans: ['free', 'pro'] },
      ['every request from callers with a key on plan pro'],
    ],
    ['a plan that is left out on purpose', [rule({ plans: { pro: false } })], { plans: ['free', 'pro'] }, []],
    [
      'the path of a route',
      [rule({ match: { path: '/reports/*' } }), rule({ name: 'b', match: { path: '/*' } })],
      { routes: [REPORTS] },
      [],
    ],
    [
      'a path that contains that of a route',
      [rule({ match: { path: '/reports/*' } })],
      { routes: [{ name: 'r', match: { path: '/reports/year/*' } }] },
      ['requests without a route from callers with a key'],
    ],
    [
      'claims',
      [rule({ by: 'claim:org' })],
      {
        credentials: {
          jwt: { staff: jwt({ access: 'https://team.cloudflareaccess.com', audience: 'api' }) },
        },
      },
      ['every request from callers with a key'],
    ],
  ])('are reported, if there are any: %s', (_, rules, settings, expected) => {
    expect(uncoveredIn({ rules, ...settings })).toEqual(expected)
  })

  it('are all requests if no rule is enforced', () => {
    const rules = [rule({ mode: 'shadow' }), rule({ name: 'b', on: 'auth-failure', by: 'address' })]
    expect(warningsIn({ rules })).toEqual([
      "rules: has no rule that is enforced: every request passes without a limit. Set mode: 'enforce' for a rule, unless this is intended.",
    ])
  })

  it('get a different warning if an adaptive rule limits them, because one caller can use all of its limit', () => {
    const origin = {
      name: 'origin',
      by: 'global',
      algorithm: 'concurrency',
      limit: 1000,
      adaptive: { min: 10 },
    }
    expect(warningsIn({ rules: [origin] })).toEqual([
      "rules: has no limit for a single caller: the adaptive rule 'origin' protects the origin, but one caller can use the whole limit. Add a rule with by: 'consumer' or by: 'address'.",
    ])
    expect(warningsIn({ rules: [{ ...origin, mode: 'shadow' }] })).toContainEqual(
      expect.stringMatching(/^rules: has no rule that is enforced: /),
    )
  })

  const limits = { mails: [{ name: 'b', algorithm: 'gcra', limit: 1, period: '1s' }] }
  const warningsOfAll = (config: object) => warningsOf(checkConfig(config)).map(({ message }) => message)
  it.each([
    [{}, 'with a valid credential pass without a limit.'],
    [{ rules: [] }, 'with a valid credential pass without a limit.'],
    [{ origin: 'route', limits }, 'with a valid credential pass without a limit.'],
    [{ plans: ['free', 'pro'], limits }, 'with a valid credential pass without a limit.'],
    [{ credentials: { accept: ['anonymous'] } }, 'pass without a limit, even without a credential.'],
    [
      { routes: [{ name: 'open', match: { path: '/open' }, accept: ['anonymous'] }] },
      'pass without a limit, even without a credential.',
    ],
  ])('are all requests if there is no rule: %j', (config, expected) => {
    expect(warningsOfAll(config)).toEqual([
      `has no rule: requests ${expected} Add a rule, unless this is intended.`,
    ])
  })

  it.each([
    ['has limits by name alone', { limits, environment: 'live', store: { deadline: '1s' } }],
    ['turns limits off for every route', { routes: [{ name: 'all', match: { path: '/*' }, limits: false }] }],
  ])('are not reported for a config without rules that %s', (_, config) => {
    expect(warningsOfAll(config)).toEqual([])
  })
})

describe('an identity that clients choose', () => {
  it.each([
    ['header:x-tenant', ['rules[0].by']],
    [['header:x-tenant', 'route'], ['rules[0].by']],
    [['consumer', 'header:x-tenant'], []],
    [['address', 'header:x-tenant'], []],
    ['header:cf-ipcountry', []],
    ['country', []],
    ['host', ['rules[0].by']],
    [['host', 'route'], ['rules[0].by']],
    [['consumer', 'host'], []],
    [['address', 'host'], []],
  ])('is reported if clients can choose all of its parts: %j', (by, paths) => {
    expect(pathsIn({ rules: [rule({ by })], origin: undefined })).toEqual(paths)
  })

  it.each([
    ['the rule names hosts', { match: { host: '(api|www).example.com' } }, {}, []],
    [
      'the rule has a pattern that any name matches',
      { match: { host: '*.example.com' } },
      {},
      ['rules[0].by'],
    ],
    ['the rule has a pattern with a name', { match: { host: ':tenant.example.com' } }, {}, ['rules[0].by']],
    ['its routes name hosts', { match: { routes: ['named'] } }, {}, []],
    ['one of its routes names no host', { match: { routes: ['named', 'any'] } }, {}, ['rules[0].by']],
    ['Cloudflare passes on the hosts of its routes', {}, { origin: 'route' }, []],
  ])('is reported or not for the host: %s', (_, changes, config, paths) => {
    const routes = [
      { name: 'named', match: { host: 'api.example.com' } },
      { name: 'any', match: { path: '/any' } },
    ]
    const found = pathsIn({ rules: [rule({ by: 'host', ...changes })], routes, origin: undefined, ...config })
    expect(found.filter(path => path?.endsWith('.by'))).toEqual(paths)
  })

  it('is the address behind proxies, for clients that reach the gateway directly', () => {
    const address = { from: 'x-forwarded-for', trustedProxies: ['10.0.0.0/8'] }
    expect(pathsIn({ address })).toEqual(['address.from'])
    // The message must be true on every platform.
    expect(warningsIn({ address })).toEqual([
      expect.stringMatching(
        /^address.from: where the platform does not report .* as on Cloudflare Workers, /,
      ),
    ])
  })
})

it("a gateway with address.from: 'peer' gets a warning, because it does not see its peer", () => {
  const address = { from: 'peer' }
  const rules = [rule({})]
  expect(warningsIn({ rules, address, origin: 'https://api.example.com' })).toEqual([
    expect.stringMatching(/^address\.from: a gateway .* all its callers count as one address\. /),
  ])
  expect(warningsIn({ rules, address, origin: undefined })).toEqual([])
})

describe('a lease that no request is served from', () => {
  const lease = { for: '250ms' }

  it('is reported if the shedder by fleet usage counts each request', () => {
    const shedding = {
      classes: [{ name: 'critical', match: { path: '/pay' } }, { name: 'rest' }],
      fleetUsage: { capacity: 100 },
    }
    expect(warningsIn({ rules: [rule({ lease })], shedding })).toContainEqual(
      expect.stringMatching(/^shedding\.fleetUsage: counts each request .* the leases of 'a'\./),
    )
  })

  const LEASED = rule({ lease })
  const LOG = rule({ name: 'log', algorithm: 'sliding-log', limit: 100, period: '1h' })
  const GUESSES = rule({ name: 'guesses', by: 'address', on: 'auth-failure' })
  const leaseWarningsIn = (config: object) => warningsIn(config).filter(text => text.includes(' lease'))

  it.each([
    ['beside a rule that cannot have one', LEASED, LOG],
    ['beside a rule without one', LEASED, rule({ name: 'b', burst: 5, lease: false })],
    [
      'beside a rule that counts the same requests of more callers together',
      LEASED,
      { ...LOG, by: 'address' },
    ],
    ['beside a rule that counts the keys of the same callers', LEASED, { ...LOG, by: 'credential' }],
    ['beside a shadow', LEASED, { ...LOG, mode: 'shadow' }],
    ['beside a rule with other numbers for plans', LEASED, { ...LOG, plans: { free: { limit: 50 } } }],
  ])('is reported %s', (_, leased, other) => {
    expect(leaseWarningsIn({ rules: [other, leased] })).toEqual([
      expect.stringMatching(/^rules\[0\]: the lease of 'a' saves nothing, because '\w+' has none /),
    ])
  })

  it.each([
    ['a rule that is off', LEASED, { ...LOG, mode: 'off' }],
    ['a rule at cost 0', LEASED, { ...LOG, cost: 0 }],
    ['a rule for some requests', LEASED, { ...LOG, match: { path: '/reports/*' } }],
    ['a rule that does not apply to a plan', LEASED, { ...LOG, plans: { free: false } }],
    ['a rule for callers with a key only', rule({ by: 'address', lease }), LOG],
    ['a rule for guesses', LEASED, GUESSES],
  ])('is not reported beside %s', (_, leased, other) => {
    expect(leaseWarningsIn({ plans: ['free', 'pro'], rules: [leased, other] })).toEqual([])
  })

  it('is reported once, with all rules and the fix', () => {
    const minute = { algorithm: 'fixed-window', limit: 50, period: '1m' }
    const rules = [RULE, rule({ name: 'b', ...minute }), rule({ name: 'off', ...minute, mode: 'off' })]
    expect(leaseWarningsIn({ lease, rules: [...rules, LOG] })).toEqual([
      "rules[3]: the lease of 'a' and 'b' saves nothing, because 'log' has none and counts the same requests. Use another algorithm for it, or remove the lease from 'a' and 'b'.",
    ])
    const without = rule({ name: 'c', algorithm: 'fixed-window', limit: 60, period: '1h', lease: false })
    expect(leaseWarningsIn({ lease, rules: [...rules, without] })).toEqual([
      "rules[3]: the lease of 'a' and 'b' saves nothing, because 'c' has none and counts the same requests. Give it one, or remove the lease from 'a' and 'b'.",
    ])
    expect(leaseWarningsIn({ lease, rules: [...rules, without, { ...without, name: 'd' }] })).toEqual([
      "rules[3]: the lease of 'a' and 'b' saves nothing, because 'c' and 'd' have none and count the same requests. Give them one, or remove the lease from 'a' and 'b'.",
    ])
  })

  it('is reported for the config if it applies to no rule', () => {
    const mails = [{ name: 'a', algorithm: 'gcra', limit: 10, period: '1s' }]
    const message =
      "lease: has no effect: every rule has a lease setting of its own, or cannot have a lease (sliding-log, concurrency, on: 'auth-failure', countIf, unit). Leave it out."
    for (const rules of [[ALL], [LEASED], [rule({ lease: false })], [ALL, GUESSES]]) {
      expect(leaseWarningsIn({ lease, rules })).toEqual([message])
      expect(leaseWarningsIn({ lease, rules, limits: { mails } })).toEqual([])
    }
    expect(leaseWarningsIn({ lease })).toEqual([])
  })
})

describe('a rule by address that counts test callers with live ones', () => {
  const OTHER = rule({
    name: 'b',
    by: ['address', 'mode'],
    algorithm: 'sliding-log',
    limit: 100,
    period: '1h',
  })
  const text =
    "rules[0].by: counts test callers and live ones of an address together, so test requests can lock live ones. Write ['address', 'mode'], or match: { mode: 'live' }."

  it.each([
    ['in a config with another rule by mode', { rules: [ALL, OTHER] }],
    ['with a rule for test callers', { rules: [ALL, rule({ match: { mode: 'test' } })] }],
    ['with a rule across modes', { rules: [ALL, rule({ acrossModes: true })] }],
    [
      'with a class of test traffic',
      {
        rules: [ALL],
        shedding: {
          classes: [{ name: 'test', match: { mode: 'test' } }, { name: 'rest' }],
          fleetUsage: { capacity: 9 },
        },
      },
    ],
    [
      'with the mode in tokens',
      {
        rules: [ALL],
        credentials: {
          jwt: {
            own: jwt({
              secret: 'S',
              algorithms: ['HS256'],
              issuer: 'i',
              audience: 'a',
              claims: { mode: 'env' },
            }),
          },
        },
      },
    ],
  ])('is reported %s', (_, config) => expect(warningsIn(config)).toContain(text))

  it.each([
    ['no rule or credential says anything of modes', { rules: [ALL] }],
    ['the consumer is counted, too', { rules: [rule({ by: ['address', 'consumer'] }), OTHER] }],
    [
      'it is for callers without a credential',
      { rules: [{ ...ALL, match: { authenticated: false } }, OTHER] },
    ],
    ['it counts guesses, which have no mode', { rules: [{ ...ALL, on: 'auth-failure' }, OTHER] }],
  ])('is not reported if %s', (_, config) =>
    expect(warningsIn(config).filter(text => text.includes('test callers'))).toEqual([]),
  )
})
