/** Lists in pages: their cost does not depend on how many keys, consumers or tokens there are. */
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { readConsumer, readConsumers, setPlan, showConsumer } from '../../src/ops/consumers.ts'
import { findKeyById } from '../../src/ops/find-key.ts'
import { namesNear, readKeyPage, readNamePage } from '../../src/ops/key-pages.ts'
import { type KeyInfo, listKeys } from '../../src/ops/keys.ts'
import type { Page, Position } from '../../src/ops/sorted-index.ts'
import { findTokenById, readTokenPage } from '../../src/ops/tokens.ts'
import { sha256 } from '../../src/sha256.ts'
import { startAdmin, type TestAdmin } from '../support/admin.ts'
import { describeOnRedis, type TestRedis } from '../support/redis.ts'

const CREATED = new Date(0).toISOString()

describeOnRedis('pages', start => {
  let admin: TestAdmin<TestRedis>
  beforeAll(async () => {
    admin = await startAdmin(await start())
  })
  afterAll(() => admin?.close())
  beforeEach(() => send('FLUSHALL'))

  const send = (...command: string[]) => admin.redis.connection.send(command)
  const digestsOf = (count: number, of: string) =>
    Array.from({ length: count }, (_, i) => sha256(`${of} ${i}`)).sort()

  const listing = (index: string, members: readonly string[]) =>
    send('ZADD', index, ...members.flatMap(member => ['0', member]))

  async function plant(consumer: string, digests: readonly string[]): Promise<void> {
    await listing('sluice:{consumers}:names', [consumer])
    for (let from = 0; from < digests.length; from += 1000) {
      const some = digests.slice(from, from + 1000)
      await listing(`sluice:{c:${consumer}}:digests`, some)
      const records = some.flatMap(each => [`sluice:{c:${consumer}}:key:${each}`, `plan= created=${CREATED}`])
      await send('MSET', ...records)
    }
  }

  async function plantTokens(digests: readonly string[]): Promise<void> {
    await listing('sluice:{tokens}:digests', digests)
    const records = digests.flatMap(each => [
      `sluice:{t:${each}}`,
      `name=a scopes=stats:read created=${CREATED}`,
    ])
    await send('MSET', ...records)
  }

  async function allOf<T>(read: (after: Position | undefined) => Promise<Page<T>>): Promise<T[]> {
    const items: T[] = []
    let after: Position | undefined
    do {
      const page = await read(after)
      items.push(...page.items)
      after = page.next
    } while (after)
    return items
  }

  async function requestsOf<T>(call: Promise<T>): Promise<[T, number]> {
    admin.proxy.count()
    const result = await call
    return [result, admin.proxy.count()]
  }

  const idsOf = (keys: readonly KeyInfo[]) => keys.map(({ id }) => id)

  it('of one consumer have few requests', async () => {
    const digests = digestsOf(1500, 'acme')
    await plant('acme', digests)
    const [first, requests] = await requestsOf(readKeyPage(admin.store, 'acme', { limit: 50 }))
    expect(requests).toBe(2)
    expect(idsOf(first.items)).toEqual(digests.slice(0, 50).map(each => `acme/${each.slice(0, 12)}`))
    const all = await allOf(after => readKeyPage(admin.store, 'acme', { after, limit: 1000 }))
    expect(idsOf(all)).toEqual(digests.map(each => `acme/${each.slice(0, 12)}`))
  })

  it('of all consumers have few requests', async () => {
    for (const consumer of ['acme', 'beta']) await plant(consumer, digestsOf(300, consumer))
    const others = Array.from({ length: 250 }, (_, i) => `b${i}`)
    await listing('sluice:{consumers}:names', others)
    const [page, requests] = await requestsOf(readKeyPage(admin.store, undefined, { limit: 50 }))
    expect([page.items.length, requests]).toEqual([50, 3])
    const all = await allOf(after => readKeyPage(admin.store, undefined, { after, limit: 70 }))
    expect(idsOf(all)).toEqual(idsOf(await listKeys(admin.store)).sort())
  })

  it('are short or empty if much has expired, and the next reader does not find it again', async () => {
    const digests = digestsOf(1500, 'acme')
    await plant('acme', digests)
    await send('DEL', ...digests.slice(0, 1400).map(each => `sluice:{c:acme}:key:${each}`))
    const [first, requests] = await requestsOf(readKeyPage(admin.store, 'acme', { limit: 50 }))
    expect(first.items).toEqual([])
    expect(requests).toBeLessThanOrEqual(12)
    const rest = await allOf(after => readKeyPage(admin.store, 'acme', { after, limit: 50 }))
    expect(idsOf(rest)).toEqual(digests.slice(1400).map(each => `acme/${each.slice(0, 12)}`))
    expect(await send('ZCARD', 'sluice:{c:acme}:digests')).toBe(100)
  })

  it('have ids that differ, also where two pages meet', async () => {
    const alike = ['0', '1', '2'].map(digit => `feed00000000${digit}`.padEnd(64, '0'))
    await plant('acme', [...alike, ...digestsOf(3, 'acme')])
    const ids = idsOf(await allOf(after => readKeyPage(admin.store, 'acme', { after, limit: 1 })))
    expect(ids).toHaveLength(6)
    expect(ids).toEqual(expect.arrayContaining(alike.map(each => `acme/${each.slice(0, 16)}`)))
  })

  it('skip no key and no token whose id begins like the last one of a page, behind one that has expired', async () => {
    const expired = '0'.repeat(64)
    const alike = ['0', '1'].map(digit => `feed00000000${digit}`.padEnd(64, '0'))
    await plant('acme', [expired, ...alike])
    await plantTokens([expired, ...alike])
    await send('DEL', `sluice:{c:acme}:key:${expired}`, `sluice:{t:${expired}}`)
    const ids = alike.map(each => each.slice(0, 16))
    const keys = await allOf(after => readKeyPage(admin.store, 'acme', { after, limit: 1 }))
    expect(idsOf(keys)).toEqual(ids.map(id => `acme/${id}`))
    const tokens = await allOf(after => readTokenPage(admin.store, { after, limit: 1 }))
    expect(tokens.map(({ id }) => id)).toEqual(ids)
  })

  it('of tokens and of consumers have few requests', async () => {
    const digests = digestsOf(500, 'tokens')
    await plantTokens(digests)
    const [tokens, requests] = await requestsOf(readTokenPage(admin.store, { limit: 50 }))
    expect([tokens.items.map(({ id }) => id), requests]).toEqual([
      digests.slice(0, 50).map(each => each.slice(0, 12)),
      2,
    ])
    expect(await allOf(after => readTokenPage(admin.store, { after, limit: 90 }))).toHaveLength(500)
    const names = Array.from({ length: 250 }, (_, i) => `c${i}`).sort()
    await listing('sluice:{consumers}:names', names)
    expect(await allOf(after => readNamePage(admin.store, { after, limit: 7 }))).toEqual(names)
    const [, ofNames] = await requestsOf(readNamePage(admin.store, { limit: 50 }))
    expect(ofNames).toBe(1)
  })

  it('cost as much as finding one key or token, however many there are', async () => {
    const costs: unknown[] = []
    for (const count of [30, 3000]) {
      const [keys, tokens] = [digestsOf(count, `${count}`), digestsOf(count, `t${count}`)]
      await plant(`c${count}`, keys)
      await plantTokens(tokens)
      const [key, ofKey] = await requestsOf(findKeyById(admin.store, `c${count}`, keys[20]!.slice(0, 12)))
      const [token, ofToken] = await requestsOf(findTokenById(admin.store, tokens[20]!.slice(0, 12)))
      expect([key.digest, token.digest]).toEqual([keys[20], tokens[20]])
      const missing = await findKeyById(admin.store, `c${count}`, 'zz').catch(error => error)
      expect(missing.message).toMatch(/^There is no key 'c\d+\/zz' /)
      costs.push([ofKey, ofToken])
    }
    expect(costs).toEqual([
      [2, 2],
      [2, 2],
    ])
  })

  it('is not read for a message about an unknown consumer: a few names are, among them those that are alike', async () => {
    const costs: number[] = []
    for (const count of [100, 3000]) {
      const names = Array.from({ length: count }, (_, i) => `a${String(i).padStart(5, '0')}`)
      await listing('sluice:{consumers}:names', [...names, 'umbrella', 'zebra'])
      const [error, ofShow] = await requestsOf(readConsumer(admin.store, 'umbrela', 100).catch(each => each))
      expect(error.message).toMatch(
        /no consumer 'umbrela'\. Did you mean 'umbrella'\? Consumers: a00000, (\S+, ){9}…\.$/,
      )
      expect((await namesNear(admin.store, 'zebra')).length).toBeLessThan(300)
      const [change, ofChange] = await requestsOf(setPlan(admin.store, `zebras-${count}`, 'pro'))
      expect(change.isNew).toBe(true)
      expect((await showConsumer(admin.store, 'zebra')).keys).toEqual([])
      costs.push(ofShow, ofChange)
    }
    expect(costs).toEqual([3, 4, 3, 4])
  })

  it('of consumers have the first keys of each', async () => {
    await plant('acme', digestsOf(300, 'acme'))
    await plant('beta', digestsOf(5, 'beta'))
    const [found, requests] = await requestsOf(readConsumers(admin.store, ['acme', 'beta', 'none'], 100))
    expect(found.map(({ keys, hasMoreKeys }) => [keys.length, hasMoreKeys])).toEqual([
      [100, true],
      [5, undefined],
      [0, undefined],
    ])
    expect(requests).toBe(3)
    expect((await readConsumer(admin.store, 'acme', 100)).hasMoreKeys).toBe(true)
    expect((await showConsumer(admin.store, 'acme')).keys).toHaveLength(300)
  })
})
