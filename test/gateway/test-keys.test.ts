/** Test keys and test tokens: they never spend the budget of live ones, and their mode is known before a decision. */
import { crc32 } from 'node:zlib'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import shipped from '../../sluice.config.ts'
import type { CallerMode } from '../../src/config/caller-mode.ts'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { base62, consumerOfApiKey, mintApiKey, modeOfApiKey } from '../../src/credentials/api-key.ts'
import { jwt } from '../../src/credentials/jwt.ts'
import {
  createKeySigner,
  KEY_SECRET,
  newKeySecret,
  readKeySecrets,
} from '../../src/credentials/key-signature.ts'
import { prometheusText } from '../../src/metrics/prometheus.ts'
import { statsText } from '../../src/node/cli/stats-output.ts'
import { blockConsumer, setPlan } from '../../src/ops/consumers.ts'
import { revokeKey, rotateKey } from '../../src/ops/key-changes.ts'
import { findKey } from '../../src/ops/key-reference.ts'
import { createKey, importKey } from '../../src/ops/keys.ts'
import { compileOverride, setOverride } from '../../src/ops/overrides.ts'
import { readStats } from '../../src/ops/stats.ts'
import { sha256 } from '../../src/sha256.ts'
import { consumerStateKey, credentialKey } from '../../src/store/keys.ts'
import { createSwitchBoard } from '../../src/switches/live.ts'
import { SELECTION } from '../selection.ts'
import { type App, useGateway } from '../support/gateway.ts'
import { sign } from '../support/key-server.ts'
import { readPage } from '../support/pages.ts'
import { PATIENT } from '../support/patience.ts'

const gateway = useGateway()
beforeEach(() => vi.spyOn(console, 'warn').mockImplementation(() => {}))
afterEach(() => vi.restoreAllMocks())

const TWO: RuleInput = { name: 'two', by: 'consumer', algorithm: 'fixed-window', limit: 2, period: '300d' }
const VARIABLE = newKeySecret()
const JWT_SECRET = 'a secret of at least 32 characters'
const variables = { [KEY_SECRET]: VARIABLE, JWT_SECRET }

const issuer = (modes?: Record<string, CallerMode>) =>
  jwt({
    ...{ secret: 'JWT_SECRET', algorithms: ['HS256'], issuer: 'i', audience: 'api', claims: { mode: 'env' } },
    ...(modes && { modes }),
  })
const token = (claims: Record<string, unknown>) =>
  sign(
    { iss: 'i', aud: 'api', sub: 'acme', exp: Date.now() / 1e3 + 300, ...claims },
    { kid: 'x', alg: 'HS256', privateKey: new TextEncoder().encode(JWT_SECRET) },
  )

const CREDENTIALS: NonNullable<ConfigInput['credentials']> = {
  accept: ['api-key', 'issuer', 'opaque-key', 'anonymous'],
  jwt: { issuer: issuer() },
  opaqueKeys: {},
}
const isolate = (config: Partial<ConfigInput> = {}, platform = {}) =>
  gateway.app({ rules: [TWO], credentials: CREDENTIALS, ...config }, { variables, ...platform })

let imported = 0
const opaqueKey = async (mode: CallerMode = 'live', consumer = 'acme') => {
  const key = `opaque-key-number-${++imported}`
  await importKey(gateway.admin, { key }, { consumer, mode })
  return key
}
const apiKey = async (mode: CallerMode, consumer = 'acme') =>
  (await createKey(gateway.admin, { consumer, mode })).key
const signedKey = async (mode: CallerMode, consumer = 'acme') => {
  const [secret] = readKeySecrets(VARIABLE)
  return (await createKey({ ...gateway.admin, keySigner: createKeySigner(secret!) }, { consumer, mode })).key
}

const KINDS = {
  'an API key': apiKey,
  'a signed API key': signedKey,
  'an imported key': opaqueKey,
  'a token': (mode: CallerMode) => token({ env: mode }),
}

/** Those that differ most: the mode is in the key, or in its record. */
const MAIN_KINDS = Object.entries(KINDS).filter(
  ([name]) => SELECTION === 'all' || name === 'an API key' || name === 'an imported key',
)

async function statusesOf(app: App, key: string | undefined, requests: number, address = '192.0.2.1') {
  const statuses: number[] = []
  for (let i = 0; i < requests; i++) statuses.push((await app('/', { ...(key && { key }), address })).status)
  return statuses
}
const remaining = async (app: App, key: string) => (await app('/', { key })).headers.get('ratelimit')
const tripsOf = async (work: () => Promise<unknown>) => {
  gateway.store.count()
  await work()
  return gateway.store.count()
}
const stored = async (key: string) => Number(await gateway.redis.connection.send(['EXISTS', key]))
const received = () => gateway.origin.received.at(-1)!.headers

describe.each(MAIN_KINDS)('%s of the mode test', (_, keyOf) => {
  it('at its limit leaves the live budget untouched', async () => {
    const app = isolate()
    const [live, test] = [await keyOf('live'), await keyOf('test')]
    expect(await statusesOf(app, test, 3)).toEqual([200, 200, 429])
    expect(await statusesOf(app, live, 3)).toEqual([200, 200, 429])
  })

  it('has its whole budget while the live one is used up', async () => {
    const app = isolate()
    const [live, test] = [await keyOf('live'), await keyOf('test')]
    expect(await statusesOf(app, live, 3)).toEqual([200, 200, 429])
    expect(await statusesOf(app, test, 3)).toEqual([200, 200, 429])
  })

  it('is counted together with live ones by a rule with acrossModes', async () => {
    const app = isolate({ rules: [{ ...TWO, acrossModes: true }] })
    const [live, test] = [await keyOf('live'), await keyOf('test')]
    expect(await statusesOf(app, test, 1)).toEqual([200])
    expect(await statusesOf(app, live, 2)).toEqual([200, 429])
    expect(await statusesOf(app, test, 1)).toEqual([429])
  })

  it('is announced to the origin, whatever the client sends', async () => {
    const app = isolate()
    for (const mode of ['test', 'live'] as const) {
      const key = await keyOf(mode)
      const spelling = { 'x-consumer-mode': 'live', X_Consumer_Mode: 'live' }
      expect((await app('/', { key, headers: spelling })).status).toBe(200)
      const { 'x-consumer-mode': seen, ...others } = received()
      expect(seen).toBe(mode)
      expect(Object.keys(others).filter(name => /consumer.mode/i.test(name))).toEqual([])
    }
  })
})

it('live callers keep the keys that their counters have had', async () => {
  const app = isolate({ rules: [TWO, { ...TWO, name: 'both', acrossModes: true }] })
  await app('/', { key: await apiKey('live') })
  expect(await stored('sluice:{c:acme}:state')).toBe(1)
  expect(await stored('sluice:{c:acme}:test')).toBe(0)
  expect(await stored('sluice:{c:acme}:state:both-modes')).toBe(1)
})

it('a client without a credential cannot announce a mode to the origin', async () => {
  await isolate()('/', { headers: { 'x-consumer-mode': 'test' } })
  expect(received()).not.toHaveProperty('x-consumer-mode')
})

const withChecksum = (body: string) => body + base62(crc32(body), 6)

describe('a key whose mode letter was changed', () => {
  it('is a 401: a key with a checksum is unknown to the store', async () => {
    const app = isolate()
    // Anyone can compute the checksum of a changed key.
    const [live, test] = [await apiKey('live'), await apiKey('test')]
    const toTest = withChecksum(`${live.slice(0, -6)}t`)
    const toLive = withChecksum(test.slice(0, -7))
    expect([modeOfApiKey(toTest), modeOfApiKey(toLive)]).toEqual(['test', 'live'])
    for (const forged of [toTest, toLive]) {
      expect(consumerOfApiKey(forged)).toBe('acme')
      expect(await statusesOf(app, forged, 1)).toEqual([401])
    }
    expect((await stored(consumerStateKey('acme'))) + (await stored(consumerStateKey('acme', 'test')))).toBe(
      0,
    )
  })

  it('is a 401 without a trip where signatures are checked, in both directions', async () => {
    const app = isolate({ credentials: { apiKeys: { signature: 'check' } } })
    for (const [mode, letter] of [
      ['test', 'l'],
      ['live', 't'],
    ] as const) {
      const key = await signedKey(mode)
      const at = key.length - 28
      expect(key[at]).toBe(mode[0])
      const forged = key.slice(0, at) + letter + key.slice(at + 1)
      expect(await tripsOf(() => statusesOf(app, forged, 1))).toBe(0)
      expect(await statusesOf(app, forged, 1)).toEqual([401])
      expect(await statusesOf(app, key, 1)).toEqual([200])
    }
  })
})

describe('the mode of a token', () => {
  it('is live without the claim, and a 401 if the claim has another value', async () => {
    const app = isolate()
    expect(await statusesOf(app, await token({}), 1)).toEqual([200])
    expect(received()['x-consumer-mode']).toBe('live')
    for (const env of ['Test', 'sandbox', '', null, false, 1, ['test'], 'toString'])
      expect(await statusesOf(app, await token({ env }), 1), String(env)).toEqual([401])
    expect(await statusesOf(app, await token({}), 2)).toEqual([200, 429])
  })

  it('can be mapped from the words of the issuer', async () => {
    const modes = { sandbox: 'test', false: 'test', production: 'live' } as const
    const app = isolate({ credentials: { accept: ['issuer'], jwt: { issuer: issuer(modes) } } })
    for (const [env, mode] of [
      ['sandbox', 'test'],
      [false, 'test'],
      ['production', 'live'],
      ['test', 'test'],
    ] as const) {
      expect((await app('/', { key: await token({ env, sub: `${env}` }) })).status).toBe(200)
      expect(received()['x-consumer-mode']).toBe(mode)
    }
    expect((await app('/', { key: await token({ env: true }) })).status).toBe(401)
  })

  it('separates claims too: a test token spends no live budget of its organization', async () => {
    const app = isolate({ rules: [{ ...TWO, by: 'claim:org' }] })
    expect(await statusesOf(app, await token({ env: 'test', org: 'o', sub: 'a' }), 3)).toEqual([
      200, 200, 429,
    ])
    expect(await statusesOf(app, await token({ org: 'o', sub: 'b' }), 3)).toEqual([200, 200, 429])
  })
})

describe('an imported test key that an isolate does not know', () => {
  it('spends nothing of the live budget, and takes one trip more, once', async () => {
    const live = await opaqueKey('live')
    const test = await opaqueKey('test')
    const app = await gateway.informed({ rules: [TWO], credentials: CREDENTIALS }, { variables })
    expect(await tripsOf(() => app('/', { key: live }))).toBe(1)
    const before = await gateway.redis.connection.send(['GET', consumerStateKey('acme')])
    expect(await tripsOf(() => app('/', { key: test }))).toBe(2)
    expect(received()).toMatchObject({ 'x-consumer-id': 'acme', 'x-consumer-mode': 'test' })
    expect(await tripsOf(() => app('/', { key: test }))).toBe(1)
    expect(await gateway.redis.connection.send(['GET', consumerStateKey('acme')])).toEqual(before)
    expect(await statusesOf(app, test, 1)).toEqual([429])
  })

  it('is refused by its own limit, although the live budget has room, and by a block', async () => {
    const test = await opaqueKey('test')
    expect(await statusesOf(isolate(), test, 3)).toEqual([200, 200, 429])
    const app = isolate()
    expect(await statusesOf(app, test, 1)).toEqual([429])
    // The isolate has never admitted this key, and knows its mode nevertheless.
    expect(await tripsOf(() => app('/', { key: test }))).toBe(0)
    await blockConsumer(gateway.admin, 'acme')
    expect(await statusesOf(isolate(), test, 1)).toEqual([403])
  })

  it('passes while the live budget is used up', async () => {
    expect(await statusesOf(isolate(), await opaqueKey('live'), 3)).toEqual([200, 200, 429])
    expect(await statusesOf(isolate(), await opaqueKey('test'), 1)).toEqual([200])
  })

  it('spends the right budget after it was imported again in the other mode', async () => {
    const key = await opaqueKey('live')
    const app = isolate()
    expect(await statusesOf(app, key, 1)).toEqual([200])
    for (const [mode, statuses] of [
      ['test', [200]],
      ['live', [200, 429]],
    ] as const) {
      await revokeKey(gateway.admin, await findKey(gateway.admin, key))
      await importKey(gateway.admin, { key }, { consumer: 'acme', mode })
      expect(await statusesOf(app, key, statuses.length)).toEqual(statuses)
    }
  })

  it('is decided by the fallbacks if its mode changes again during the decision', async () => {
    const key = await opaqueKey('test')
    const digest = sha256(key)
    const app = isolate({ rules: [{ ...TWO, onStoreFailure: 'closed' }] })
    let trips = 0
    const real = globalThis.fetch
    vi.spyOn(globalThis, 'fetch').mockImplementation(async (input, init) => {
      const isDecision = String(init?.body).includes(digest) && String(init?.body).includes('EVAL')
      // Between the two trips, the record becomes that of a live key.
      if (isDecision && ++trips === 2)
        await gateway.redis.connection.send(['SET', credentialKey('acme', digest), 'plan= created=x'])
      return await real(input, init)
    })
    const { status, headers } = await app('/', { key })
    expect([status, headers.get('sluice-degraded'), trips]).toEqual([503, 'store-reply-invalid', 2])
    expect((await stored(consumerStateKey('acme'))) + (await stored(consumerStateKey('acme', 'test')))).toBe(
      0,
    )
  })

  it('is answered like an unknown one if it was made up', async () => {
    const app = await gateway.informed({ rules: [TWO], credentials: CREDENTIALS }, { variables })
    expect(await tripsOf(() => statusesOf(app, 'made-up-key-of-nobody', 1))).toBe(1)
    expect(await statusesOf(app, 'made-up-key-of-nobody', 1)).toEqual([401])
  })
})

describe('what counts modes separately', () => {
  const counted = async (rule: Partial<RuleInput>) => {
    const app = isolate({ rules: [{ ...TWO, ...rule } as RuleInput] })
    const test = await apiKey('test')
    expect(await statusesOf(app, test, 2)).toEqual([200, 200])
    return [...(await statusesOf(app, await apiKey('live'), 1)), ...(await statusesOf(app, undefined, 1))]
  }

  it.each([
    ['addresses do not: they count all modes together', { by: 'address' }, [429, 429]],
    [
      'addresses with the mode do, and callers without a credential are live',
      { by: ['address', 'mode'] },
      [200, 200],
    ],
    ['the mode alone does, for all callers', { by: 'mode' }, [200, 200]],
    ['a route of a consumer does', { by: ['consumer', 'route'] }, [200, 200]],
    ['a consumer with the mode does, once', { by: ['consumer', 'mode'] }, [200, 200]],
    ['all callers together do not', { by: 'global' }, [429, 429]],
  ] as [string, Partial<RuleInput>, number[]][])('%s', async (_, rule, statuses) => {
    expect(await counted(rule)).toEqual(statuses)
  })
})

describe('a rule with match.mode', () => {
  it('applies only to callers of that mode; live includes callers without a credential', async () => {
    const rules: RuleInput[] = [
      { ...TWO, name: 'tests', by: 'address', match: { mode: 'test' }, limit: 1 },
      { ...TWO, name: 'others', by: 'address', match: { mode: 'live' } },
    ]
    for (const test of [await apiKey('test'), await opaqueKey('test'), await token({ env: 'test' })])
      expect(await remaining(isolate({ rules }), test)).toMatch(/^"tests";r=\d+;t=\d+$/)
    for (const live of [await apiKey('live'), await opaqueKey('live'), ''])
      expect(await remaining(isolate({ rules }), live)).toMatch(/^"others";r=\d+;t=\d+$/)
  })

  it('can have other numbers for plans', async () => {
    const rules: RuleInput[] = [
      { ...TWO, name: 'tests', match: { mode: 'test' }, plans: { pro: { limit: 5 } } },
      { ...TWO, name: 'others', match: { mode: 'live' }, limit: 9 },
    ]
    await setPlan(gateway.admin, 'acme', 'pro')
    const app = isolate({ rules, plans: ['free', 'pro'] })
    expect(await remaining(app, await apiKey('test'))).toMatch(/^"tests";r=4;/)
    expect(await remaining(app, await apiKey('test', 'other'))).toMatch(/^"tests";r=1;/)
    expect(await remaining(app, await apiKey('live'))).toMatch(/^"others";r=8;/)
  })
})

it('plans, overrides and blocks of a consumer apply to both modes', async () => {
  const config = { rules: [TWO], plans: ['free', 'pro'] }
  const app = isolate({ ...config, rules: [{ ...TWO, plans: { pro: { limit: 7 } } }] })
  const keys = [await apiKey('live'), await apiKey('test')]
  await setPlan(gateway.admin, 'acme', 'pro')
  for (const key of keys) expect(await remaining(app, key)).toMatch(/^"two";r=6;/)
  await setOverride(gateway.admin, 'acme', {
    ...compileOverride(config, { rule: 'two', limit: 20 }),
  })
  for (const key of keys) expect(await remaining(app, key)).toMatch(/^"two";r=18;/)
  await blockConsumer(gateway.admin, 'acme')
  for (const key of keys) expect(await statusesOf(app, key, 1)).toEqual([403])
})

it('a rotated test key is replaced by a test key', async () => {
  const key = await apiKey('test')
  const { created } = await rotateKey(gateway.admin, await findKey(gateway.admin, key), 1000)
  expect(created.mode).toBe('test')
  await isolate()('/', { key: created.key })
  expect(received()['x-consumer-mode']).toBe('test')
})

describe('classes of traffic', () => {
  const shedding = {
    classes: [{ name: 'test', match: { mode: 'test' } }, { name: 'live' }],
    importance: ['live', 'test'],
    fleetUsage: { capacity: 10, reserved: { live: 0.8 } },
  } as const satisfies ConfigInput['shedding']
  const platform = { timer: () => () => {} }

  it.each(MAIN_KINDS)('shed test callers first: %s', async (_, keyOf) => {
    const app = isolate({ rules: [{ ...TWO, limit: 100 }], shedding } as never, platform)
    const [live, test] = [await keyOf('live'), await keyOf('test')]
    // They stay in flight, because their bodies are not read.
    expect(await statusesOf(app, test, 3)).toEqual([200, 200, 503])
    expect(await statusesOf(app, live, 8)).toEqual(new Array(8).fill(200))
  })
})

it.each(MAIN_KINDS)('units in flight are counted apart, and released apart: %s', async (_, keyOf) => {
  const rules: RuleInput[] = [{ name: 'at-once', by: 'consumer', algorithm: 'concurrency', limit: 1 }]
  const app = isolate({ rules, refusals: { rememberFor: 0 } }, { timer: () => () => {} })
  const [live, test] = [await keyOf('live'), await keyOf('test')]
  const held = await app('/', { key: test })
  expect([held.status, ...(await statusesOf(app, test, 1))]).toEqual([200, 429])
  const other = await app('/', { key: live })
  expect([other.status, ...(await statusesOf(app, live, 1))]).toEqual([200, 429])
  await held.text()
  expect(await statusesOf(app, live, 1)).toEqual([429])
  expect(await statusesOf(app, test, 1)).toEqual([200])
  await other.text()
})

describe('without a trip', () => {
  const clock = { now: () => 1_800_000_000_000 }
  const board = () => createSwitchBoard({ now: () => 0 })
  const still = () => ({ clock, board: board(), timer: () => () => {} })

  it('a remembered refusal of a test key does not refuse a live one', async () => {
    const app = isolate({}, still())
    const test = await apiKey('test')
    expect(await statusesOf(app, test, 3)).toEqual([200, 200, 429])
    expect(await tripsOf(() => statusesOf(app, test, 5))).toBe(0)
    expect(await statusesOf(app, await apiKey('live'), 1)).toEqual([200])
  })

  it('units that were leased for test tokens do not serve live ones', async () => {
    const rules: RuleInput[] = [{ ...TWO, limit: 1000, lease: { for: '1s' } }]
    const app = isolate({ rules }, still())
    const [live, test] = [await token({}), await token({ env: 'test' })]
    await statusesOf(app, test, 60)
    expect(await tripsOf(() => statusesOf(app, test, 5))).toBeLessThan(5)
    expect(await tripsOf(() => app('/', { key: live }))).toBe(1)
    expect(await remaining(app, live)).toMatch(/^"two";r=998;/)
  })
})

describe('in an outage', () => {
  const gone = () => {
    gateway.store.fault = (_, response) =>
      void response
        .writeHead(503, { 'content-type': 'application/json' })
        .end('{"error":"ERR Redis cannot be reached"}')
  }

  it.each(MAIN_KINDS)('test and live are counted apart, and handed over apart: %s', async (_, keyOf) => {
    const app = isolate({ rules: [{ ...TWO, limit: 4 }], store: { breaker: false } })
    const [live, test] = [await keyOf('live'), await keyOf('test')]
    for (const key of [live, test]) expect(await statusesOf(app, key, 1)).toEqual([200])
    gone()
    expect(await statusesOf(app, test, 4)).toEqual([200, 200, 200, 429])
    expect(await statusesOf(app, live, 1)).toEqual([200])
    gateway.store.fault = undefined
    // The first trip of each caller hands over what it has spent.
    for (const key of [test, live]) await app('/', { key })
    expect(await remaining(app, live)).toMatch(/^"two";r=0;/)
    expect(await statusesOf(app, test, 1)).toEqual([429])
  })

  it('no unit is in flight for the mode that an imported key turned out not to have', async () => {
    const rules: RuleInput[] = [{ name: 'at-once', by: 'global', algorithm: 'concurrency', limit: 2 }]
    const app = isolate({ rules, store: { breaker: false } }, { timer: () => () => {} })
    const keys = [await opaqueKey('test'), await opaqueKey('test'), await opaqueKey('test')]
    for (const key of keys) await (await app('/', { key })).text()
    gone()
    // The isolate reports what it has admitted by itself, together with everything that is in flight.
    const held = await app('/', { key: keys[0]! })
    gateway.store.fault = undefined
    expect([held.status, ...(await statusesOf(app, keys[0], 2))]).toEqual([200, 200, 429])
    await held.text()
  })

  it('a signed key that the isolate does not know keeps its mode', async () => {
    const app = isolate({ credentials: { onStoreFailure: 'signed' } })
    const [live, test] = [await signedKey('live'), await signedKey('test')]
    gone()
    expect(await statusesOf(app, test, 3)).toEqual([200, 200, 429])
    expect(await statusesOf(app, live, 3)).toEqual([200, 200, 429])
    expect(received()).toMatchObject({ 'x-consumer-mode': 'live', 'sluice-degraded': expect.any(String) })
  })

  it('an imported test key keeps its mode after the isolate has forgotten its consumer', async () => {
    const credentials = { ...CREDENTIALS, opaqueKeys: { rememberFor: '1s' as const }, seenFor: '1h' as const }
    const app = isolate({ credentials, store: { breaker: false } })
    const [live, test] = [await opaqueKey('live'), await opaqueKey('test')]
    for (const key of [live, test]) expect(await statusesOf(app, key, 1)).toEqual([200])
    const later = Date.now() + 2000
    vi.spyOn(Date, 'now').mockImplementation(() => later)
    gone()
    expect(await statusesOf(app, test, 2)).toEqual([200, 429])
    expect(await statusesOf(app, live, 2)).toEqual([200, 429])
  })
})

it('with the rules of sluice.config.ts, test requests do not lock a live key at the same address', async () => {
  const app = isolate({ rules: shipped.rules!, plans: shipped.plans! })
  const [test, live] = [await apiKey('test'), await apiKey('live')]
  const address = '192.0.2.9'
  const statuses: number[] = []
  for (let i = 0; i < 25; i++) statuses.push((await app('/', { key: test, address })).status)
  expect(statuses).toContain(429)
  expect((await app('/', { key: live, address })).status).toBe(200)
})

it('new projects count addresses by mode, too', () => {
  const written = readPage('template/sluice.config.ts').match(/by: \S*.*?'address'.*?(?=, algorithm)/g)
  expect(written).toEqual(["by: ['address', 'mode']"])
})

it('hooks get the mode with the consumer', async () => {
  const modes: unknown[] = []
  const hooks: ConfigInput['hooks'] = {
    cost: (_, { mode }) => {
      modes.push(mode)
      return mode === 'test' ? 2 : 1
    },
  }
  const app = isolate({ hooks, rules: [{ ...TWO, limit: 10 }] })
  const test = await apiKey('test')
  expect(await remaining(app, test)).toMatch(/^"two";r=8;/)
  const unknown = await opaqueKey('test')
  for (const key of [await apiKey('live'), unknown, unknown, undefined])
    await app('/', { ...(key && { key }) })
  expect(modes).toEqual(['test', 'live', undefined, 'test', undefined])
})

it('the log and the statistics name test callers', async () => {
  const info = vi.spyOn(console, 'info').mockImplementation(() => {})
  const wakes: (() => void)[] = []
  const timer = (_: number, wake: () => void) => {
    wakes.push(wake)
    return () => {}
  }
  const modes: unknown[] = []
  const analytics = { writeDataPoint: ({ blobs }: { blobs: string[] }) => void modes.push(blobs.at(-1)) }
  const app = isolate({ log: { perSecond: 100 } }, { reporting: { analytics: analytics as never, timer } })
  const [live, test] = [await apiKey('live'), await apiKey('test')]
  await statusesOf(app, test, 3)
  await statusesOf(app, live, 3)
  // A made-up key has no mode.
  await statusesOf(app, mintApiKey('acme', undefined, 'test'), 1)

  const lines = info.mock.calls.flatMap(([line]) => (typeof line === 'string' ? [JSON.parse(line)] : []))
  expect(lines.map(({ event, outcome, mode }) => [event, outcome, mode])).toEqual([
    ['refused', 'limited', 'test'],
    ['refused', 'limited', undefined],
    ['refused', 'unauthenticated', undefined],
  ])
  expect(modes).toEqual(['test', 'test', 'test', '', '', '', ''])
  for (const wake of wakes.splice(0)) wake()
  await vi.waitFor(async () => {
    const stats = await readStats(gateway.admin, new Date(Date.now() - 60e3))
    expect(stats.test).toEqual({ allowed: 2, limited: 1 })
    const text = statsText(stats, {}, ['two'], checkedConfig({ rules: [TWO] }))
    expect(text).toContain('With test keys and test tokens: 3 (42.9 %), of which 2 allowed, 1 limited.')
    const byMode = statsText(stats, { by: 'mode' }, ['two'], checkedConfig({ rules: [TWO] }))
    expect(byMode).toMatch(/RULE +MODE +ALLOWED +DENIED/)
    expect(byMode).toMatch(/two +live +2 +1 \(33\.3 %\)[\s\S]*two +test +2 +1 \(33\.3 %\)/)
    const labels = '{policy="two",route="",plan="free"'
    expect(prometheusText(stats)).toContain(`decisions_total${labels},outcome="limited"} 1\n`)
    expect(prometheusText(stats)).toContain(`decisions_total${labels},mode="test",outcome="limited"} 1\n`)
    expect(prometheusText(stats)).toContain('gateway_rate_limit_test_requests_total{outcome="allowed"} 2\n')
  }, PATIENT)
})
