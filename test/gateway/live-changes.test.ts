/** Administrative changes take effect with the next request of an isolate that has already served the caller. */
import { beforeAll, beforeEach, expect, it } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { blockConsumer, setPlan, unblockConsumer } from '../../src/ops/consumers.ts'
import { expireKey, revokeKey, rotateKey, setKeyPlan } from '../../src/ops/key-changes.ts'
import { findKey } from '../../src/ops/key-reference.ts'
import { createKey, importKey } from '../../src/ops/keys.ts'
import { resetCaller } from '../../src/ops/limits.ts'
import { compileOverride, type OverrideInput, removeOverride, setOverride } from '../../src/ops/overrides.ts'
import { removeConsumer } from '../../src/ops/remove-consumer.ts'
import { configOf } from '../support/engines.ts'
import { type App, useGateway } from '../support/gateway.ts'
import { describeOnRedis } from '../support/redis.ts'

const RULES: RuleInput[] = [
  { name: 'window', by: 'consumer', algorithm: 'fixed-window', limit: 100, period: '300d' },
  { name: 'steady', by: 'consumer', algorithm: 'gcra', limit: 50, period: '300d' },
]
const CONFIG: Partial<ConfigInput> & Pick<ConfigInput, 'rules'> = {
  plans: ['free', 'pro'],
  rules: RULES,
  credentials: { opaqueKeys: {} },
  // Remembered refusals are tested in refusals.test.ts.
  refusals: { rememberFor: 0 },
}

describeOnRedis('a change', (_, kind) => {
  const gateway = useGateway(kind)
  let app: App
  let key: string
  beforeAll(async () => {
    app = gateway.app(CONFIG)
  })
  beforeEach(async () => {
    key = (await createKey(gateway.admin, { consumer: 'acme' })).key
    await ask()
  })

  let hasCheck = false

  /** Status, the plan that the origin gets, and each limit with its remaining units. */
  async function ask(credential = key) {
    gateway.store.count()
    const { status, headers } = await app('/', { key: credential })
    const trips = gateway.store.count()
    // After an unknown key, the isolate checks in the background whether the store has lost all keys.
    expect(trips - (hasCheck && trips > 1 ? 1 : 0)).toBe(1)
    hasCheck ||= status === 401
    const sent = gateway.origin.received.at(-1)?.headers
    return {
      status,
      ...(status === 200 && { plan: sent?.['x-consumer-plan'] }),
      policy: headers.get('ratelimit-policy') ?? '',
      left: headers.get('ratelimit') ?? '',
    }
  }
  const found = (text = key) => findKey(gateway.admin, text)
  const override = (input: OverrideInput) =>
    setOverride(gateway.admin, 'acme', compileOverride({ ...CONFIG, origin: 'route' } as ConfigInput, input))

  it('of a key: revoked', async () => {
    expect(await ask()).toMatchObject({ status: 200, plan: 'free' })
    await revokeKey(gateway.admin, await found())
    expect((await ask()).status).toBe(401)
  })

  it('of a key: expired', async () => {
    await expireKey(gateway.admin, await found(), new Date(Date.now() + 3600e3))
    expect((await ask()).status).toBe(200)
    await expireKey(gateway.admin, await found(), new Date(Date.now() - 1))
    expect((await ask()).status).toBe(401)
  })

  it('of a plan: of the key, then of the consumer', async () => {
    await setPlan(gateway.admin, 'acme', 'pro')
    expect((await ask()).plan).toBe('pro')
    await setKeyPlan(gateway.admin, await found(), 'free')
    expect((await ask()).plan).toBe('free')
    await setKeyPlan(gateway.admin, await found(), undefined)
    expect((await ask()).plan).toBe('pro')
    await setPlan(gateway.admin, 'acme', undefined)
    expect((await ask()).plan).toBe('free')
  })

  it('of a consumer: blocked and unblocked', async () => {
    await blockConsumer(gateway.admin, 'acme', { reason: 'did not pay' })
    expect((await ask()).status).toBe(403)
    await unblockConsumer(gateway.admin, 'acme')
    expect((await ask()).status).toBe(200)
    await removeConsumer(gateway.admin, 'acme', configOf(CONFIG).rules)
    expect((await ask()).status).toBe(401)
  })

  it('of numbers: a limit, below the units already counted', async () => {
    expect((await ask()).left).toContain('"window";r=98')
    await override({ rule: 'window', limit: 5 })
    const { policy, left } = await ask()
    expect(policy).toContain('"window";q=5')
    expect(left).toContain('"window";r=2')
    await removeOverride(gateway.admin, 'acme', 'window')
    expect((await ask()).left).toContain('"window";r=96')
  })

  it('of numbers: a burst, with a new count', async () => {
    await override({ rule: 'steady', burst: 2 })
    expect([(await ask()).status, (await ask()).status, (await ask()).status]).toEqual([200, 200, 429])
    await resetCaller(gateway.admin, configOf(CONFIG), { consumer: 'acme' })
    expect((await ask()).status).toBe(200)
  })

  const numbers = { by: 'consumer', limit: 5, period: '300d' } as const
  it.each<[RuleInput, Omit<OverrideInput, 'rule'>]>([
    [
      { name: 'r', algorithm: 'gcra', ...numbers, burst: 4 },
      { limit: 2, burst: 2 },
    ],
    [{ name: 'r', algorithm: 'token-bucket', ...numbers }, { limit: 2 }],
    [
      { name: 'r', algorithm: 'leaky-bucket', ...numbers, period: '50s', queue: 3 },
      { limit: 1, queue: 1 },
    ],
    [{ name: 'r', algorithm: 'fixed-window', ...numbers, period: 'month' }, { limit: 2 }],
    [{ name: 'r', algorithm: 'sliding-window', ...numbers }, { limit: 2 }],
    [{ name: 'r', algorithm: 'sliding-log', ...numbers }, { limit: 2 }],
    [{ name: 'r', algorithm: 'sliding-log', ...numbers, limit: 500 }, { limit: 2 }],
  ])('of numbers: %j is overridden with %j', async (rule, changed) => {
    const input = { plans: ['free', 'pro'], rules: [rule] }
    await setOverride(gateway.admin, 'acme', compileOverride(input, { rule: 'r', ...changed }))
    // Queued requests depart at once: delays are tested elsewhere.
    const one = gateway.app(input, { sleep: async () => {} })
    const replies = await Promise.all(Array.from({ length: 6 }, () => one('/', { key })))
    expect(replies.filter(({ status }) => status === 200)).toHaveLength(2)
    expect(replies[0]!.headers.get('ratelimit-policy')).toContain(`"r";q=${changed.limit}`)
  })

  it('of a mode: a shadow refuses nothing, and a rule that is off disappears', async () => {
    await override({ rule: 'window', limit: 1 })
    expect((await ask()).status).toBe(429)
    await override({ rule: 'window', limit: 1, mode: 'shadow' })
    expect((await ask()).status).toBe(200)
    await override({ rule: 'window', mode: 'off' })
    const { status, policy } = await ask()
    expect([status, policy]).toEqual([200, expect.not.stringContaining('window')])
  })

  it('of numbers for a time: it ends on time', async () => {
    await override({ rule: 'window', limit: 1, until: new Date(Date.now() + 3600e3) })
    expect((await ask()).status).toBe(429)
    await override({ rule: 'window', limit: 1, until: new Date(Date.now() - 1000) })
    expect(await ask()).toMatchObject({ status: 200, policy: expect.stringContaining('"window";q=100') })
  })

  it('does not affect other callers', async () => {
    const { key: other } = await createKey(gateway.admin, { consumer: 'acme2' })
    await override({ rule: 'window', limit: 1 })
    await blockConsumer(gateway.admin, 'acme3')
    expect((await ask(other)).policy).toContain('"window";q=100')
  })

  it('of a key for a new one: both are valid during the overlap', async () => {
    const first = await rotateKey(gateway.admin, await found(), 3600e3)
    expect([(await ask()).status, (await ask(first.created.key)).status]).toEqual([200, 200])
    const second = await rotateKey(gateway.admin, await found(first.created.key), 0)
    expect([(await ask(first.created.key)).status, (await ask(second.created.key)).status]).toEqual([
      401, 200,
    ])
  })

  it('of an opaque key: unknown, imported, moved to another consumer', async () => {
    const opaque = 'partner-key-of-before-0123456789'
    expect((await ask(opaque)).status).toBe(401)
    const { id } = await importKey(gateway.admin, { key: opaque }, { consumer: 'acme', plan: 'pro' })
    // Cold, in this isolate and in a new one, then warm: one HTTP request each.
    for (const each of [app, gateway.app(CONFIG)]) {
      app = each
      for (let i = 0; i < 2; i++) {
        expect(await ask(opaque)).toMatchObject({ status: 200, plan: 'pro' })
        expect(gateway.origin.received.at(-1)?.headers['x-consumer-id']).toBe('acme')
      }
    }
    await revokeKey(gateway.admin, await found(id))
    expect((await ask(opaque)).status).toBe(401)
    await importKey(gateway.admin, { key: opaque }, { consumer: 'globex' })
    expect(await ask(opaque)).toMatchObject({ status: 200, plan: 'free' })
    expect(gateway.origin.received.at(-1)?.headers['x-consumer-id']).toBe('globex')
  })
})
