/** Keys: they are created, imported, listed, changed, rotated and revoked. */
import { type AddressInfo, createServer } from 'node:net'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { consumerOfApiKey, mintApiKey } from '../../src/credentials/api-key.ts'
import { isSigned, newKeySecret, readKeySecrets } from '../../src/credentials/key-signature.ts'
import { keyStatsText, keyTable } from '../../src/node/cli/key-output.ts'
import { AdminError } from '../../src/ops/admin-error.ts'
import { type AdminStore, createAdminStore, withActor } from '../../src/ops/admin-store.ts'
import { setPlan } from '../../src/ops/consumers.ts'
import { parseOpaqueKey } from '../../src/ops/inputs.ts'
import { expireKey, revokeKey, rotateKey, setKeyLabel, setKeyPlan } from '../../src/ops/key-changes.ts'
import { findKey } from '../../src/ops/key-reference.ts'
import {
  createKey,
  importKey,
  keyStatsOf,
  listConsumerNames,
  listKeys,
  removeFromIndexIfEmpty,
} from '../../src/ops/keys.ts'
import { removeConsumer } from '../../src/ops/remove-consumer.ts'
import { sha256 } from '../../src/sha256.ts'
import { useAdmin } from '../support/admin.ts'
import { describeOnRedis } from '../support/redis.ts'

const HOUR = 3600e3

/** The URL of a port on which no server listens anymore. */
async function closedPort(): Promise<string> {
  const server = createServer()
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise(resolve => server.close(resolve))
  return `http://127.0.0.1:${port}`
}
const OPAQUE = 'partner-key-of-before-0123456789'

describeOnRedis('keys', start => {
  const admin = useAdmin(start)
  const { send, text } = admin
  const ttlOf = async (key: string) => Number(await send('PTTL', key))
  const inAnHour = () => new Date(Date.now() + HOUR)

  it('are created together with their index entries in a transaction, and never stored themselves', async () => {
    const expiresAt = inAnHour()
    const made = await createKey(admin.store, {
      consumer: 'acme',
      plan: 'pro',
      label: 'für Ü, 100 %',
      expiresAt,
    })
    expect(admin.proxy.count()).toBe(1)
    expect(consumerOfApiKey(made.key)).toBe('acme')
    const digest = sha256(made.key)
    expect(made.id).toBe(`acme/${digest.slice(0, 12)}`)
    const record = `sluice:{c:acme}:key:${digest}`
    expect(await text('ZRANGE', 'sluice:{c:acme}:digests', '0', '-1')).toBe(digest)
    expect(await text('ZRANGE', 'sluice:{consumers}:names', '0', '-1')).toBe('acme')
    expect(await ttlOf(record)).toBeGreaterThan(HOUR - 20e3)
    expect(await ttlOf(record)).toBeLessThanOrEqual(HOUR)
    expect((await text('GET', record)) + (await text('KEYS', '*'))).not.toContain(made.key.slice(9, 30))

    const [listed, ...others] = await listKeys(admin.store, 'acme')
    expect(others).toEqual([])
    const { key, ...known } = made
    expect(listed).toEqual(known)
    expect(listed).toMatchObject({ label: 'für Ü, 100 %', plan: 'pro', hint: key.slice(-4), expiresAt })
  })

  it('are signed with the secret of the store, and lists and statistics show which are', async () => {
    const [first, second] = readKeySecrets(`${newKeySecret()},${newKeySecret()}`)
    const signing = (keySecret = first) => admin.storeOf({ environment: 'test', keySecret })
    const old = await createKey(admin.storeOf({ environment: 'test' }), { consumer: 'acme' })
    const keys = [
      await createKey(signing(), { consumer: 'acme' }),
      await createKey(signing(second), { consumer: 'globex' }),
    ]
    const environment = 'test'
    expect(keys.map(({ key }) => isSigned(key))).toEqual([true, true])
    expect(isSigned(old.key)).toBe(false)
    await importKey(signing(), { key: OPAQUE }, { consumer: 'acme' })
    // Not even a later change of the record forgets it. None of this needs the secret.
    const store = admin.storeOf({ environment })
    await setKeyLabel(store, await findKey(store, keys[0]!.key), 'ci')
    const listed = await listKeys(store)
    expect(listed.map(({ signedBy }) => signedBy)).toEqual([undefined, first!.id, undefined, second!.id])
    expect(keyTable(listed)).toContain(` api-key, signed by ${first!.id} `)

    const stats = keyStatsOf(listed)
    expect(stats).toMatchObject({ signed: { [first!.id]: 1, [second!.id]: 1 }, unsigned: [{ id: old.id }] })
    expect(stats.allSignedAt).toBeUndefined()
    expect(keyStatsText(stats)).toContain(`These never expire, so rotate them: ${old.id}`)
    const expiresAt = inAnHour()
    await expireKey(store, await findKey(store, old.id), expiresAt)
    expect(keyStatsOf(await listKeys(store)).allSignedAt).toEqual(expiresAt)
    await revokeKey(store, await findKey(store, old.id))
    expect(keyStatsOf(await listKeys(store), 5)).toMatchObject({ unsigned: [], allSignedAt: new Date(5) })
  })

  it('of an environment are separate from all others', async () => {
    const test = admin.storeOf({ environment: 'test' })
    const { key, id } = await createKey(test, { consumer: 'acme' })
    expect(key).toMatch(/^slk_test_acme_/)
    expect(await text('KEYS', '*')).not.toContain('sluice:{')
    expect(await listKeys(admin.store)).toEqual([])
    expect((await findKey(test, key)).id).toBe(id)
    await expect(findKey(admin.store, key)).rejects.toMatchObject({ kind: 'not-found' })
  })

  it('are listed for all consumers or for one, and expired keys leave the index', async () => {
    const globex = await createKey(admin.store, { consumer: 'globex', plan: 'free' })
    const acme = await createKey(admin.store, { consumer: 'acme' })
    const gone = await createKey(admin.store, { consumer: 'acme' })
    const digest = sha256(gone.key)
    await send('DEL', `sluice:{c:acme}:key:${digest}`)
    expect((await listKeys(admin.store)).map(({ id }) => id)).toEqual([acme.id, globex.id])
    expect(await text('ZRANGE', 'sluice:{c:acme}:digests', '0', '-1')).toBe(sha256(acme.key))
    expect(await listKeys(admin.store, 'nobody')).toEqual([])
    expect(await listKeys(admin.store, 'globex')).toHaveLength(1)
  })

  it('are found by ID, by the beginning of the ID, and by the key itself', async () => {
    const { key, id } = await createKey(admin.store, { consumer: 'a.b_c-d' })
    const digest = sha256(key)
    for (const given of [id, `a.b_c-d/${digest}`, `a.b_c-d/${digest.slice(0, 4)}`, key]) {
      expect(await findKey(admin.store, given)).toMatchObject({ id, digest, consumer: 'a.b_c-d' })
    }
  })

  it('that are missing or ambiguous are reported with the existing IDs, and without secrets', async () => {
    await createKey(admin.store, { consumer: 'acme' })
    await send(
      'ZADD',
      'sluice:{c:acme}:digests',
      ...['0', '1'].flatMap(last => ['0', `feed${'0'.repeat(59)}${last}`]),
    )
    const other = mintApiKey('acme')
    const cases: [string, string, RegExp][] = [
      [
        'acme/feed',
        'refused',
        /More than one key begins like this: acme\/feed0{59}0, acme\/feed0{59}1\. Add more digits/,
      ],
      ['acme/0000', 'not-found', /^There is no key 'acme\/0000' .*: npx sluicegate keys list$/],
      ['nobody/0000', 'not-found', /^The store has no consumer 'nobody'\. Consumers: acme\.$/],
      ['amce/0000', 'not-found', /^The store has no consumer 'amce'\. Did you mean 'acme'\?/],
      [other, 'not-found', /^There is no key 'acme\/[0-9a-f]{12}' in the unnamed environment/],
      [`${other}x`, 'not-found', /its form or its checksum is wrong/],
      [OPAQUE, 'not-found', /No such key was imported/],
      ['QUJDREVGR0hJSktMTU5P/abcdef', 'not-found', /No such key was imported/],
      ['short', 'usage', /^This is not a key\. Use the ID/],
    ]
    for (const [given, kind, message] of cases) {
      const error: Error = await findKey(admin.store, given).catch(error => error)
      expect(error, given).toMatchObject({ kind, message: expect.stringMatching(message) })
      if (given.length > 20) expect(error.message).not.toContain(given.slice(10, 20))
    }
  })

  it('that was revoked, of a consumer without keys, is not called misspelled', async () => {
    const { id } = await createKey(admin.store, { consumer: 'partner' })
    await revokeKey(admin.store, await findKey(admin.store, id))
    await setPlan(admin.store, 'partner', 'pro')
    const message = await findKey(admin.store, id).catch(error => error.message)
    expect(message).toMatch(/^There is no key with this ID: it never existed, has expired, or was revoked\. /)
    expect(message).not.toContain('Did you mean')
  })

  it('can get another label and another plan, and keep their expiry', async () => {
    const { id } = await createKey(admin.store, { consumer: 'acme', plan: 'free', expiresAt: inAnHour() })
    const key = await findKey(admin.store, id)
    await setKeyLabel(admin.store, key, 'new')
    await setKeyPlan(admin.store, key, 'pro')
    expect((await findKey(admin.store, id)).record).toMatchObject({ label: 'new', plan: 'pro' })
    expect(await ttlOf(`sluice:{c:acme}:key:${key.digest}`)).toBeGreaterThan(HOUR - 20e3)
    await setKeyLabel(admin.store, key, undefined)
    await setKeyPlan(admin.store, key, undefined)
    const { record } = await findKey(admin.store, id)
    expect(record).not.toHaveProperty('label')
    expect(record).not.toHaveProperty('plan')
    expect(record.expiresAt).toEqual(key.record.expiresAt)
  })

  it('expire at a given time, never, or immediately', async () => {
    const { id } = await createKey(admin.store, { consumer: 'acme' })
    const key = await findKey(admin.store, id)
    const record = `sluice:{c:acme}:key:${key.digest}`
    const at = inAnHour()
    await expireKey(admin.store, key, at)
    expect((await findKey(admin.store, id)).record.expiresAt).toEqual(at)
    expect(await ttlOf(record)).toBeGreaterThan(HOUR - 20e3)
    await expireKey(admin.store, key, undefined)
    expect((await findKey(admin.store, id)).record).not.toHaveProperty('expiresAt')
    expect(await ttlOf(record)).toBe(-1)
    await expireKey(admin.store, key, new Date(Date.now() - 1))
    expect(await text('KEYS', 'sluice:{c:*')).toBe('')
    await expect(expireKey(admin.store, key, at)).rejects.toMatchObject({ kind: 'not-found' })
    // A later change does not restore the key.
    await expect(setKeyLabel(admin.store, key, 'x')).rejects.toMatchObject({ kind: 'not-found' })
    expect(await text('KEYS', 'sluice:{c:*')).toBe('')
  })

  it('are revoked with all their data', async () => {
    const { id } = await createKey(admin.store, { consumer: 'acme' })
    await revokeKey(admin.store, await findKey(admin.store, id))
    await removeFromIndexIfEmpty(admin.store, 'acme')
    expect(Number(await send('DBSIZE'))).toBe(0)
    await createKey(admin.store, { consumer: 'acme' })
    await removeFromIndexIfEmpty(admin.store, 'acme')
    expect(await listConsumerNames(admin.store)).toEqual(['acme'])
  })

  describe('that are made while their consumer is removed', () => {
    /** The store, with `meanwhile` before the call with this number. */
    const interrupted = (at: number, meanwhile: () => Promise<unknown>): AdminStore => {
      let calls = 0
      const { run, runEach } = admin.store
      const interrupt = async () => {
        calls += 1
        if (calls === at) await meanwhile()
      }
      return Object.assign(Object.create(admin.store) as AdminStore, {
        async run(...args: Parameters<typeof run>) {
          await interrupt()
          return await run(...args)
        },
        async runEach(commands: Parameters<typeof runEach>[0]) {
          await interrupt()
          return await runEach(commands)
        },
      })
    }
    const remove = (store: AdminStore) => removeConsumer(store, 'acme', [])
    const create = (store: AdminStore) => createKey(store, { consumer: 'acme' })
    const change = (store: AdminStore) => setPlan(store, 'acme', 'pro')

    it.each([
      ['a key', create],
      ['a plan', change],
    ] as const)('are listed, whichever of the two is interrupted, and where: %s', async (_, write) => {
      for (const [slow, quick] of [
        [remove, write],
        [write, remove],
      ] as const) {
        for (let at = 1; at <= 8; at++) {
          await send('FLUSHALL')
          await create(admin.store)
          await slow(interrupted(at, () => quick(admin.store)))
          const stored = await text('KEYS', 'sluice:{c:acme}:*')
          const names = await listConsumerNames(admin.store)
          expect([at, names], stored).toEqual([at, stored === '' ? expect.anything() : ['acme']])
        }
      }
    })
  })

  it('that may have been created, although the connection broke, are named so that they can be revoked', async () => {
    admin.proxy.fault = (_, response, passOn) => passOn(() => response.destroy())
    const error = await createKey(admin.store, { consumer: 'acme' }).catch(error => error)
    admin.proxy.fault = undefined
    const [created] = await listKeys(admin.store, 'acme')
    expect(error).toMatchObject({
      kind: 'store',
      nextStep: expect.stringMatching(
        `^Key '${created!.id}' may have been created, .* npx sluicegate keys revoke ${created!.id}\n`,
      ),
    })
  })

  it('that cannot have been created, because the store was not reached, are not named', async () => {
    const closed = createAdminStore({ url: await closedPort(), token: 't' })
    const error = await createKey(closed, { consumer: 'acme' }).catch(error => error)
    expect(error).toMatchObject({ kind: 'store', failure: { fate: 'not-sent' } })
    expect(error.nextStep).not.toContain('may have been created')
  })

  it('are rotated: the new key has the settings of the old one, and the old one expires after the overlap', async () => {
    // The clock stands still, so the lifetimes of both keys can be compared to the millisecond.
    vi.useFakeTimers({ toFake: ['Date'] })
    onTestFinished(() => void vi.useRealTimers())
    const expiresAt = new Date(Date.now() + 10 * HOUR)
    const old = await createKey(admin.store, { consumer: 'acme', plan: 'pro', label: 'ci', expiresAt })
    const { created, oldEndsAt } = await rotateKey(admin.store, await findKey(admin.store, old.id), HOUR)
    expect(created).toMatchObject({ consumer: 'acme', plan: 'pro', label: 'ci' })
    expect(created.key).not.toBe(old.key)
    expect(created.expiresAt!.getTime() - created.createdAt.getTime()).toBe(10 * HOUR)
    expect((await findKey(admin.store, old.id)).record.expiresAt).toEqual(oldEndsAt)
    expect(oldEndsAt!.getTime() - Date.now()).toBe(HOUR)

    // An overlap never extends the life of a key.
    const short = await createKey(admin.store, { consumer: 'acme', expiresAt: inAnHour() })
    const again = await rotateKey(admin.store, await findKey(admin.store, short.id), 5 * HOUR)
    expect(again.oldEndsAt).toEqual(short.expiresAt)
    // Without an overlap, the old key ends immediately.
    await rotateKey(admin.store, await findKey(admin.store, created.id), 0)
    await expect(findKey(admin.store, created.id)).rejects.toMatchObject({ kind: 'not-found' })
    const opaque = await importKey(admin.store, { key: OPAQUE }, { consumer: 'acme' })
    await expect(rotateKey(admin.store, await findKey(admin.store, opaque.id), 0)).rejects.toMatchObject({
      kind: 'refused',
    })
  })

  it.each([0, HOUR])(
    'that are rotated twice at once get one successor, with an overlap of %i ms',
    async overlap => {
      const old = await createKey(admin.store, { consumer: 'acme' })
      const found = await findKey(admin.store, old.id)
      const results = await Promise.allSettled([1, 2, 3, 4].map(() => rotateKey(admin.store, found, overlap)))
      const made = results.flatMap(each => (each.status === 'fulfilled' ? each.value.created.id : []))
      expect(made).toHaveLength(1)
      const others = (await listKeys(admin.store, 'acme')).map(({ id }) => id).filter(id => id !== old.id)
      expect(others).toEqual(made)
      await revokeKey(admin.store, found)
      await expect(rotateKey(admin.store, found, overlap)).rejects.toMatchObject({ kind: 'not-found' })
      expect((await listKeys(admin.store, 'acme')).map(({ id }) => id)).toEqual(made)
    },
  )

  it('are rotated only once, so that an overlap never becomes the lifetime of a new key', async () => {
    const old = await createKey(admin.store, { consumer: 'acme' })
    const { created, oldEndsAt } = await rotateKey(admin.store, await findKey(admin.store, old.id), HOUR)
    const [listed] = (await listKeys(admin.store)).filter(({ id }) => id === old.id)
    expect(listed).toMatchObject({ replacedBy: created.id, expiresAt: oldEndsAt })
    expect(keyTable([listed!])).toMatch(new RegExp(`\\(in \\d+ min\\), replaced by ${created.id} `))
    const ends = oldEndsAt!.toISOString().slice(0, 19)
    for (const overlap of [HOUR, 0]) {
      const again = rotateKey(admin.store, await findKey(admin.store, old.id), overlap)
      await expect(again).rejects.toMatchObject({
        kind: 'refused',
        message: `Key '${old.id}' is already replaced by '${created.id}' and ends at ${ends}Z. Rotate that one.`,
      })
    }
    expect(await listKeys(admin.store)).toHaveLength(2)
    // A replaced key that is kept after all is no longer marked as replaced.
    await expireKey(admin.store, await findKey(admin.store, old.id), undefined)
    expect((await findKey(admin.store, old.id)).record).not.toHaveProperty('replacedBy')
    const next = await rotateKey(admin.store, await findKey(admin.store, created.id), HOUR)
    expect(next.created).not.toHaveProperty('expiresAt')
  })

  it.each([0, HOUR])(
    'are not rotated without an end of the old one, with an overlap of %i ms',
    async overlap => {
      const old = await createKey(admin.store, { consumer: 'acme' })
      const found = await findKey(admin.store, old.id)
      // Redis then refuses the part of the script that changes the index.
      await send('SET', 'sluice:{c:acme}:digests', 'no index')
      const rotated = await rotateKey(admin.store, found, overlap).catch(error => error)
      const records = (await text('KEYS', 'sluice:{c:acme}:key:*')).split(',')
      const ttl = await ttlOf(`sluice:{c:acme}:key:${found.digest}`)
      if (rotated instanceof Error) expect([records.length, ttl]).toEqual([1, -1])
      else expect(ttl).toBeGreaterThan(0)
    },
  )

  it('are rotated all or nothing, and the new one is not lost with the reply of Redis', async () => {
    const { id } = await createKey(admin.store, { consumer: 'acme' })
    const found = await findKey(admin.store, id)
    // Makes the write, or not, and loses its reply.
    const losing = (isMade: boolean): AdminStore => ({
      ...admin.store,
      async runEach(commands) {
        const isWrite = commands.some(([name]) => name === 'EVAL')
        const replies = isWrite && !isMade ? [] : await admin.store.runEach<never>(commands)
        if (isWrite) throw new AdminError('store', 'The store does not answer.')
        return replies
      },
    })
    const lost = await rotateKey(losing(false), found, HOUR).catch(error => error)
    expect(lost).toMatchObject({
      kind: 'store',
      nextStep: expect.stringContaining(`keys expire ${id} never`),
    })
    expect(await listKeys(admin.store)).toMatchObject([{ id }])
    const { created } = await rotateKey(losing(true), found, HOUR)
    expect((await findKey(admin.store, created.key)).id).toBe(created.id)
    expect((await findKey(admin.store, id)).record).toMatchObject({ replacedBy: created.id })
  })

  describe('of other systems', () => {
    it('are imported by their text or their SHA-256, and listed as opaque keys', async () => {
      const { id } = await importKey(admin.store, { key: OPAQUE }, { consumer: 'acme', plan: 'pro' })
      const digest = sha256(OPAQUE)
      expect(await text('GET', `sluice:{k:${digest}}`)).toBe('acme')
      expect(await listKeys(admin.store)).toMatchObject([{ id, kind: 'opaque-key', hint: OPAQUE.slice(-4) }])
      expect((await findKey(admin.store, OPAQUE)).id).toBe(id)
      const other = sha256('another-key-of-before')
      await importKey(admin.store, { digest: other.toUpperCase() }, { consumer: 'globex' })
      expect(await text('GET', `sluice:{k:${other}}`)).toBe('globex')
      expect(await listKeys(admin.store, 'globex')).toMatchObject([{ kind: 'opaque-key' }])
    })

    it('belong to one consumer only, until they are revoked or have expired', async () => {
      const { id } = await importKey(admin.store, { key: OPAQUE }, { consumer: 'acme' })
      const taken = importKey(admin.store, { key: OPAQUE }, { consumer: 'globex' })
      await expect(taken).rejects.toMatchObject({
        kind: 'refused',
        message: `This key already belongs to consumer 'acme': ${id}.`,
      })
      await revokeKey(admin.store, await findKey(admin.store, id))
      const digest = sha256(OPAQUE)
      expect(await send('EXISTS', `sluice:{k:${digest}}`)).toBe(0)

      await importKey(admin.store, { key: OPAQUE }, { consumer: 'globex', expiresAt: inAnHour() })
      expect(await ttlOf(`sluice:{k:${digest}}`)).toBeGreaterThan(HOUR - 20e3)
      // As if the key had expired, and its pointer were left.
      await send('DEL', `sluice:{c:globex}:key:${digest}`)
      await importKey(admin.store, { key: OPAQUE }, { consumer: 'initech' })
      expect(await text('GET', `sluice:{k:${digest}}`)).toBe('initech')
      expect(await ttlOf(`sluice:{k:${digest}}`)).toBe(-1)
    })

    it('belong to one of two consumers that import them at the same moment; the other import is a conflict', async () => {
      const pointer = `sluice:{k:${sha256(OPAQUE)}}`
      const overtaken = withActor(
        {
          ...admin.store,
          async runEach(commands) {
            if ((await text('GET', pointer)) === 'acme')
              await importKey(admin.store, { key: OPAQUE }, { consumer: 'globex' })
            return await admin.store.runEach(commands)
          },
        },
        { actor: { kind: 'operator', name: 'ops' } },
      )
      await expect(importKey(overtaken, { key: OPAQUE }, { consumer: 'acme' })).rejects.toMatchObject({
        kind: 'conflict',
      })
      expect(await listKeys(admin.store)).toMatchObject([{ consumer: 'globex', kind: 'opaque-key' }])
    })

    it('belong to the first consumer whose record is written, whatever another import has read before', async () => {
      const pointer = `sluice:{k:${sha256(OPAQUE)}}`
      const importFor = (consumer: string, store: AdminStore) =>
        importKey(store, { key: OPAQUE }, { consumer })
      const atRecord = Promise.withResolvers<void>()
      const mayWrite = Promise.withResolvers<void>()
      // The first import has its pointer, but not its record yet.
      const first = importFor('acme', {
        ...admin.store,
        async runEach(commands) {
          if ((await text('GET', pointer)) === 'acme') {
            atRecord.resolve()
            await mayWrite.promise
          }
          return await admin.store.runEach(commands)
        },
      })
      await atRecord.promise
      // So the second one takes the pointer for a stale one. Then the first one ends.
      let isOver = false
      const second = importFor('globex', {
        ...admin.store,
        async runEach(commands) {
          if (!isOver && commands.flat().includes(pointer)) {
            isOver = true
            mayWrite.resolve()
            await first
          }
          return await admin.store.runEach(commands)
        },
      })
      await expect(second).rejects.toMatchObject({ kind: 'conflict' })
      expect(await listKeys(admin.store)).toMatchObject([{ consumer: 'acme', kind: 'opaque-key' }])
      expect(await text('GET', pointer)).toBe('acme')
    })

    it('are not those of this store: the digest of an API key never replaces its plan, its mode and its end', async () => {
      const settings = { plan: 'pro', mode: 'test', expiresAt: inAnHour() } as const
      const { key, ...made } = await createKey(admin.store, { consumer: 'acme', ...settings })
      await expect(
        importKey(admin.store, { digest: sha256(key) }, { consumer: 'acme' }),
      ).rejects.toMatchObject({
        kind: 'refused',
        message: `This key already belongs to consumer 'acme': ${made.id}.`,
      })
      expect(await listKeys(admin.store)).toEqual([made])
    })

    it('have a pointer that expires together with the key', async () => {
      const { id } = await importKey(admin.store, { key: OPAQUE }, { consumer: 'acme' })
      const pointer = `sluice:{k:${sha256(OPAQUE)}}`
      const key = () => findKey(admin.store, id)
      await expireKey(admin.store, await key(), inAnHour())
      expect(await ttlOf(pointer)).toBeGreaterThan(HOUR - 20e3)
      await expireKey(admin.store, await key(), new Date(Date.now() + 2 * HOUR))
      expect(await ttlOf(pointer)).toBeGreaterThan(2 * HOUR - 20e3)
      await expireKey(admin.store, await key(), undefined)
      expect(await ttlOf(pointer)).toBe(-1)
    })

    it.each([
      ['refused', { key: mintApiKey('acme') }],
      ['refused', { key: 'slk_live_whatever_it_may_be' }],
      ['usage', { key: 'too-short' }],
      ['usage', { key: 'with a space in the middle' }],
      ['usage', { key: 'ümlaut-in-the-middle-of-it' }],
      ['usage', { digest: 'abc' }],
      ['usage', { digest: `${'0'.repeat(63)}g` }],
    ])('are rejected with the error %s if they are not valid: %j', async (kind, opaque) => {
      const importing = async () => importKey(admin.store, parseOpaqueKey(opaque), { consumer: 'acme' })
      const error = await importing().catch(error => error)
      expect(error).toMatchObject({ kind })
      expect(error.message).not.toContain(Object.values(opaque)[0])
      expect(Number(await send('DBSIZE'))).toBe(0)
    })
  })

  it('do not appear in messages when the store fails, nor do tokens and commands', async () => {
    const { key, id } = await createKey(admin.store, { consumer: 'acme' })
    await send('SET', 'sluice:{consumers}:names', 'no index')
    const wrongType = await listConsumerNames(admin.store).catch(error => error)
    expect(wrongType).toMatchObject({ kind: 'store', message: expect.stringContaining('WRONGTYPE') })
    admin.proxy.fault = (_, response) => response.end(`no JSON: ${key}`)
    const noJson = await findKey(admin.store, key).catch(error => error)
    admin.proxy.fault = (request, _) => request.destroy()
    const gone = await findKey(admin.store, id).catch(error => error)
    admin.proxy.fault = (_, response) => response.writeHead(401).end('{"error":"WRONGPASS"}')
    const refused = await findKey(admin.store, id).catch(error => error)
    admin.proxy.fault = (_, response) => response.writeHead(404).end('{"message":"no such path"}')
    const otherApi = await findKey(admin.store, id).catch(error => error)
    const closed = createAdminStore({ url: await closedPort(), token: 't' })
    const unreached = await findKey(closed, id).catch(error => error)
    admin.proxy.fault = (_, response) =>
      response.writeHead(500).end('{"error":"ERR Redis cannot be reached"}')
    const redisGone = await findKey(admin.store, id).catch(error => error)
    admin.proxy.fault = (_, response) => response.end('{"status":"fine"}')
    const fine = await findKey(admin.store, id).catch(error => error)
    admin.proxy.fault = undefined
    const other = 'does not answer as an Upstash REST API does\\.'
    for (const [error, message] of [
      [wrongType, 'answered with an error: WRONGTYPE .*'],
      [noJson, other],
      [
        gone,
        'broke the connection before it answered\\. If this was a change, it may have been made: check before you repeat it\\.',
      ],
      [refused, 'answered with an error: WRONGPASS'],
      [otherApi, other],
      [fine, other],
      [redisGone, 'is the bridge, and its Redis does not answer\\.'],
      [unreached, 'cannot be reached\\.'],
    ]) {
      expect(error).toMatchObject({ kind: 'store' })
      expect(error.message).toMatch(new RegExp(`^The store at 127\\.0\\.0\\.1:\\d+ ${message}$`))
      expect(error.message).not.toMatch(/slk_|sluice:|token|command|ZADD|GET/i)
    }
    expect(wrongType.nextStep).toBeUndefined()
    expect(redisGone.nextStep).toMatch(/--redis or REDIS_URL.*redis-cli -u redis:/s)
    expect(refused.nextStep).toMatch(/^Check the token, from --token or UPSTASH_REDIS_REST_TOKEN\./)
    for (const { nextStep } of [noJson, gone, otherApi, fine, unreached])
      expect(nextStep).toMatch(/^Check its URL, from --url or UPSTASH_REDIS_REST_URL\./)
  })
})

it.each([
  [
    'MISCONF Redis is configured to save RDB snapshots, but it is unable to persist to disk. Commands are disabled.',
    /cannot write to its disk/,
  ],
  ["OOM command not allowed when used memory > 'maxmemory'.", /Raise maxmemory/],
])('the suggested next step for a Redis that refuses changes says why: %s', async (text, fix) => {
  const server = createServer(socket =>
    socket.once('data', () => {
      const body = JSON.stringify({ error: text })
      socket.end(`HTTP/1.1 400 Bad Request\r\ncontent-length: ${body.length}\r\n\r\n${body}`)
    }),
  )
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  const store = createAdminStore({
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    token: 't',
  })
  const error = await setPlan(store, 'acme', 'pro').catch(error => error)
  expect([error.message, error.nextStep]).toEqual([
    expect.stringMatching(/ answered with an error: [^.]+\.$/s),
    expect.stringMatching(fix),
  ])
  expect(store.nextStepFor(`The store answered ${text.split(' ')[0]}.`)).toMatch(fix)
})

it('the suggested next step is to start a local store only if the URL is on this machine', () => {
  const nextStepFor = (url: string) => createAdminStore({ url, token: 't' }).nextStepFor('')
  for (const url of ['http://127.0.0.1:8079', 'http://localhost:8079', 'http://[::1]:8079'])
    expect(nextStepFor(url)).toMatch(/To start a local store, run npm start/)
  expect(nextStepFor('https://eu1.upstash.example')).toMatch(/^Check its URL, .*\n {4}curl [^\n]*$/)
})

it('if the store does not answer, the message says that a change may have been made', async () => {
  const server = createServer()
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const store = createAdminStore({ url: `http://127.0.0.1:${port}`, token: 't' })
  const timeout = AbortSignal.timeout.bind(AbortSignal)
  const timeouts = vi.spyOn(AbortSignal, 'timeout').mockImplementation(() => timeout(1))
  const error = await createKey(store, { consumer: 'acme' }).catch(error => error)
  server.close()
  // The deadline that the message names, which the test does not wait for.
  expect(timeouts.mock.calls).toEqual([[5000]])
  expect(error).toMatchObject({
    kind: 'store',
    message: `The store at 127.0.0.1:${port} did not answer within 5 s. If this was a change, it may have been made: check before you repeat it.`,
  })
})
