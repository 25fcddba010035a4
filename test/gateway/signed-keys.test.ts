/** Signed keys in the gateway: made-up ones make no trips, and valid ones pass although the store does not answer. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { apiKeyStart, mintApiKey } from '../../src/credentials/api-key.ts'
import {
  createKeySigner,
  KEY_SECRET,
  mintSignedKey,
  newKeySecret,
  readKeySecrets,
} from '../../src/credentials/key-signature.ts'
import { blockConsumer } from '../../src/ops/consumers.ts'
import { revokeKey, rotateKey } from '../../src/ops/key-changes.ts'
import { findKey } from '../../src/ops/key-reference.ts'
import { createKey, listKeys } from '../../src/ops/keys.ts'
import { sha256 } from '../../src/sha256.ts'
import { SELECTION } from '../selection.ts'
import { createDeadlineClock } from '../support/deadline-clock.ts'
import { type App, useGateway } from '../support/gateway.ts'

const gateway = useGateway()
beforeEach(() => vi.spyOn(console, 'warn').mockImplementation(() => {}))
afterEach(() => vi.restoreAllMocks())

const DAY_MS = 86400e3
const VARIABLE = newKeySecret()
const [SECRET] = readKeySecrets(VARIABLE)
const variables = { [KEY_SECRET]: VARIABLE }
const OTHER = newKeySecret()

/** The same store for administration, with the secret that signs new keys. */
const signing = (secret = SECRET!) => ({ ...gateway.admin, keySigner: createKeySigner(secret) })
const keyOf = async (consumer: string, plan?: string) =>
  (await createKey(signing(), { consumer, ...(plan !== undefined && { plan }) })).key

/** A key that the store does not have. */
const signedKey = (consumer: string, issuedAt = Date.now(), environment?: string) =>
  mintSignedKey({ consumer, start: apiKeyStart('slk', environment), environment, secret: SECRET!, issuedAt })

/** A made-up key of the form of signed ones. */
async function forgedKey(consumer = 'acme') {
  const [secret] = readKeySecrets(`${SECRET!.id}:${'x'.repeat(40)}`)
  return await mintSignedKey({
    consumer,
    start: 'slk_',
    environment: undefined,
    secret: secret!,
    issuedAt: Date.now(),
  })
}

const RULE: RuleInput = { name: 'few', by: 'consumer', algorithm: 'fixed-window', limit: 100, period: '300d' }
const GUESSES: RuleInput = {
  ...{ name: 'guesses', by: 'address', on: 'auth-failure' },
  ...{ algorithm: 'fixed-window', limit: 5, period: '300d' },
}

type Credentials = NonNullable<ConfigInput['credentials']>
const REQUIRED: Credentials = { apiKeys: { signature: 'require' } }
const SIGNED: Credentials = { onStoreFailure: 'signed' }

/** Without statistics, which make trips of their own after ten seconds. */
function isolate(credentials: Credentials, more: Partial<ConfigInput> = {}, platform = {}): App {
  const config = { rules: [RULE], credentials, stats: { keep: false }, ...more }
  return gateway.app(config, { variables, ...platform })
}

const gone = () => {
  gateway.store.fault = (_, response) =>
    void response
      .writeHead(503, { 'content-type': 'application/json' })
      .end('{"error":"ERR Redis cannot be reached"}')
}
const statusOf = async (app: App, key: string, address = '192.0.2.1') =>
  (await app('/', { key, address })).status

const MADE_UP = SELECTION === 'all' ? 10_000 : 200

describe('made-up keys', () => {
  it(`make no trip where signatures are required: ${MADE_UP} of all forms get a 401`, async () => {
    const app = isolate(REQUIRED, { rules: [RULE, GUESSES] })
    const makers = [forgedKey, async () => mintApiKey('acme'), async () => `${await forgedKey()}x`]
    const statuses = new Map<number, number>()
    for (let i = 0; i < MADE_UP; i++) {
      const status = await statusOf(app, await makers[i % makers.length]!())
      statuses.set(status, (statuses.get(status) ?? 0) + 1)
    }
    expect(Object.fromEntries(statuses)).toEqual({ 401: MADE_UP })
    expect(gateway.store.count()).toBe(0)
  }, 60_000)

  it('with a wrong signature make no trip either where keys without one are accepted', async () => {
    const app = isolate({ apiKeys: { signature: 'check' } })
    expect(await statusOf(app, await forgedKey())).toBe(401)
    expect(gateway.store.count()).toBe(0)
    expect(await statusOf(app, await gateway.key('acme'))).toBe(200)
    expect(await statusOf(app, mintApiKey('acme'))).toBe(401)
    expect(gateway.store.count()).toBe(2)
  })

  it('get the same reply as malformed ones', async () => {
    const app = isolate(REQUIRED)
    const bodyOf = async (key: string) => await (await app('/', { key })).text()
    const malformed = await bodyOf('slk_acme_x')
    for (const key of [await forgedKey(), mintApiKey('acme')]) expect(await bodyOf(key)).toBe(malformed)
  })
})

describe('guesses that make no trip', () => {
  const rules = [RULE, GUESSES]
  const address = '192.0.2.7'
  const guess = async (app: App) => statusOf(app, await forgedKey(), address)

  it('are counted with the next trip, and the address is then refused, in this isolate and in others', async () => {
    const key = await keyOf('acme')
    const app = isolate(REQUIRED, { rules })
    for (let i = 0; i < 20; i++) expect(await guess(app)).toBe(401)
    expect(gateway.store.count()).toBe(0)
    // A request of another caller takes them with it.
    expect(await statusOf(app, key)).toBe(200)
    expect(gateway.store.count()).toBe(1)
    expect(await guess(app)).toBe(429)
    expect(await statusOf(app, key, address)).toBe(429)
    expect(gateway.store.count()).toBe(0)
    const other = isolate(REQUIRED, { rules })
    expect(await statusOf(other, key, address)).toBe(429)
    expect(await guess(other)).toBe(429)
    expect(await statusOf(other, key)).toBe(200)
  })

  it('count one by one, together with those that the store counts itself', async () => {
    const key = await keyOf('acme')
    const [app, other] = [isolate(REQUIRED, { rules }), isolate(REQUIRED, { rules })]
    const unknown = async () => statusOf(other, await signedKey('acme'), address)
    for (let i = 0; i < 2; i++) expect(await unknown()).toBe(401)
    await guess(app)
    expect(await statusOf(app, key)).toBe(200)
    // Two of five are left.
    expect(await statusOf(app, key, address)).toBe(200)
    for (let i = 0; i < 2; i++) expect(await unknown()).toBe(401)
    expect(await unknown()).toBe(429)
  })

  it('of an allowed address are not counted', async () => {
    const key = await keyOf('acme')
    const app = isolate(REQUIRED, { rules, allow: { addresses: [address] } })
    for (let i = 0; i < 20; i++) expect(await guess(app)).toBe(401)
    expect(await statusOf(app, key)).toBe(200)
    expect(await guess(app)).toBe(401)
    expect(await statusOf(isolate(REQUIRED, { rules }), key, address)).toBe(200)
  })
})

describe('while the store does not answer', () => {
  it('a signed key that a new isolate does not know passes within one deadline, on the plan of the config', async () => {
    const key = await keyOf('acme', 'pro')
    const deadlineClock = createDeadlineClock()
    const rules: RuleInput[] = [{ ...RULE, limit: 2, plans: { pro: { limit: 50 }, outage: { limit: 4 } } }]
    const credentials: Credentials = { ...SIGNED, signedPlan: 'outage' }
    const plans = ['free', 'pro', 'outage']
    const store = { deadline: '250ms', breaker: { retryAfter: '60s' } } as const
    const app = isolate(credentials, { plans, rules, store }, { deadlineClock })
    // Frozen: it accepts the connection, and never replies.
    gateway.store.fault = () => deadlineClock.pass(250)
    const startedAt = deadlineClock.world.time
    const response = await app('/', { key })
    expect(deadlineClock.world.time - startedAt).toBe(250)
    expect([response.status, response.headers.get('sluice-degraded')]).toEqual([200, 'store-timeout'])
    expect(gateway.origin.received.at(-1)!.headers).toMatchObject({
      'x-consumer-id': 'acme',
      'x-consumer-plan': 'outage',
      'sluice-degraded': 'store-timeout',
    })
    // No later request waits, and all of them count on this plan.
    const statuses = []
    for (let i = 0; i < 4; i++) statuses.push(await statusOf(app, key))
    expect(statuses).toEqual([200, 200, 200, 429])
  })

  it('a signed key keeps the plan that the isolate has seen, however long the outage lasts', async () => {
    let now = Date.now()
    const rules: RuleInput[] = [{ ...RULE, plans: { pro: { limit: 500 } } }]
    const app = isolate(SIGNED, { plans: ['free', 'pro'], rules }, { clock: { now: () => now } })
    const [signed, old] = [await keyOf('acme', 'pro'), await gateway.key('old', 'pro')]
    for (const key of [signed, old]) expect(await statusOf(app, key)).toBe(200)
    gone()
    now += 11 * 60e3
    expect(await statusOf(app, signed)).toBe(200)
    expect(gateway.origin.received.at(-1)!.headers).toMatchObject({ 'x-consumer-plan': 'pro' })
    expect(await statusOf(app, old)).toBe(503)
    // Then it is too old.
    now += 31 * DAY_MS
    expect(await statusOf(app, signed)).toBe(503)
  })

  it('a forged key is a 401, and a key without a signature a 503', async () => {
    const old = await gateway.key('acme')
    const app = isolate(SIGNED)
    gone()
    expect(await statusOf(app, await forgedKey())).toBe(401)
    expect(await statusOf(app, old)).toBe(503)
    expect(await statusOf(app, await signedKey('acme'))).toBe(200)
  })

  it('a signed key does not pass without the setting, whatever its day is', async () => {
    const apps = (['recent', 'refuse'] as const).map(onStoreFailure =>
      isolate({ ...REQUIRED, onStoreFailure }),
    )
    gone()
    for (const app of apps)
      for (const days of [-1, 0, 1])
        expect(await statusOf(app, await signedKey('acme', Date.now() + days * DAY_MS))).toBe(503)
  })

  it('a signed key passes until it is too old, by the clock of the isolate', async () => {
    let now = Date.UTC(2026, 10, 25, 12)
    const clock = { now: () => now }
    const app = isolate({ ...SIGNED, signedFor: '2d' }, {}, { clock })
    const key = await signedKey('acme', now)
    gone()
    expect(await statusOf(app, key)).toBe(200)
    now += DAY_MS
    expect(await statusOf(app, key)).toBe(200)
    // Its age counts from the begin of its day.
    now = Date.UTC(2026, 10, 27)
    expect(await statusOf(app, key)).toBe(503)
    // A machine whose clock is behind accepts the keys of tomorrow, and no later ones.
    expect(await statusOf(app, await signedKey('acme', now + DAY_MS))).toBe(200)
    expect(await statusOf(app, await signedKey('acme', now + 2 * DAY_MS))).toBe(503)
  })

  it('a revoked key is refused by an isolate that has seen the revocation, however long the outage lasts', async () => {
    vi.useFakeTimers({ toFake: ['Date'] })
    try {
      const key = await keyOf('acme')
      // With this clock, the isolate also forgets the refusal that it would repeat.
      const start = () => isolate(SIGNED, {}, { clock: { now: () => Date.now() } })
      const [app, knowing, other] = [start(), start(), start()]
      expect(await statusOf(knowing, key)).toBe(200)
      await revokeKey(gateway.admin, { consumer: 'acme', digest: sha256(key) })
      // One of them has never seen it valid.
      for (const each of [app, knowing]) expect(await statusOf(each, key)).toBe(401)
      gone()
      for (const minutes of [0, 11, 60 * 24]) {
        vi.setSystemTime(Date.now() + minutes * 60e3)
        for (const each of [app, knowing])
          expect([minutes, await statusOf(each, key)]).toEqual([minutes, minutes === 0 ? 401 : 503])
      }
      expect(await statusOf(other, key)).toBe(200)
    } finally {
      vi.useRealTimers()
    }
  })

  it('a consumer that the isolate has seen blocked stays blocked, with any signed key', async () => {
    const [key, second] = [await keyOf('rogue'), await keyOf('rogue')]
    await blockConsumer(gateway.admin, 'rogue')
    const app = isolate(SIGNED)
    expect(await statusOf(app, key)).toBe(403)
    gone()
    for (const each of [key, second]) expect(await statusOf(app, each)).toBe(403)
  })

  it('a block that the isolate has seen ends on time, although it cannot ask', async () => {
    let now = Date.now()
    const app = isolate(SIGNED, {}, { clock: { now: () => now } })
    const key = await keyOf('rogue')
    await blockConsumer(gateway.admin, 'rogue', { until: new Date(now + 3600e3) })
    expect(await statusOf(app, key)).toBe(403)
    gone()
    // The store has a clock of its own.
    now += 3590e3
    expect(await statusOf(app, key)).toBe(403)
    now += 20e3
    expect(await statusOf(app, key)).toBe(200)
  })

  it('a key of another environment does not pass', async () => {
    const app = isolate(SIGNED)
    gone()
    expect(await statusOf(app, await signedKey('acme', Date.now(), 'test'))).toBe(401)
    const live = isolate(SIGNED, { environment: 'live' })
    expect(await statusOf(live, await signedKey('acme'))).toBe(401)
    expect(await statusOf(live, await signedKey('acme', Date.now(), 'live'))).toBe(200)
  })

  it('what signed keys have spent is handed over when the store is back', async () => {
    const key = await keyOf('acme')
    const rules: RuleInput[] = [{ ...RULE, limit: 5 }]
    const app = isolate(SIGNED, { rules, store: { breaker: false } })
    gone()
    for (let i = 0; i < 3; i++) expect(await statusOf(app, key)).toBe(200)
    gateway.store.fault = undefined
    const statuses = []
    for (let i = 0; i < 4; i++) statuses.push(await statusOf(app, key))
    expect(statuses.filter(status => status === 200)).toHaveLength(2)
  })
})

describe('administration of signed keys', () => {
  it('a rotation of the secret keeps the keys of both, in the store and in an outage', async () => {
    const old = await keyOf('acme')
    const rotated = { [KEY_SECRET]: `${OTHER},${VARIABLE}` }
    const { key: renewed } = await createKey(signing(readKeySecrets(rotated[KEY_SECRET])[0]), {
      consumer: 'acme',
    })
    const app = gateway.app(
      { rules: [RULE], credentials: { ...REQUIRED, ...SIGNED } },
      { variables: rotated },
    )
    for (const key of [old, renewed]) expect(await statusOf(app, key)).toBe(200)
    const fresh = gateway.app(
      { rules: [RULE], credentials: { ...REQUIRED, ...SIGNED } },
      { variables: rotated },
    )
    gone()
    for (const key of [old, renewed]) expect(await statusOf(fresh, key)).toBe(200)
  })

  it('a key that is rotated is replaced by a signed one, and both work during the overlap', async () => {
    const old = await gateway.key('acme')
    const { created } = await rotateKey(signing(), await findKey(gateway.admin, old), 60e3)
    const app = isolate({ apiKeys: { signature: 'check' } })
    for (const key of [old, created.key]) expect(await statusOf(app, key)).toBe(200)
    expect(await statusOf(isolate(REQUIRED), created.key)).toBe(200)
    const keys = await listKeys(gateway.admin)
    expect(keys.map(({ signedBy }) => signedBy)).toEqual([undefined, SECRET!.id])
  })

  it('a signed key works without the secret, as long as signatures are not checked', async () => {
    const app = gateway.app({ rules: [RULE] })
    expect(await statusOf(app, await keyOf('acme'))).toBe(200)
    expect(await statusOf(app, await signedKey('acme'))).toBe(401)
  })
})
