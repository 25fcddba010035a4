/** Administration on a Redis Cluster: each step stays in one slot, or runs once for each slot. */
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { administer } from '../../src/ops/admin/index.ts'
import type { AdminStore } from '../../src/ops/admin-store-shape.ts'
import { blockConsumer, listConsumers, setPlan } from '../../src/ops/consumers.ts'
import { expireKey, revokeKey, rotateKey } from '../../src/ops/key-changes.ts'
import { findKey } from '../../src/ops/key-reference.ts'
import { createKey, importKey, listedConsumer, listKeys, removeFromIndexIfEmpty } from '../../src/ops/keys.ts'
import { peekCaller, peekLimit, resetCaller, resetLimit } from '../../src/ops/limits.ts'
import { compileOverride, setOverride, withInput } from '../../src/ops/overrides.ts'
import { removeConsumer } from '../../src/ops/remove-consumer.ts'
import { createToken, findToken, listTokens, revokeToken, rotateToken } from '../../src/ops/tokens.ts'
import { write } from '../../src/ops/write.ts'
import type { Command, Reply } from '../../src/store/admin-connection.ts'
import { startAdmin, type TestAdmin } from '../support/admin.ts'
import { describeOnCluster, type TestCluster } from '../support/cluster.ts'
import { configOf } from '../support/engines.ts'

const INPUT: ConfigInput = {
  origin: 'route',
  rules: [
    { name: 'window', by: 'consumer', algorithm: 'fixed-window', limit: 9, period: '300d' },
    { name: 'log', by: 'consumer', algorithm: 'sliding-log', limit: 200, period: '30d' },
    { name: 'address', by: 'address', algorithm: 'fixed-window', limit: 9, period: '300d' },
  ],
  limits: {
    zendesk: [{ name: 'day', by: ['account'], algorithm: 'fixed-window', limit: 2, period: '300d' }],
    tenant: [
      { name: 'all', algorithm: 'fixed-window', limit: 9, period: '300d', overridable: true },
      { name: 'quota', by: ['tenant'], algorithm: 'gcra', limit: 9, period: '300d', overridable: true },
    ],
  },
  store: { cluster: true },
}

describeOnCluster('the administration', start => {
  let admin: TestAdmin<TestCluster>
  beforeAll(async () => {
    admin = await startAdmin(await start(), { cluster: true, environment: 'test' })
  })
  afterAll(() => admin?.close())

  it('creates, lists, changes and removes the data of many consumers', async () => {
    const { store } = admin
    const config = configOf(INPUT)
    const consumers = ['acme', 'globex', 'hooli', 'initech', 'umbrella']
    for (const [i, consumer] of consumers.entries()) {
      const { id } = await createKey(store, { consumer })
      await rotateKey(store, await findKey(store, id), 3600e3)
      const opaque = await importKey(store, { key: `partner-key-number-${i}` }, { consumer })
      await expireKey(store, await findKey(store, opaque.id), new Date(Date.now() + 3600e3))
      await setOverride(store, consumer, compileOverride(INPUT, { rule: 'window', limit: 5 }))
      const { standings } = await peekCaller(store, config, { consumer })
      expect(standings.map(({ remaining }) => remaining)).toEqual([5, 200])
      await resetCaller(store, config, { consumer })
    }
    expect(await listKeys(store)).toHaveLength(15)
    await revokeKey(store, await findKey(store, 'partner-key-number-0'))
    await blockConsumer(store, 'hooli')
    expect(await listConsumers(store)).toMatchObject(
      consumers.map((consumer, i) => ({ consumer, keys: { length: i === 0 ? 2 : 3 } })),
    )
    expect((await peekCaller(store, config, { address: '192.0.2.7' })).standings).toMatchObject([
      { remaining: 9 },
    ])
    await resetCaller(store, config, { address: '192.0.2.7' })
    expect(await peekLimit(store, config, 'zendesk', { account: '42' })).toMatchObject([{ remaining: 2 }])
    await resetLimit(store, config, 'zendesk', { account: '42' })

    for (const consumer of consumers) await removeConsumer(store, consumer, config.rules)
    const left = await Promise.all(admin.redis.nodes.map(node => node.ask('KEYS', '*')))
    // States that were reset stay for some seconds. Nothing is left of the consumers.
    expect(
      left
        .flat()
        .map(String)
        .filter(key => !/\{(ip|l):/.test(key)),
    ).toEqual([])
  })

  it('overrides limits by name', async () => {
    const config = withInput(configOf(INPUT), INPUT)
    const { limits } = administer({ store: admin.store, config, by: 'ops' })
    const identity = { tenant: 'acme' }
    await limits.setOverride('tenant', identity, 'quota', { limit: 20 })
    await limits.setOverride('tenant', {}, 'all', { limit: 30 })
    expect((await limits.peek('tenant', identity)).rules).toMatchObject([
      { remaining: 30 },
      { remaining: 20 },
    ])
    await limits.reset('tenant', identity)
    expect((await limits.overrides('tenant')).overrides).toHaveLength(2)
    await limits.removeOverride('tenant', identity, 'quota')
    await limits.removeOverride('tenant', {}, 'all')
    expect((await limits.overrides('tenant')).overrides).toEqual([])
    expect((await limits.peek('tenant', identity)).rules).toMatchObject([{ remaining: 9 }, { remaining: 9 }])
  })

  it('gives an opaque key to one consumer at most, wherever two imports meet', async () => {
    const { store } = admin
    for (let at = 0; at < 12; at++) {
      const opaque = { key: `partner-key-that-two-import-${at}` }
      let calls = 0
      let other: Promise<unknown> | undefined
      const meetAt = async () => {
        if (calls++ === at) other = importKey(store, opaque, { consumer: 'globex' }).catch(error => error)
        await other
      }
      const met: AdminStore = {
        ...store,
        async run<T extends Reply>(...command: Command) {
          const reply = await store.run<T>(...command)
          await meetAt()
          return reply
        },
        async runEach<T extends Reply>(commands: readonly Command[]) {
          const replies = await store.runEach<T>(commands)
          await meetAt()
          return replies
        },
      }
      const own = await importKey(met, opaque, { consumer: 'acme' }).catch(error => error)
      const made = [own, await other].filter(result => result && !(result instanceof Error))
      const listed = (await listKeys(store)).map(({ id, kind }) => ({ id, kind }))
      expect([at, listed]).toEqual([at, made.map(({ id }) => ({ id, kind: 'opaque-key' }))])
      expect(made.length).toBeLessThanOrEqual(1)
      const consumers = await listConsumers(store)
      expect([at, consumers.map(({ consumer }) => consumer)]).toEqual([
        at,
        made.map(({ consumer }) => consumer),
      ])
      for (const { consumer } of consumers) await removeConsumer(store, consumer, [])
    }
  })

  it('lists a consumer whose first key is created, wherever another process removes empty consumers', async () => {
    const { store } = admin
    for (let at = 0; at < 4; at++) {
      let calls = 0
      const met: AdminStore = {
        ...store,
        async runEach<T extends Reply>(commands: readonly Command[]) {
          if (calls++ === at) await removeFromIndexIfEmpty(store, 'acme')
          return await store.runEach<T>(commands)
        },
        async run<T extends Reply>(...command: Command) {
          if (calls++ === at) await removeFromIndexIfEmpty(store, 'acme')
          return await store.run<T>(...command)
        },
      }
      const { id } = await createKey(met, { consumer: 'acme' })
      expect([at, (await listKeys(store)).map(key => key.id)]).toEqual([at, [id]])
      await removeConsumer(store, 'acme', [])
    }
  })

  it('lists a consumer again that is created while it is removed from the index', async () => {
    const { store } = admin
    for (let at = 0; at < 3; at++) {
      await setPlan(store, 'acme', 'pro')
      await setPlan(store, 'acme', undefined)
      let calls = 0
      const met: AdminStore = {
        ...store,
        async runEach<T extends Reply>(commands: readonly Command[]) {
          if (calls++ === at) await createKey(store, { consumer: 'acme' })
          return await store.runEach<T>(commands)
        },
      }
      await removeFromIndexIfEmpty(met, 'acme')
      expect([at, await listConsumers(store)]).toMatchObject([at, [{ consumer: 'acme', keys: [{}] }]])
      await removeConsumer(store, 'acme', [])
    }
  })

  it('lists no new consumer for a change that is not made', async () => {
    const { store } = admin
    const record = store.at('sluice:{c:nobody}:consumer')
    const change = { keys: [record], commands: [['SET', record, 'plan=pro']] as const }
    const listed = listedConsumer(store, 'nobody')
    expect(await write(store, { ...change, listed, onlyIf: [[record, 'plan=free']] })).toBe(false)
    expect(await listConsumers(store)).toEqual([])
  })

  it('creates, lists, rotates and revokes service tokens', async () => {
    const { store } = admin
    const made = await Promise.all(
      Array.from({ length: 5 }, (_, i) => createToken(store, { name: `t${i}`, scopes: ['stats:read'] })),
    )
    const [first, second] = made
    await rotateToken(store, await findToken(store, first!.id), 3600e3)
    await revokeToken(store, await findToken(store, second!.id))
    expect((await listTokens(store)).map(({ name }) => name).sort()).toEqual(['t0', 't0', 't2', 't3', 't4'])
    for (const { id } of await listTokens(store)) await revokeToken(store, await findToken(store, id))
    expect(await listTokens(store)).toEqual([])
  })
})
