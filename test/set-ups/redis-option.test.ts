/** The set-ups that run the user's code on the Redis that the app has: `redis: client`, `redis: 'redis://…'`, REDIS_URL. */
import { Redis as UpstashRedis } from '@upstash/redis'
import { Cluster, Redis } from 'ioredis'
import { Cluster as Cluster6, Redis as Redis6 } from 'ioredis-6'
import { createClient, createCluster, createSentinel } from 'redis'
import {
  createClient as createClient5,
  createCluster as createCluster5,
  createSentinel as createSentinel5,
} from 'redis-5'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { expressGuard } from '../../src/node/express.ts'
import { targetOfClient } from '../../src/node/redis-store/client-target.ts'
import { createAdmin } from '../../src/ops/admin/index.ts'
import { guard } from '../../src/set-ups/guard/guard.ts'
import { createLimiter } from '../../src/set-ups/limits/create-limiter.ts'
import type { RedisClientLike, RedisOption } from '../../src/set-ups/redis-option.ts'
import { describeOnRedis, type TestRedis } from '../support/redis.ts'

const PER_MINUTE = { algorithm: 'fixed-window', period: '300d' } as const
const CONFIG: ConfigInput = {
  store: { deadline: '20s' },
  log: { perSecond: 0 },
  address: { from: 'peer' },
  credentials: { accept: ['anonymous'] },
  rules: [{ name: 'window', by: 'address', limit: 2, ...PER_MINUTE }],
  limits: { job: [{ name: 'window', by: ['account'], limit: 2, ...PER_MINUTE }] },
}
const SENTINELS = { name: 'mymaster', sentinelRootNodes: [{ host: '127.0.0.1', port: 26379 }] }
/** What this suite uses of a client of node-redis. */
interface Connecting {
  on(event: 'error', listener: () => void): unknown
  connect(): Promise<unknown>
  close(): Promise<unknown>
}
/** Without the variables of a store. */
const env = {}

describeOnRedis("the app's own Redis", (start, kind) => {
  let redis: TestRedis
  beforeAll(async () => {
    redis = await start()
  })
  afterAll(() => redis?.close())

  const clients: [name: string, open: () => [RedisOption, close: () => unknown]][] = [
    ['the URL', () => [redis.url, () => {}]],
    [
      'a client of ioredis',
      () => {
        const client = new Redis(redis.url, { lazyConnect: true })
        return [client, () => client.disconnect()]
      },
    ],
    [
      'a client of ioredis 6',
      () => {
        const client = new Redis6(redis.url, { lazyConnect: true })
        return [client, () => client.disconnect()]
      },
    ],
    ['a client of redis', () => [createClient({ url: redis.url }), () => {}]],
    [
      'a client of redis 5',
      () => [createClient5({ socket: { path: new URL(redis.url).pathname, tls: false } }), () => {}],
    ],
  ]

  it.each(clients)(
    '%s: a limiter decides exactly, and its limit is seen by administration',
    async (_, open) => {
      const [given, close] = open()
      const config = { ...CONFIG, environment: `e${Math.floor(Math.random() * 1e9)}` }
      const limiter = createLimiter(config, { env, redis: given })
      const admin = createAdmin(config, { env, redis: given })
      const decided = await Promise.all([1, 2, 3].map(() => limiter.limit('job', { account: '1' })))
      expect(decided.map(({ allowed }) => allowed)).toEqual([true, true, false])
      expect(decided.some(({ degraded }) => degraded)).toBe(false)
      const [peeked] = (await admin.limits.peek('job', { account: '1' })).rules
      expect(peeked).toMatchObject({ rule: 'window', remaining: 0 })
      await admin.close()
      await limiter.close()
      // Closed once, the connection is opened again.
      expect((await limiter.limit('job', { account: '1' })).allowed).toBe(false)
      await limiter.close()
      // It has never connected, because only its address is used.
      const { status, isOpen } = given as { status?: string; isOpen?: boolean }
      expect(typeof given === 'string' || status === 'wait' || isOpen === false).toBe(true)
      close()
    },
  )

  it('a client that was handed over stays open, and sees the keys in the database that it has chosen', async () => {
    // The embedded Redis has one database.
    const client = new Redis(redis.url, { db: kind === 'embedded' ? 0 : 3 })
    const limiter = createLimiter({ ...CONFIG, environment: 'mine' }, { env, redis: client })
    await limiter.limit('job', { account: '1' })
    await limiter.close()
    expect(await client.ping()).toBe('PONG')
    expect((await client.keys('*')).some(name => name.includes('mine'))).toBe(true)
    client.disconnect()
  })

  type Owned = [client: RedisOption, close: () => Promise<unknown>]
  async function ofIoredis(client: Redis | Redis6): Promise<Owned> {
    await client.ping()
    return [client, () => client.quit()]
  }
  async function ofNodeRedis(client: RedisClientLike & Connecting): Promise<Owned> {
    client.on('error', () => {})
    await client.connect()
    return [client, () => client.close()]
  }
  const options = () =>
    redis.url.startsWith('unix:')
      ? { socket: { path: new URL(redis.url).pathname, tls: false as const } }
      : { url: redis.url }
  const owned: [name: string, open: () => Promise<Owned>][] = [
    ['ioredis 5', () => ofIoredis(new Redis(redis.url))],
    ['ioredis 6', () => ofIoredis(new Redis6(redis.url))],
    ['redis 5', () => ofNodeRedis(createClient5(options()))],
    ['redis 6', () => ofNodeRedis(createClient(options()))],
  ]

  it.each(owned)(
    'a limiter goes on when the owner closes its client of %s, which is of use still',
    async (name, open) => {
      const [client, close] = await open()
      const config = { ...CONFIG, environment: `quit${name.replace(' ', '')}` }
      const limiter = createLimiter(config, { env, redis: client })
      expect((await limiter.limit('job', { account: '1' })).allowed).toBe(true)
      await close()
      const after = await limiter.limit('job', { account: '1' })
      expect([after.allowed, after.degraded]).toEqual([true, undefined])
      const second = createLimiter(config, { env, redis: client })
      const last = await second.limit('job', { account: '1' })
      expect([last.allowed, last.degraded]).toEqual([false, undefined])
      await Promise.all([limiter.close(), second.close()])
    },
  )

  it('a client with a keyPrefix is taken if the environment has its name', async () => {
    const client = new Redis(redis.url, { keyPrefix: 'Shop:', lazyConnect: true })
    expect(() => createLimiter(CONFIG, { env, redis: client })).toThrow(
      /redis: .*keyPrefix 'Shop:'.*environment: 'shop'/,
    )
    const limiter = createLimiter({ ...CONFIG, environment: 'shop' }, { env, redis: client })
    await limiter.limit('job', { account: '1' })
    await limiter.close()
    expect(await redis.connection.send(['KEYS', 'sluice:shop:*'])).not.toEqual([])
  })

  it('guards of all kinds use the variable REDIS_URL', async () => {
    const variables = { REDIS_URL: redis.url, SLUICE_ENVIRONMENT: 'guards' }
    const guarded = guard(CONFIG, { env: variables, address: () => '192.0.2.1' })(
      (_: Request) => new Response('hello'),
    )
    const statuses = []
    for (let i = 0; i < 3; i++) statuses.push((await guarded(new Request('http://a.test/'))).status)
    expect(statuses).toEqual([200, 200, 429])
    await guarded.close()
  })
})

it('the types take the clients of both newest versions of each library without casts', () => {
  const lazyConnect = true
  const given: RedisOption[] = [
    createClient(),
    createClient({ RESP: 3 }),
    createClient5(),
    new Redis({ lazyConnect }),
    new Redis6({ lazyConnect }),
  ]
  const clusters: RedisOption[] = [
    createCluster({ rootNodes: [{ url: 'redis://127.0.0.1:7000' }] }),
    createCluster5({ rootNodes: [{ url: 'redis://127.0.0.1:7000' }] }),
    new Cluster([7000], { lazyConnect }),
    new Cluster6([7000], { lazyConnect }),
  ]
  const kindOf = (client: RedisOption) => targetOfClient(client).kind
  expect(given.map(kindOf)).toEqual(given.map(() => 'server'))
  expect(clusters.map(kindOf)).toEqual(clusters.map(() => 'cluster'))
})

describe('an option `redis` that names no store', () => {
  it.each([
    ['https://a.upstash.io', /redis: is the URL of a REST API/],
    ['redis//localhost', /redis: The URL of the store is not valid/],
    [{ get: () => 1 }, /redis: is neither the URL of a Redis nor a client/],
    [null, /redis: is neither the URL of a Redis nor a client/],
    [new Redis({ keyPrefix: 'app:', lazyConnect: true }), /redis: .*keyPrefix/],
    [new Cluster([7000], { lazyConnect: true }), /redis: .*store: { cluster: true }/],
    ['redis+cluster://127.0.0.1:7000', /redis: .*store: { cluster: true }/],
    [createSentinel(SENTINELS), /redis: .*createSentinel.*redis\+sentinel:\/\//],
    [createSentinel5(SENTINELS), /redis: .*createSentinel.*redis\+sentinel:\/\//],
  ])('%o is an error when the set-up is created', (redis, message) => {
    const given = { env, redis: redis as RedisOption }
    expect(() => createLimiter(CONFIG, given)).toThrow(message)
    expect(() => guard(CONFIG, given)).toThrow(message)
    expect(() => expressGuard(CONFIG, given)).toThrow(message)
    expect(() => createAdmin(CONFIG, given)).toThrow(message)
  })
})

it('a client of @upstash/redis contributes its URL and its token', async () => {
  const client = new UpstashRedis({ url: 'https://a.upstash.io', token: 'secret' })
  const fetch = vi.spyOn(globalThis, 'fetch').mockRejectedValue(new Error('offline'))
  try {
    const limiter = createLimiter(CONFIG, { env, redis: client })
    expect((await limiter.limit('job', { account: '1' })).degraded).toBe('store-unreachable')
    expect(
      fetch.mock.calls.map(([url, init]) => [url, new Headers(init?.headers).get('authorization')]),
    ).toEqual([['https://a.upstash.io/pipeline', 'Bearer secret']])
    await limiter.close()
  } finally {
    fetch.mockRestore()
  }
})
