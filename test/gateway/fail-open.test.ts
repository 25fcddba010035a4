/** `failOpen`: whatever fails, exactly those requests get a 503 that the table of docs/failure.md names. */
import type { ServerResponse } from 'node:http'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { ConfigInput, HooksInput } from '../../src/config/check/schema.ts'
import { jwt } from '../../src/credentials/jwt.ts'
import { blockConsumer } from '../../src/ops/consumers.ts'
import { revokeKey } from '../../src/ops/key-changes.ts'
import { gateway as createWorker } from '../../src/set-ups/gateway/whole-worker.ts'
import { ALL_PARTS } from '../../src/set-ups/http/all-parts.ts'
import { sha256 } from '../../src/sha256.ts'
import { createDeadlineClock } from '../support/deadline-clock.ts'
import { type App, type TestPlatform, TOKEN, useGateway } from '../support/gateway.ts'
import { readPage } from '../support/pages.ts'

const gateway = useGateway()
beforeEach(() => {
  for (const method of ['info', 'warn', 'error'] as const)
    vi.spyOn(console, method).mockImplementation(() => {})
})
afterEach(() => vi.restoreAllMocks())

const SETTINGS = [undefined, true, 'unconfigured'] as const

type CallerName = 'anonymous' | 'known' | 'fresh' | 'named'

/** The callers that get a 503. `named`: one that only the hook `identify` can name, on a route that accepts no other. */
const REFUSED = {
  none: [],
  'new keys': ['fresh'],
  'unnamed callers': ['named'],
  everyone: ['anonymous', 'known', 'fresh', 'named'],
} satisfies Record<string, CallerName[]>

/** The rows of the table: what fails, and who is refused under each setting. */
const TABLE = new Map(
  [...readPage('docs/failure.md').matchAll(/^\| (.+?) \| (.+?) \| (.+?) \|$/gm)].flatMap(
    ([, what, ...cells]) =>
      cells.every(cell => Object.hasOwn(REFUSED, cell)) ? [[what!, cells as (keyof typeof REFUSED)[]]] : [],
  ),
)

const VARIABLES = { ISSUER_SECRET: 'a secret of 32 characters, or more' }

const CONFIG = {
  plans: ['free', 'pro'],
  credentials: {
    accept: ['api-key', 'issuer', 'identify', 'anonymous'],
    jwt: { issuer: jwt({ secret: 'ISSUER_SECRET', algorithms: ['HS256'], issuer: 'i', audience: 'a' }) },
  },
  routes: [{ name: 'users', match: { path: '/users' }, accept: ['identify'] }],
  rules: [
    { name: 'wide', by: 'address', algorithm: 'fixed-window', limit: 1000, period: '300d' },
    { name: 'units', unit: 'rows', by: 'address', algorithm: 'fixed-window', limit: 1000, period: '300d' },
  ],
  units: { rows: { estimate: 1, actual: 'hook' } },
  shedding: {
    classes: [{ name: 'rest' }, { name: 'test', match: { mode: 'test' } }],
    fleetUsage: { capacity: 10_000 },
    workerUtilization: { signals: ['in-flight'] },
  },
  headers: { xRateLimit: 'delta-seconds' },
} satisfies Partial<ConfigInput>

const HOOKS: HooksInput = {
  identify: request => request.headers.get('x-user'),
  skip: () => false,
  plan: () => undefined,
  cost: () => 1,
  amounts: () => ({ rows: 1 }),
  refusal: () => undefined,
  actual: () => ({ rows: 1 }),
  deadline: '20ms',
}

interface Fault {
  hooks?: HooksInput
  config?: Partial<ConfigInput>
  /** @param fail throws from the moment on at which the fault begins */
  parts?: (fail: () => void) => TestPlatform['parts']
  store?: (request: unknown, response: ServerResponse) => void
}

/** The function, which fails first. */
const failsFirst =
  <A extends unknown[], R>(fail: () => void, run: (...of: A) => R) =>
  (...of: A): R => {
    fail()
    return run(...of)
  }

/** Every hook, every step and every call that can throw, by the row of the table. */
const clock = createDeadlineClock()
const say = (status: number, body: string) => (_: unknown, response: ServerResponse) =>
  void response.writeHead(status, { 'content-type': 'application/json' }).end(body)
const failing = (hook: keyof typeof HOOKS) => ({
  [`${hook} throws`]: {
    hooks: {
      [hook]: () => {
        throw new Error('x')
      },
    },
  },
  [`${hook} rejects`]: {
    hooks: {
      [hook]: async () => {
        throw new Error('x')
      },
    },
  },
  [`${hook} never answers`]: { hooks: { [hook]: () => new Promise(() => {}) } },
  [`${hook} returns nonsense`]: { hooks: { [hook]: () => Symbol('x') as never } },
})
const FAULTS: Record<string, Record<string, Fault>> = {
  'the store': {
    'cannot be reached': { store: say(503, '{"error":"ERR Redis cannot be reached"}') },
    'refuses the token': { store: say(401, '{"error":"WRONGPASS invalid or missing auth token"}') },
    'has used up its plan': { store: say(429, '{"error":"ERR max daily request limit exceeded"}') },
    'answers nonsense': { store: say(200, '<html>') },
    'does not answer': { store: () => clock.pass(20_000) },
  },
  'the hook `skip`, `cost` or `amounts`': {
    ...failing('skip'),
    ...failing('cost'),
    ...failing('amounts'),
  },
  'the hook `identify`': failing('identify'),
  'another hook, statistics, headers': {
    ...failing('plan'),
    ...failing('refusal'),
    ...failing('actual'),
    statistics: {
      parts: fail => ({
        createStatsRecorder: (...of) => ({ ...ALL_PARTS.createStatsRecorder(...of), count: fail }),
      }),
    },
    headers: {
      parts: fail => ({ createXRateLimit: (...of) => ({ ...ALL_PARTS.createXRateLimit(...of), set: fail }) }),
    },
    'the shape of errors': { parts: fail => ({ createErrorShapes: () => () => fail() as undefined }) },
    'reading the load': {
      parts: fail => ({
        createOriginLoad: (...of) => ({ ...ALL_PARTS.createOriginLoad(...of), observeReply: fail }),
      }),
    },
  },
  'shedding, estimates, another step of a decision': {
    'the class': {
      parts: fail => ({ classOfRequest: failsFirst(fail, ALL_PARTS.classOfRequest) }),
    },
    'the shedder': {
      parts: fail => ({
        createOriginLoad(...of) {
          const load = ALL_PARTS.createOriginLoad(...of)
          return { ...load, shedder: { evaluate: failsFirst(fail, load.shedder!.evaluate) } }
        },
      }),
    },
    'the engine': {
      parts: fail => ({
        createEngine(...of) {
          const engine = ALL_PARTS.createEngine(...of)
          return {
            ...engine,
            async decide(demand, options) {
              if (demand.rules.length > 0) fail()
              return await engine.decide(demand, options)
            },
          }
        },
      }),
    },
    'the estimate': {
      config: { units: { rows: { estimate: 'llm', actual: 'hook' } } },
      hooks: { amounts: undefined },
      parts: fail => ({
        createEstimateAmounts: units => failsFirst(fail, ALL_PARTS.createEstimateAmounts(units)),
      }),
    },
  },
  'the address, the check of a token': {
    'the address': {
      config: { address: { from: 'x-forwarded-for', trustedProxies: ['10.0.0.0/8'] } },
      parts: fail => ({ addressBehindProxies: () => fail() as undefined }),
    },
  },
}

/** Requests of a caller that the isolate knows, and then of each caller with the fault. @returns who got a 503 */
async function refusedBy(failOpen: (typeof SETTINGS)[number], fault: Fault): Promise<CallerName[]> {
  let hasBegun = false
  const fail = () => {
    if (hasBegun) throw new Error('a fault')
  }
  /** The hooks of the fault fail from its beginning on. */
  const hooks = Object.fromEntries(
    Object.entries({ ...HOOKS, ...fault.hooks }).map(([name, hook]) => [
      name,
      typeof hook === 'function'
        ? (...of: never[]) =>
            ((hasBegun ? hook : HOOKS[name as 'skip']) as (...of: never[]) => unknown)(...of)
        : hook,
    ]),
  )
  const app = gateway.app(
    { ...CONFIG, ...fault.config, hooks, ...(failOpen && { failOpen }) },
    {
      parts: fault.parts?.(fail) ?? {},
      deadlineClock: clock,
      variables: VARIABLES,
    },
  )
  const callers = {
    known: { key: await gateway.key('known') },
    anonymous: {},
    fresh: { key: await gateway.key('fresh') },
    named: { headers: { 'x-user': 'alice' } },
  } satisfies Record<CallerName, Parameters<App>[1]>
  expect((await app('/', callers.known)).status).toBe(200)
  hasBegun = true
  gateway.store.fault = fault.store
  const refused: CallerName[] = []
  for (const [name, init] of Object.entries(callers)) {
    const { status } = await app(name === 'named' ? '/users' : '/', init)
    expect([200, 503]).toContain(status)
    if (status === 503) refused.push(name as CallerName)
  }
  gateway.store.fault = undefined
  return refused.sort()
}

describe.each(SETTINGS)('with failOpen: %s, there is a 503 for exactly whom failure.md says', failOpen => {
  const refusedIf = (what: string): CallerName[] => [...REFUSED[TABLE.get(what)![failOpen ? 1 : 0]!]].sort()

  it.each(Object.entries(FAULTS))('if this fails: %s', async (what, faults) => {
    for (const [name, fault] of Object.entries(faults))
      expect([name, await refusedBy(failOpen, fault)]).toEqual([name, refusedIf(what)])
  })

  it.each([
    ['of the store', ['UPSTASH_REDIS_REST_URL', 'UPSTASH_REDIS_REST_TOKEN']],
    ['of something else', ['ISSUER_SECRET', 'ORIGIN_URL']],
  ])('if a variable is missing, %s', async (what, names) => {
    const row = failOpen === 'unconfigured' && what === 'of the store' ? 'the store' : 'a variable is missing'
    for (const missing of names) {
      const { origin: _, ...config } = { ...CONFIG, hooks: HOOKS, origin: undefined, log: { perSecond: 0 } }
      const worker = createWorker({ ...config, ...(failOpen && { failOpen }) })
      const variables = {
        ...{ UPSTASH_REDIS_REST_URL: gateway.store.url, UPSTASH_REDIS_REST_TOKEN: TOKEN },
        ...{ ORIGIN_URL: gateway.origin.url, ...VARIABLES },
      }
      const env = { ...variables, [missing]: undefined } as unknown as Record<string, string>
      const statusOf = async (key?: string) => {
        const headers = key ? { authorization: `Bearer ${key}` } : {}
        const request = new Request('http://gateway.test/', { headers })
        return (await worker.fetch(request, env, { waitUntil() {} })).status
      }
      const refused = [
        ...((await statusOf()) === 503 ? ['anonymous'] : []),
        ...((await statusOf(await gateway.key('fresh'))) === 503 ? ['fresh'] : []),
      ]
      const expected: string[] = refusedIf(row)
      expect([missing, refused]).toEqual([
        missing,
        ['anonymous', 'fresh'].filter(name => expected.includes(name)),
      ])
    }
  })
})

it('the table has no other rows', () => {
  expect([...TABLE.keys()]).toEqual([...Object.keys(FAULTS), 'a variable is missing'])
})

describe('failOpen with credentials that open', () => {
  const OPEN: Partial<ConfigInput> = {
    failOpen: true,
    credentials: { accept: ['api-key'], onStoreFailure: 'unchecked' },
  }

  it('lets new keys pass without the store, but none that it has seen revoked or blocked', async () => {
    const app = gateway.app({ ...OPEN, rules: [CONFIG.rules[0]!], refusals: { rememberFor: 0 } })
    const keys = {
      revoked: await gateway.key('acme'),
      blocked: await gateway.key('evil'),
      fresh: await gateway.key('new'),
    }
    for (const key of [keys.revoked, keys.blocked]) expect((await app('/', { key })).status).toBe(200)
    await revokeKey(gateway.admin, { consumer: 'acme', digest: sha256(keys.revoked) })
    await blockConsumer(gateway.admin, 'evil')
    expect([
      (await app('/', { key: keys.revoked })).status,
      (await app('/', { key: keys.blocked })).status,
    ]).toEqual([401, 403])
    gateway.store.fault = FAULTS['the store']!['cannot be reached']!.store
    const statuses: Record<string, number> = {}
    for (const [name, key] of Object.entries(keys)) statuses[name] = (await app('/', { key })).status
    expect(statuses).toEqual({ revoked: 503, blocked: 403, fresh: 200 })
  })
})

describe('failOpen', () => {
  it('counts a request at the default cost if `cost` and `amounts` fail, and the store decides it', async () => {
    const hooks: HooksInput = {
      cost() {
        throw new Error('x')
      },
      amounts() {
        throw new Error('x')
      },
    }
    const routes: ConfigInput['routes'] = [{ name: 'dear', match: { path: '/dear' }, cost: 7 }]
    const app = gateway.app(
      { ...CONFIG, routes, hooks: { ...HOOKS, ...hooks }, failOpen: true },
      { variables: VARIABLES },
    )
    const response = await app('/dear', { address: '192.0.2.1' })
    expect(response.headers.get('ratelimit')).toContain('"wide";r=993')
    expect(response.headers.get('ratelimit')).toContain('"units";r=999')
    expect(response.headers.has('sluice-degraded')).toBe(false)
  })

  it('leaves rules with their own onStoreFailure as they are', async () => {
    const rules: ConfigInput['rules'] = [{ ...CONFIG.rules[0]!, onStoreFailure: 'closed' }]
    const app = gateway.app({ credentials: { accept: ['anonymous'] }, rules, failOpen: true })
    gateway.store.fault = FAULTS['the store']!['cannot be reached']!.store
    expect((await app('/')).status).toBe(503)
  })
})
