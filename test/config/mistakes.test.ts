/** More mistakes that users make (see also compile.test.ts). Each is reported with its path, its value and the fix. */
import assert from 'node:assert/strict'
import { describe, expect, it } from 'vitest'
import { ALGORITHM_NAMES, descriptionOf } from '../../src/algorithms/index.ts'
import { checkedConfig } from '../../src/config/check/check.ts'
import { ConfigError } from '../../src/config/config-error.ts'
import { jwt } from '../../src/credentials/jwt.ts'
import { SELECTION } from '../selection.ts'
import everything from '../support/everything.config.ts'

const RULE = { name: 'a', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' }
const CONFIG = { origin: 'https://api.example.com', rules: [RULE] }
const ROUTE = { name: 'reports', match: { path: '/reports/*' } }
const ISSUER = {
  jwks: 'https://issuer.example.com/jwks.json',
  algorithms: ['RS256' as const],
  issuer: 'https://issuer.example.com/',
  audience: 'api',
}

const withRule = (changes: object) => ({ ...CONFIG, rules: [{ ...RULE, ...changes }] })
const withJwt = (value: unknown) => ({ ...CONFIG, credentials: { jwt: value } })

function mistakesIn(config: unknown): string[] {
  try {
    checkedConfig(config)
    return []
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError)
    return (error as ConfigError).mistakes.map(({ path, message }) => `${path}: ${message}`)
  }
}

const algorithmsWith = (parameter: string) =>
  ALGORITHM_NAMES.filter(algorithm => parameter in descriptionOf({ algorithm }).parameters).join(', ')
const NUMBERS = `a plan can have a limit, a burst (${algorithmsWith('burst')}) and a queue (${algorithmsWith('queue')}) of its own. Write it like { limit: 1200 }.`
const SHED_CLASS = { name: 'critical', match: { methods: ['POST'] } }
const ADAPTIVE_FIX =
  "is not an amount. For a limit that follows the origin, write its highest value and add adaptive, as in limit: 1000, adaptive: {}. The rule needs algorithm: 'concurrency' and by: 'global'."
const HOST =
  "is not a URLPattern of a host. Write something like 'api.example.com', without scheme, port and path."
const ISSUER_FIX = "Wrap it in jwt({ … }), with import { jwt } from 'sluicegate'."

describe('a mistake', () => {
  it.each([
    ['a list for the config', [], ['config: [] is a list. Write an object, { … }.']],
    [
      'a list for a rule',
      { ...CONFIG, rules: [['10/s']] },
      ["rules[0]: ['10/s'] is a list. Write an object, { … }."],
    ],
    [
      'a list for addresses',
      { ...CONFIG, allow: ['10.0.0.0/8'] },
      ["allow: ['10.0.0.0/8'] is a list. Write an object, { … }."],
    ],
    [
      'a hook that is not a function',
      { ...CONFIG, hooks: { cost: 5 } },
      ["hooks.cost: 5 is not a function. Write it like request => (request.method === 'POST' ? 5 : 1)."],
    ],
    [
      'a hook that does not exist',
      { ...CONFIG, hooks: { identity: () => 'alice' } },
      [
        "hooks.identity: is not a setting here. Did you mean 'identify'? Settings: identify, skip, plan, cost, amounts, refusal, actual, deadline.",
      ],
    ],
    [
      'hooks in a list',
      { ...CONFIG, hooks: [() => 1] },
      ['hooks: [null] is a list. Write an object, { … }.'],
    ],
    [
      'a deadline of hooks that is too long',
      { ...CONFIG, hooks: { deadline: '1m' } },
      ["hooks.deadline: '1m' is out of range. Use a duration from '1ms' to '30s'."],
    ],
    [
      'a hook that is never called',
      { ...CONFIG, hooks: { identify: () => 'alice' }, credentials: { accept: ['api-key'] } },
      [
        "hooks.identify: is never called: no accept list has 'identify'. Add it to credentials.accept, or to accept of a route.",
      ],
    ],
    [
      'a credential from a hook that does not exist',
      { ...CONFIG, routes: [{ ...ROUTE, accept: ['identify'] }] },
      ["routes[0].accept[0]: 'identify' is not a credential of this config. Add hooks.identify."],
    ],
    [
      'an issuer with the name of the hook',
      withJwt({ identify: jwt(ISSUER) }),
      ["credentials.jwt.identify: 'identify' is a reserved name. Choose another one, such as 'auth0'."],
    ],
    [
      'an unknown unit of X-RateLimit-Reset',
      { ...CONFIG, headers: { xRateLimit: 'seconds' } },
      [
        "headers.xRateLimit: 'seconds' is not a unit of X-RateLimit-Reset. Use 'delta-seconds' (from now) or 'unix-seconds' (a time).",
      ],
    ],
    [
      'headers that are not an object',
      { ...CONFIG, headers: true },
      ["headers: true is not an object. Write it like { xRateLimit: 'delta-seconds' }."],
    ],
    [
      'trusted Workers outside of Cloudflare',
      { ...CONFIG, address: { from: 'peer', trustedWorkers: ['web'] } },
      ["address.trustedWorkers: ['web'] has no effect with from: 'peer'. Leave it out."],
    ],
    [
      'an empty list of trusted Workers',
      { ...CONFIG, address: { trustedWorkers: [] } },
      ['address.trustedWorkers: [] is empty. Name a Worker, or leave it out.'],
    ],
    [
      'a trusted Worker without a name',
      { ...CONFIG, address: { trustedWorkers: [''] } },
      [
        "address.trustedWorkers[0]: '' is not a name of a Worker. Use 1 to 63 lowercase letters, digits, '-' and '_'.",
      ],
    ],
    [
      'guesses with concurrency',
      {
        ...CONFIG,
        rules: [{ name: 'a', by: 'address', algorithm: 'concurrency', limit: 5, on: 'auth-failure' }],
      },
      [
        "rules[0].on: 'auth-failure' cannot be combined with concurrency: a request with a bad credential is never in flight. Use another algorithm.",
      ],
    ],
    [
      'a ttl that is too short',
      { ...CONFIG, rules: [{ name: 'a', by: 'address', algorithm: 'concurrency', limit: 5, ttl: '10ms' }] },
      ["rules[0].ttl: '10ms' is out of range. Use a duration from '1s' to '1h'."],
    ],
    [
      'a list of limits by name',
      { ...CONFIG, limits: [{ ...RULE, by: ['account'] }] },
      [expect.stringContaining("is not an object. Write it like { zendesk: [{ name: 'second', … }] }.")],
    ],
    [
      'a limit that is not a number',
      withRule({ limit: Number.NaN }),
      ['rules[0].limit: NaN is not an amount. Write a whole number from 1 to 1000000000.'],
    ],
    [
      'an adaptive limit that is written as an amount',
      { ...CONFIG, rules: [{ name: 'a', by: 'global', algorithm: 'concurrency', limit: 'adaptive' }] },
      [`rules[0].limit: 'adaptive' ${ADAPTIVE_FIX}`],
    ],
    [
      'an adaptive capacity that is written as an amount',
      {
        ...CONFIG,
        shedding: { classes: [SHED_CLASS, { name: 'rest' }], fleetUsage: { capacity: 'adaptive' } },
      },
      [`shedding.fleetUsage.capacity: 'adaptive' ${ADAPTIVE_FIX}`],
    ],
    [
      'an identity part twice',
      withRule({ by: ['consumer', 'consumer'] }),
      ["rules[0].by: ['consumer', 'consumer'] names a part twice. Leave one out."],
    ],
    [
      'an identity part of a limit by name twice',
      { ...CONFIG, limits: { zendesk: [{ ...RULE, by: ['account', 'account'] }] } },
      ["limits.zendesk[0].by: ['account', 'account'] names a part twice. Leave one out."],
    ],
    [
      'a claim without tokens',
      withRule({ by: ['consumer', 'claim:org'] }),
      ["rules[0].by: 'claim:org' needs tokens, and credentials.jwt has no issuer. Add one."],
    ],
    [
      'a rule for failures at cost 0',
      withRule({ by: 'address', on: 'auth-failure', cost: 0 }),
      ['rules[0].cost: 0 counts no failures, so the rule would never refuse. Leave it out.'],
    ],
    [
      'a burst and a queue',
      withRule({ burst: 5, queue: 5 }),
      [
        'rules[0].queue: is not a setting here. Settings: name, unit, by, acrossModes, on, cost, countIf, match, plans, algorithm, limit, period, burst, mode, enforce, candidateFor, onStoreFailure, lease.',
      ],
    ],
  ])('%s', (_, config, mistakes) => expect(mistakesIn(config)).toEqual(mistakes))
})

describe('a mistake in leases', () => {
  const LOG_FIX =
    'cannot be combined with sliding-log: each request is an entry in the log with its own time. Leave it out, or use another algorithm.'
  const HELD = { name: 'b', by: 'address', algorithm: 'concurrency', limit: 5 }
  const lease = { for: '250ms' }

  it.each([
    ['a sliding log', withRule({ algorithm: 'sliding-log', lease }), [`rules[0].lease: ${LOG_FIX}`]],
    [
      'a sliding log in a limit by name',
      { limits: { mails: [{ name: 'a', algorithm: 'sliding-log', limit: 10, period: '1s', lease }] } },
      [`limits.mails[0].lease: ${LOG_FIX}`],
    ],
    [
      'a rule with concurrency',
      { ...CONFIG, rules: [RULE, { ...HELD, lease }] },
      [
        'rules[1].lease: cannot be combined with concurrency: requests in flight are counted when they begin and end. Leave it out, or use another algorithm.',
      ],
    ],
    [
      'a rule for guesses',
      withRule({ by: 'address', on: 'auth-failure', lease }),
      [
        "rules[0].lease: cannot be combined with on: 'auth-failure': each failure is counted when it happens. Leave it out.",
      ],
    ],
    [
      'a time that is too short',
      withRule({ lease: { for: '10ms' } }),
      ["rules[0].lease.for: '10ms' is out of range. Use a duration from '50ms' to '10s'."],
    ],
    [
      'a time that is too long, for all rules',
      { ...CONFIG, lease: { for: '11s' } },
      ["lease.for: '11s' is out of range. Use a duration from '50ms' to '10s'."],
    ],
    [
      'a lease without a time',
      withRule({ lease: {} }),
      [
        "rules[0].lease.for: is missing. Write a number and a unit in quotes, as in '250ms', '1s', '15m', '1h' or '1d'.",
      ],
    ],
    [
      'a lease that is only a time',
      withRule({ lease: '250ms' }),
      ["rules[0].lease: '250ms' is not a lease. Write it like { for: '250ms' }, or false."],
    ],
    [
      'false as the lease for all rules',
      { ...CONFIG, lease: false },
      ["lease: false is not a lease. Write it like { for: '250ms' }."],
    ],
    [
      'a misspelled algorithm, for which leases cannot be checked',
      withRule({ algorithm: 'sliding_log', lease }),
      [expect.stringMatching(/^rules\[0\]\.algorithm: /)],
    ],
  ])('%s', (_, config, mistakes) => expect(mistakesIn(config)).toEqual(mistakes))

  it.each([
    ['for all rules does not apply to', { lease: { for: '1s' } }, {}],
    ['is switched off for', {}, { lease: false }],
  ])('is not reported if a lease %s a log, requests in flight and guesses', (_, settings, changes) => {
    const log = { ...RULE, name: 'log', algorithm: 'sliding-log' }
    const guesses = { ...RULE, name: 'guesses', by: 'address', on: 'auth-failure' }
    const rules = [log, HELD, guesses].map(rule => ({ ...rule, ...changes }))
    expect(mistakesIn({ ...CONFIG, ...settings, rules })).toEqual([])
  })
})

describe('a misspelled word gets a suggestion', () => {
  it.each([
    [
      'a mode',
      withRule({ mode: 'shaddow' }),
      "rules[0].mode: 'shaddow' is not a mode. Did you mean 'shadow'?",
    ],
    [
      'a fallback',
      withRule({ onStoreFailure: 'locl' }),
      "rules[0].onStoreFailure: 'locl' is not a fallback. Did you mean 'local'?",
    ],
    [
      'an event',
      withRule({ on: 'auth-fail' }),
      "rules[0].on: 'auth-fail' is not an event to count. Did you mean 'auth-failure'?",
    ],
    [
      'a period',
      withRule({ algorithm: 'fixed-window', period: 'dayy' }),
      "rules[0].period: 'dayy' is not a period. Did you mean 'day'?",
    ],
    [
      'a source of addresses',
      { ...CONFIG, address: { from: 'x-forwarded-fr' } },
      "address.from: 'x-forwarded-fr' is not a source of addresses. Did you mean 'x-forwarded-for'?",
    ],
    [
      'a signal',
      {
        ...CONFIG,
        shedding: { classes: [SHED_CLASS, { name: 'rest' }], workerUtilization: { signals: ['headr'] } },
      },
      "shedding.workerUtilization.signals[0]: 'headr' is not a signal. Did you mean 'header'?",
    ],
    [
      'a fallback for keys',
      { ...CONFIG, credentials: { onStoreFailure: 'recnt' } },
      "credentials.onStoreFailure: 'recnt' is not a fallback for keys. Did you mean 'recent'?",
    ],
    [
      'a plan of a rule that is for some plans',
      {
        ...CONFIG,
        plans: ['free', 'pro'],
        rules: [{ ...RULE, match: { plans: ['free'] }, plans: { prro: { limit: 5 } } }],
      },
      "rules[0].plans.prro: is not in plans (free, pro). Did you mean 'pro'?",
    ],
  ])('%s', (_, config, message) => {
    expect(mistakesIn(config)).toEqual([expect.stringContaining(message)])
  })
})

describe('a mistake in plans', () => {
  it.each([
    [
      'a plan twice',
      { ...CONFIG, plans: ['free', 'free'] },
      ["plans[1]: 'free' is listed twice. Leave one out."],
    ],
    [
      'a list',
      withRule({ plans: ['free'] }),
      ["rules[0].plans: ['free'] is not an object. Write it like { pro: { limit: 1200 } }."],
    ],
    [
      'a number',
      withRule({ plans: { free: 5 } }),
      [`rules[0].plans.free: 5 is neither numbers nor false: ${NUMBERS}`],
    ],
    [
      'a period',
      withRule({ plans: { free: { period: '1m' } } }),
      [`rules[0].plans.free: { period: '1m' } cannot have period: ${NUMBERS}`],
    ],
    [
      'a limit below the cost',
      withRule({ cost: 5, plans: { free: { limit: 2 } } }),
      [
        'rules[0].plans.free: admits 2 at once, but a request costs 5. Raise its burst to 5, or lower cost to 2.',
      ],
    ],
    [
      'a limit that the record of a sliding-window cannot hold',
      withRule({ algorithm: 'sliding-window', plans: { free: { limit: 8_388_608 } } }),
      ['rules[0].plans.free.limit: 8388608 is above 8388607, the maximum of sliding-window. Lower it.'],
    ],
    [
      'a limit above the maximum of a sliding-log',
      withRule({ algorithm: 'sliding-log', plans: { free: { limit: 100_001 } } }),
      ['rules[0].plans.free.limit: 100001 is above 100000, the maximum of sliding-log. Lower it.'],
    ],
    [
      'false for every plan',
      withRule({ plans: { free: false } }),
      [
        "rules[0].plans: is false for every plan, so the rule would apply to no caller. Use mode: 'off', or keep a plan.",
      ],
    ],
    [
      'no mistake: false for every plan, if anonymous callers are left',
      withRule({ by: 'address', plans: { free: false } }),
      [],
    ],
  ])('%s', (_, config, mistakes) => expect(mistakesIn(config)).toEqual(mistakes))
})

describe('a mistake in patterns', () => {
  it.each([
    ['host', 'https://api.example.com', [`'https://api.example.com' ${HOST}`]],
    ['host', 'api.example.com:8080', [`'api.example.com:8080' ${HOST}`]],
    ['host', 'api.example.com/v1', [`'api.example.com/v1' ${HOST}`]],
    ['host', '{www.}?example.com', []],
    ['host', '(api|www).example.com', []],
    [
      'path',
      '/reports?year=1',
      ["'/reports?year=1' is not a URLPattern. Write something like '/reports/*', without a query."],
    ],
    ['path', 'reports', ["'reports' does not start with '/'. Write it like '/reports/*'."]],
    [
      'path',
      ['/reports', '/exports'],
      [
        "['/reports', '/exports'] is a list. Write one pattern, as in '/(reports|exports)/*', or one rule or route for each.",
      ],
    ],
    ['path', '/(reports|exports)/*', []],
    ['path', '/a)', []],
    ...['/a/../b', '/%2E/b', '/a/\\.\\.', '/a{/..}/b'].map(
      path =>
        [
          'path',
          path,
          [`'${path}' contains a '.' or '..' segment, which paths are matched without. Remove it.`],
        ] as const,
    ),
    ['path', '/a\tb', ["'/a\tb' contains a tab or a line break, which no URL contains. Remove it."]],
    [
      'path',
      '/*{/a}*b',
      [
        "'/*{/a}*b' could take a long time to match, because the same text can belong to two of its parts. Use fewer '*', '+' and '?', or several patterns.",
      ],
    ],
    ['path', '', ["'' is not a pattern. Write text such as '/reports/*'.", expect.stringContaining('start')]],
  ] as const)('%s: %j', (key, pattern, mistakes) => {
    const expected = mistakes.map(mistake =>
      typeof mistake === 'string' ? `rules[0].match.${key}: ${mistake}` : mistake,
    )
    expect(mistakesIn(withRule({ match: { [key]: pattern } }))).toEqual(expected)
  })
})

describe('a mistake in routes', () => {
  const withRoutes = (...routes: object[]) => ({ ...CONFIG, routes })
  it.each([
    [
      'the same match twice',
      withRoutes(ROUTE, { ...ROUTE, name: 'again', match: { path: '/Reports/*' } }),
      [
        'routes[1].match: is the same as in routes[0], which comes first: no request would get this route. Leave one of them out.',
      ],
    ],
    [
      'a cost that can never be admitted',
      withRoutes({ ...ROUTE, cost: 11 }),
      [
        'routes[0].cost: 11 times the cost of rules[0] (1) is above its burst of 10: no request here would ever be admitted. Lower it.',
      ],
    ],
    [
      'no mistake: a high cost if no rule may apply',
      withRoutes({ ...ROUTE, cost: 11, accept: ['anonymous'] }),
      [],
    ],
    [
      'no mistake: a high cost where the rule does not apply',
      {
        ...withRoutes({ ...ROUTE, cost: 11 }),
        rules: [{ ...RULE, match: { path: '/other' } }],
      },
      [],
    ],
    [
      'a cost with limits: false',
      withRoutes({ ...ROUTE, cost: 3, limits: false }),
      ['routes[0].cost: 3 has no effect with limits: false. Leave one of them out.'],
    ],
    [
      'a misspelled credential',
      withRoutes({ ...ROUTE, accept: ['apiKey'] }),
      [
        "routes[0].accept[0]: 'apiKey' is not a credential of this config. Did you mean 'api-key'? Use one of: api-key, anonymous.",
      ],
    ],
  ])('%s', (_, config, mistakes) => expect(mistakesIn(config)).toEqual(mistakes))
})

it.each(['constructor', 'prototype'])('a limit cannot be called %s', name => {
  const rule = { name: 'day', by: ['account'], algorithm: 'fixed-window', limit: 5, period: '1d' }
  expect(mistakesIn({ origin: 'route', limits: { [name]: [rule] } } as never)).toEqual([
    expect.stringContaining(`cannot have the name '${name}', which every object has. Choose another name.`),
  ])
})

describe('a mistake in credentials', () => {
  it.each([
    [
      'an issuer without jwt()',
      withJwt({ auth0: ISSUER }),
      [`credentials.jwt.auth0: is not an issuer. ${ISSUER_FIX}`],
    ],
    [
      'a secret instead of its name',
      withJwt({ auth0: { secret: 'a secret', algorithms: ['HS256'] } }),
      [`credentials.jwt.auth0: is not an issuer. ${ISSUER_FIX}`],
    ],
    [
      'an issuer without a name',
      withJwt(jwt(ISSUER)),
      ['credentials.jwt: is an issuer without a name. Write it like { auth0: jwt({ … }) }.'],
    ],
    [
      'a list of issuers',
      withJwt([jwt(ISSUER)]),
      ['credentials.jwt: is not an object. Write it like { auth0: jwt({ … }) }.'],
    ],
    [
      'opaque keys in the Authorization header',
      { ...CONFIG, credentials: { opaqueKeys: { header: 'Authorization' } } },
      [
        "credentials.opaqueKeys.header: 'Authorization' is always searched for keys. Leave it out, or name another header.",
      ],
    ],
    [
      'a plan of signed keys that the config does not have',
      { ...CONFIG, plans: ['free', 'pro'], credentials: { onStoreFailure: 'signed', signedPlan: 'fre' } },
      ["credentials.signedPlan: 'fre' is not in plans (free, pro). Did you mean 'free'?"],
    ],
  ])('%s', (_, config, mistakes) => expect(mistakesIn(config)).toEqual(mistakes))
})

describe('a mistake in lists', () => {
  it.each([
    [
      { allow: { addresses: ['10.0.0.0/8', '::/0'] } },
      "allow.addresses[1]: '::/0' covers all addresses. To turn limiting off, set mode: 'off' or 'shadow' in the rules.",
    ],
    [
      { block: { addresses: ['0.0.0.0/0'] } },
      "block.addresses[0]: '0.0.0.0/0' covers all addresses. Every request would be refused. Name the ranges.",
    ],
    [
      { allow: { consumers: ['acme', 'Acme Corp'] } },
      "allow.consumers[1]: 'Acme Corp' is not a consumer. Write its name, as in 'acme', or if tokens identify it, the issuer and the percent-encoded claim, as in 'auth0~alice%40example.com'.",
    ],
    [
      { cors: { origins: [] } },
      'cors.origins: [] is empty: no web page could read the replies. Name an origin.',
    ],
    [
      { cors: { origins: '*', headers: 'x-api-key' } },
      "cors.headers: 'x-api-key' is not a list of header names. Write it like ['content-type'].",
    ],
  ])('%j', (settings, mistake) => expect(mistakesIn({ ...CONFIG, ...settings })).toEqual([mistake]))

  it('is not reported for the name of a consumer from a token', () => {
    const consumers = ['acme', 'auth0~alice%40example.com', `auth0~#${'0'.repeat(64)}`]
    expect(mistakesIn({ ...CONFIG, allow: { consumers } })).toEqual([])
  })
})

it('a mistake is reported for any value, even one that JSON cannot represent', () => {
  const cyclic: Record<string, unknown> = {}
  cyclic.self = cyclic
  expect(mistakesIn({ ...CONFIG, origin: 10n, log: [5n], cors: { origins: cyclic } })).toEqual([
    expect.stringMatching(/^origin: 10n is not an origin/),
    "log: ['5n'] is a list. Write an object, { … }.",
    expect.stringMatching(/^cors.origins: an object is not a list of origins/),
  ])
})

describe('all mistakes are reported at once', () => {
  const rule = (changes: object) => ({ ...RULE, ...changes })
  it('together with an invalid origin: duplicate names, and plans, routes and rules that do not exist', () => {
    const config = {
      origin: 'api.example.com',
      plans: ['free', 'pro'],
      routes: [ROUTE],
      rules: [
        RULE,
        rule({ match: { plans: ['prp'], routes: ['report'] } }),
        rule({ name: 'b', candidateFor: 'minute', plans: { gold: { limit: 5 } } }),
        rule({ name: 'minutes', by: 'address' }),
      ],
    }
    expect(mistakesIn(config)).toEqual([
      expect.stringMatching(/^origin: /),
      "rules[1].name: 'a' is already the name of rules[0]. Give each rule its own name.",
      "rules[2].candidateFor: 'minute' is not a rule that can be replaced: it must be another rule in rules, not off, and not a candidate itself. Did you mean 'minutes'?",
      "rules[1].match.routes: 'report' is not in routes (reports). Did you mean 'reports'?",
      "rules[1].match.plans: 'prp' is not in plans (free, pro). Did you mean 'pro'?",
      'rules[2].plans.gold: is not in plans (free, pro). Add it there.',
    ])
  })

  it('every misspelled key, at the top level and below', () => {
    const config = { ...CONFIG, rules: [rule({ perod: '1s', lmit: 5 })], Origin: 'x', route: [], zzz: 1 }
    expect(mistakesIn(config).map(text => text.split(' Settings')[0])).toEqual([
      "rules[0].perod: is not a setting here. Did you mean 'period'?",
      "Origin: is not a setting here. Did you mean 'origin'?",
      "rules[0].lmit: is not a setting here. Did you mean 'limit'?",
      "route: is not a setting here. Did you mean 'routes'?",
      'zzz: is not a setting here.',
    ])
  })

  it('every misspelled key of an issuer, together with its other mistakes', () => {
    const issuer = {
      ...ISSUER,
      issuer: 5,
      audiences: 'api',
      clockTollerance: '1s',
    } as unknown as typeof ISSUER
    expect(mistakesIn(withJwt({ auth0: jwt(issuer) })).map(text => text.split('. ')[0])).toEqual([
      'credentials.jwt.auth0.issuer: 5 is not an issuer',
      'credentials.jwt.auth0.audiences: is not a setting here',
      'credentials.jwt.auth0.clockTollerance: is not a setting here',
    ])
  })

  it('for a rule with a misspelled algorithm: all that do not depend on the algorithm', () => {
    const config = {
      ...CONFIG,
      rules: [rule({ name: 'A', algorithm: 'GCRA', limit: 0, queue: 3, mode: 'on' })],
    }
    expect(mistakesIn(config).map(text => text.split(': ')[0])).toEqual([
      ...['rules[0].algorithm', 'rules[0].name', 'rules[0].limit', 'rules[0].mode'],
    ])
    expect(mistakesIn(config)[0]).toContain("'GCRA' is not an algorithm. Did you mean 'gcra'?")
  })

  it.each([
    ['a plan of an invalid list', { plans: 'pro' }, { match: { plans: ['pro'] } }, ['plans']],
    [
      'a route with an invalid name',
      { routes: [{ ...ROUTE, name: 'Reports' }] },
      { match: { routes: ['reports'] } },
      ['routes[0].name'],
    ],
    ['a cost beside an invalid limit', {}, { limit: '1000', cost: 50, burst: 10 }, ['rules[0].limit']],
    [
      'a credential with invalid issuers',
      { credentials: { jwt: 5, accept: ['auth0'] } },
      {},
      ['credentials.jwt'],
    ],
    [
      'nothing is left out for a candidate in a valid set beside an invalid one',
      { limits: { x: 5, y: [{ name: 'a', algorithm: 'gcra', limit: 1, period: '1s', candidateFor: 'b' }] } },
      {},
      ['limits.x', 'limits.y[0].candidateFor'],
    ],
    ['an invalid list entry', { allow: { addresses: ['x', '10.0.0.0/8'] } }, {}, ['allow.addresses[0]']],
  ])('except those that follow from another mistake: %s', (_, settings, changes, paths) => {
    const mistakes = mistakesIn({ ...CONFIG, ...settings, rules: [rule(changes)] })
    expect(mistakes.map(text => text.split(': ')[0])).toEqual(paths)
  })

  it.each([
    ['an invalid mode', { mode: 'on', cost: 50 }, ['rules[0].mode', 'rules[0].cost']],
    ['an invalid part', { by: 'ip', enforce: 0.5, mode: 'shadow' }, ['rules[0].by', 'rules[0].enforce']],
  ])('for a rule, also those that do not depend on the invalid value: beside %s', (_, changes, paths) => {
    expect(mistakesIn(withRule(changes)).map(text => text.split(': ')[0])).toEqual(paths)
  })

  it('with the values that the user wrote, even if sections are missing or have another form', () => {
    const config = {
      rules: [rule({ limit: undefined }), 5, rule({ name: 'b' }), rule({ name: 'b' })],
      shedding: { classes: [null] },
      allow: { addresses: ['::/0'], consumers: [1] },
    }
    expect(mistakesIn(config).map(text => text.split(': ')[0])).toEqual([
      ...['rules[0].limit', 'rules[1]', 'shedding.classes[0]', 'allow.consumers[0]'],
      ...['shedding.classes', 'rules[3].name', 'allow.addresses[0]'],
    ])
  })
})

const NOT_PLAIN = 'is not a plain object. Write { … }; if it is a Promise, await it.'

describe('values that are not plain data', () => {
  it.each<[string, unknown, string]>([
    ['a Promise', Promise.resolve(CONFIG), `config: a Promise ${NOT_PLAIN}`],
    ['a Map', new Map(Object.entries(CONFIG)), `config: a Map ${NOT_PLAIN}`],
    ['a Map inside', withRule({ match: new Map([['path', '/x']]) }), `rules[0].match: a Map ${NOT_PLAIN}`],
    ['inherited settings', Object.create(CONFIG), `config: {} ${NOT_PLAIN}`],
    [
      'a getter that throws',
      {
        ...CONFIG,
        rules: [
          Object.defineProperty({ ...RULE }, 'limit', { enumerable: true, get: () => assert.fail('no') }),
        ],
      },
      'rules[0].limit: cannot be read: no. Write the value.',
    ],
  ])('are mistakes: %s', (_, config, mistake) => expect(mistakesIn(config)).toEqual([mistake]))

  it('may be objects without a prototype, and may occur several times', () => {
    const rule = Object.assign(Object.create(null), RULE)
    expect(mistakesIn({ ...CONFIG, rules: [rule, { ...rule, name: 'b', match: {} }] })).toEqual([])
  })

  // The check must not convert such a value to text. `npm test` checks each place with one of the two values, in one of
  // its two forms.
  it.each<[string, number, unknown]>([
    ['without a prototype', 0, Object.create(null)],
    ['whose toString throws', 1, { toString: () => assert.fail('converted to text') }],
  ])('are reported at any place: an object %s', (_, turn, value) => {
    for (const [config, paths] of EVERYWHERE) {
      for (const [i, path] of paths.entries()) {
        if (SELECTION === 'quick' && i % 2 !== turn) continue
        const forms = [value, [value]]
        for (const wrong of SELECTION === 'all' ? forms : [forms[Math.floor(i / 2) % 2]]) {
          const mistakes = mistakesIn(replaceAt(config, path, wrong))
          expect(mistakes.join('\n'), path.join('.')).not.toContain('converted to text')
        }
      }
    }
  })
})

describe('names that every object inherits', () => {
  it.each(['constructor', 'toString', '__proto__', 'hasOwnProperty'])('%s is not known anywhere', name => {
    const config = {
      ...CONFIG,
      plans: ['free'],
      rules: [{ ...RULE, plans: { free: { [name]: 1 } } }],
      credentials: { accept: [name] },
      [name]: 1,
    }
    const mistakes = mistakesIn(config)
    expect(mistakes.join('\n')).not.toMatch(/native code|undefined|\[object/)
    expect(mistakes).toHaveLength(3)
    expect(mistakes).toContain(
      `credentials.accept[0]: '${name}' is not a credential of this config. Use one of: api-key, anonymous.`,
    )
  })
})

/** Configs, and the paths of all of their values. */
const EVERYWHERE: readonly (readonly [object, readonly (readonly string[])[]])[] = [
  everything,
  CONFIG,
  withJwt({ auth0: jwt(ISSUER) }),
].map(config => [config, pathsIn(config)] as const)

function pathsIn(value: unknown, path: readonly string[] = []): (readonly string[])[] {
  // The functions of jwt() are not written by users.
  if (typeof value === 'function') return []
  if (typeof value !== 'object' || value === null) return path.length > 0 ? [path] : []
  const inner = Object.entries(value).flatMap(([key, each]) => pathsIn(each, [...path, key]))
  return path.length > 0 ? [path, ...inner] : inner
}

function replaceAt(whole: unknown, [key, ...rest]: readonly string[], value: unknown): unknown {
  if (key === undefined) return value
  if (Array.isArray(whole))
    return whole.map((each, i) => (String(i) === key ? replaceAt(each, rest, value) : each))
  return { ...(whole as object), [key]: replaceAt((whole as Record<string, unknown>)[key], rest, value) }
}
