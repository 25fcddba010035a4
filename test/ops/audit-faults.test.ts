/** The audit trail while the store fails, with 100,000 entries, and on a cluster. */
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type AdminStore, adminStoreOn, withActor } from '../../src/ops/admin-store.ts'
import { type AuditEntry, readAudit } from '../../src/ops/audit.ts'
import { blockConsumer, setPlan } from '../../src/ops/consumers.ts'
import { revokeKey } from '../../src/ops/key-changes.ts'
import { findKey } from '../../src/ops/key-reference.ts'
import { createKey, importKey } from '../../src/ops/keys.ts'
import { removeConsumer } from '../../src/ops/remove-consumer.ts'
import { createToken, findToken, rotateToken } from '../../src/ops/tokens.ts'
import type { AdminConnection, Command } from '../../src/store/admin-connection.ts'
import { AUDIT_INDEX_KEY } from '../../src/store/keys.ts'
import { startAdmin, type TestAdmin, useAdmin } from '../support/admin.ts'
import { all, changesOf, INPUT, OPS, pagesOf, SUPPORT } from '../support/audit.ts'
import { describeOnCluster, type TestCluster } from '../support/cluster.ts'
import { configOf } from '../support/engines.ts'
import { describeOnRedis } from '../support/redis.ts'

describeOnRedis('the audit trail', (start, kind) => {
  const admin = useAdmin(start)
  const { send, text } = admin

  it('is written in the same command as the change, whichever call is the last that reaches the store', async () => {
    // Every change is made again and again, with a store that fails before its nth command.
    const config = configOf(INPUT)
    for (let lives = 0; lives < 14; lives++) {
      await send('FLUSHALL')
      await setPlan(admin.store, 'globex', 'pro')
      await importKey(admin.store, { key: 'partner-key-number-1' }, { consumer: 'globex' })
      const found = await findKey(admin.store, 'partner-key-number-1')
      for (const [make, isMade] of [
        [
          store => createKey(store, { consumer: 'acme' }),
          async () => (await text('EXISTS', 'sluice:{c:acme}:digests')) === '1',
        ],
        [
          store => blockConsumer(store, 'acme'),
          async () => (await text('EXISTS', 'sluice:{c:acme}:consumer')) === '1',
        ],
        [
          store => revokeKey(store, found),
          async () => (await text('EXISTS', `sluice:{k:${found.digest}}`)) === '0',
        ],
        [
          store => removeConsumer(store, 'globex', config.rules),
          async () => (await text('EXISTS', 'sluice:{c:globex}:consumer')) === '0',
        ],
      ] as readonly [(store: AdminStore) => Promise<unknown>, () => Promise<boolean>][]) {
        await send('DEL', 'sluice:{audit}')
        await make(withActor(dying(admin.store, lives), OPS)).catch(() => {})
        expect(await all(admin.store)).toHaveLength((await isMade()) ? 1 : 0)
      }
    }
  })

  it.each<[string, (store: AdminStore) => Promise<unknown>]>([
    ['sluice:{consumers}:names', store => createKey(store, { consumer: 'acme' })],
    ['sluice:{consumers}:names', store => setPlan(store, 'acme', 'pro')],
    ['sluice:{tokens}:digests', store => createToken(store, { name: 'jobs', scopes: ['stats:read'] })],
  ])('has no entry of what could not be added to %s', async (index, create) => {
    await send('SET', index, 'no index')
    const { advice: _, ...store } = admin.store
    await expect(create(withActor(store, OPS))).rejects.toMatchObject({
      message: expect.stringContaining('WRONGTYPE'),
    })
    expect(await text('KEYS', '*')).toBe(index)
  })

  // The embedded Redis takes milliseconds for each entry of a long stream.
  it.skipIf(kind === 'embedded')(
    'reads a rare target among 100,000 entries in bounded pages',
    { timeout: 60_000 },
    async () => {
      const fill = `for i = 1, 10000 do redis.call('XADD', KEYS[1], '*', 'actor', 'operator', 'name', 'ops', 'action', 'consumers.plan',
      'target', 'acme-' .. i, 'change', '{"before":{},"after":{"plan":"pro"}}', 'reason', '', 'request', '') end`
      const store = withActor(admin.store, OPS)
      await setPlan(store, 'rare', 'pro')
      for (let i = 0; i < 10; i++) await send('EVAL', fill, '1', 'sluice:{audit}')
      let pages = 0
      const found: AuditEntry[] = []
      admin.proxy.count()
      for (let cursor: string | undefined; pages === 0 || cursor; pages++) {
        const page = await readAudit(store, { target: 'rare', limit: 10, cursor })
        found.push(...page.entries)
        cursor = page.cursor
      }
      expect(found).toMatchObject([{ target: 'rare' }])
      // 20 calls of 2,000 entries for each page.
      expect(admin.proxy.count()).toBeLessThanOrEqual(20 * pages)
      expect(pages).toBeLessThanOrEqual(3)
      expect((await readAudit(store, { limit: 50 })).entries).toHaveLength(50)
      expect(admin.proxy.count()).toBe(1)
    },
  )
})

/** A store whose connection ends before the nth command. */
function dying(store: AdminStore, lives: number): AdminStore {
  const { decisions, nextStepFor } = store
  let left = lives
  const die = () => {
    if (left-- <= 0) throw new Error('The connection has ended.')
  }
  const connection: AdminConnection = {
    ...{ decisions, nextStepFor },
    async run(...command: Command) {
      die()
      return await store.run(...command)
    },
    async runEach(commands) {
      die()
      return await store.runEach(commands)
    },
    async transact(commands) {
      die()
      return await store.transact(commands)
    },
  }
  return adminStoreOn(connection, {}, store.ruleSets, store.onCluster)
}

describeOnCluster('the audit trail', start => {
  let admin: TestAdmin<TestCluster>
  beforeAll(async () => {
    admin = await startAdmin(await start(), { cluster: true, environment: 'test' })
  })
  afterAll(() => admin?.close())

  it('has one stream for each slot, which are merged', async () => {
    const store = withActor(admin.store, SUPPORT)
    const changes = await changesOf(store)
    for (const [make] of changes) await make()
    const entries = await all(store)
    // The first is the key that they begin with.
    expect(entries.map(({ action }) => action).reverse()).toEqual([
      'keys.create',
      ...changes.map(([, action]) => action),
    ])
    const consumers = Array.from({ length: 60 }, (_, i) => `consumer-${i}`)
    for (const consumer of consumers) await setPlan(store, consumer, 'pro')
    const pages = await pagesOf(store, 7)
    expect(pages.map(({ id }) => id)).toEqual((await all(store)).map(({ id }) => id))
    expect(pages).toHaveLength(entries.length + 60)
    expect((await all(store, { target: 'consumer-7' })).map(({ target }) => target)).toEqual(['consumer-7'])
    expect((await all(store, { target: 'zendesk' })).map(({ action }) => action)).toEqual(['limits.reset'])
  })

  it('finds the changes of one consumer among 20,000 in a few calls', async () => {
    await setPlan(withActor(admin.store, SUPPORT), 'rare', 'pro')
    const names = Array.from({ length: 20_000 }, (_, i) => [
      Date.now() + 1000,
      admin.store.at(`sluice:{c:u${i}}:audit`),
    ])
    await admin.store.run('ZADD', admin.store.at(AUDIT_INDEX_KEY), ...names.flat())
    let calls = 0
    const run: typeof admin.store.run = (...command) => {
      calls += 1
      return admin.store.run(...command)
    }
    const { entries } = await readAudit({ ...admin.store, run }, { target: 'rare', limit: 50 })
    expect(entries.map(({ action }) => action)).toEqual(['consumers.plan'])
    expect(calls).toBeLessThanOrEqual(5)

    // Without a target, each of the 20,000 streams could have the newest entry.
    calls = 0
    await expect(readAudit({ ...admin.store, run }, { limit: 50 })).rejects.toThrow('Name a target.')
    expect(calls).toBe(20)
    const since = new Date(Date.now() + 3_600_000)
    expect(await readAudit(admin.store, { limit: 50, since })).toEqual({ entries: [] })
  })

  it('looks into the streams of tokens only for a token', async () => {
    const store = withActor(admin.store, SUPPORT)
    const { id } = await createToken(store, { name: 'jobs', scopes: ['stats:read'] })
    const { created } = await rotateToken(store, await findToken(store, id), 3600e3)
    await setPlan(store, 'rare-2', 'pro')
    const read: string[] = []
    const runEach: typeof store.runEach = commands => {
      read.push(...commands.map(String))
      return store.runEach(commands)
    }
    expect(await all({ ...store, runEach }, { target: 'rare-2' })).toHaveLength(1)
    expect(read.join()).toContain('{c:rare-2}:audit')
    expect(read.join()).not.toContain('{t:')
    // The entry of the rotation is in the stream of the old one.
    for (const target of [id, created.id])
      expect((await all(store, { target })).map(({ action }) => action)).toContain('tokens.rotate')
  })
})
