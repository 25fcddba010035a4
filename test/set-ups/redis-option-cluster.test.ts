/** Limits by name on the Redis Cluster that the app has a client of: of ioredis and of node-redis, in both newest versions. */
import { Cluster } from 'ioredis'
import { Cluster as Cluster6 } from 'ioredis-6'
import { createCluster } from 'redis'
import { createCluster as createCluster5 } from 'redis-5'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { createAdmin } from '../../src/ops/admin/index.ts'
import { createLimiter } from '../../src/set-ups/limits/create-limiter.ts'
import type { RedisOption } from '../../src/set-ups/redis-option.ts'
import { describeOnCluster, type TestCluster } from '../support/cluster.ts'

const CONFIG: ConfigInput = {
  store: { cluster: true, deadline: '20s' },
  limits: { job: [{ name: 'window', by: ['account'], limit: 2, algorithm: 'fixed-window', period: '300d' }] },
}
const ACCOUNTS = ['1', '2', '3', '4', '5', '6', '7', '8']

describeOnCluster("the app's own client", start => {
  let cluster: TestCluster
  beforeAll(async () => {
    cluster = await start()
  })
  afterAll(() => cluster?.close())

  const clients: [name: string, create: (url: string) => RedisOption][] = [
    ['ioredis 5', url => new Cluster([url], { lazyConnect: true })],
    ['ioredis 6', url => new Cluster6([url], { lazyConnect: true })],
    ['redis 5', url => createCluster5({ rootNodes: [{ url }] })],
    ['redis 6', url => createCluster({ rootNodes: [{ url }] })],
  ]

  it.each(clients)('of %s: each limit is exact on the node of its slot', async (name, create) => {
    const config = { ...CONFIG, environment: name.replace(' ', '') }
    const redis = create(cluster.nodes[0]!.url)
    const limiter = createLimiter(config, { env: {}, redis })
    const admin = createAdmin(config, { env: {}, redis })
    for (const account of ACCOUNTS) {
      const decided = await Promise.all([1, 2, 3].map(() => limiter.limit('job', { account })))
      expect(decided.map(({ allowed, degraded }) => [allowed, degraded])).toEqual([
        [true, undefined],
        [true, undefined],
        [false, undefined],
      ])
      expect((await admin.limits.peek('job', { account })).rules[0]).toMatchObject({ remaining: 0 })
    }
    await Promise.all([limiter.close(), admin.close()])
  })
})
