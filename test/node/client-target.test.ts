/** The address of an app's own client, for each library and version whose clients are taken. None of these clients connects. */
import Redis5, { Cluster as Cluster5 } from 'ioredis'
import Redis6, { Cluster as Cluster6 } from 'ioredis-6'
import { createClient, createCluster } from 'redis'
import { createClient as createClient5, createCluster as createCluster5 } from 'redis-5'
import { describe, expect, it } from 'vitest'
import { targetOfClient } from '../../src/node/redis-store/client-target.ts'

const lazyConnect = true
const PASSWORD = 'p@ss:w/rd%'
const AUTHORITY = `app:${encodeURIComponent(PASSWORD)}@`
const credentials = { username: 'app', password: PASSWORD }
const ca = 'a certificate'

const urlsOf = (client: object) => targetOfClient(client).urls
const refusalOf = (client: object) => {
  try {
    return targetOfClient(client)
  } catch (error) {
    return (error as Error).message
  }
}

describe.each([
  ['5', Redis5, Cluster5],
  ['6', Redis6, Cluster6],
] as const)('a client of ioredis %s', (_, RedisOfVersion, ClusterOfVersion) => {
  const Redis = RedisOfVersion as typeof Redis6
  const Cluster = ClusterOfVersion as typeof Cluster6

  it('has its address, user, password and database', () => {
    expect(urlsOf(new Redis({ lazyConnect }))).toEqual(['redis://localhost:6379'])
    const parts = { host: '10.0.0.5', port: 6390, ...credentials, db: 3 }
    expect(urlsOf(new Redis({ ...parts, lazyConnect }))).toEqual([`redis://${AUTHORITY}10.0.0.5:6390/3`])
    expect(urlsOf(new Redis(`redis://${AUTHORITY}[::1]:6390/3`, { lazyConnect }))).toEqual([
      `redis://${AUTHORITY}[::1]:6390/3`,
    ])
    expect(urlsOf(new Redis({ path: '/run/redis.sock', password: 'a b', db: 2, lazyConnect }))).toEqual([
      'unix:///run/redis.sock?password=a+b&db=2',
    ])
  })

  it('has its TLS settings', () => {
    const { urls, tls } = targetOfClient(new Redis('rediss://a.example', { tls: { ca }, lazyConnect }))
    expect([urls, tls]).toEqual([['rediss://a.example:6379'], { ca }])
  })

  it('of a cluster has each of its nodes', () => {
    const nodes = [`redis://a.example:7000`, { host: 'b.example', port: 7001 }, 7002]
    const cluster = new Cluster(nodes, { redisOptions: { ...credentials, tls: { ca } }, lazyConnect })
    expect(targetOfClient(cluster)).toEqual({
      kind: 'cluster',
      urls: ['a.example:7000', 'b.example:7001', '127.0.0.1:7002'].map(host =>
        host.startsWith('a') ? `redis://${AUTHORITY}${host}` : `rediss://${AUTHORITY}${host}`,
      ),
      tls: { ca },
    })
  })

  it('with Sentinels has the Sentinels, and how to reach the master', () => {
    const client = new Redis({
      sentinels: [{ host: 'a.example', port: 26380 }, { host: 'b.example' }],
      name: 'mymaster',
      sentinelPassword: 'of Sentinels',
      ...credentials,
      db: 2,
      lazyConnect,
    })
    const target = targetOfClient(client)
    expect(target).toMatchObject({
      kind: 'sentinel',
      master: 'mymaster',
      urls: ['redis://:of%20Sentinels@a.example:26380', 'redis://:of%20Sentinels@b.example:26379'],
    })
    expect(target.kind === 'sentinel' && target.urlOf('::1', '6379')).toBe(`redis://${AUTHORITY}[::1]:6379/2`)
  })

  it('is refused with what a connection of Sluice lacks', () => {
    expect(refusalOf(new Redis({ keyPrefix: 'app:', lazyConnect }))).toMatch(/keyPrefix.*environment/s)
    expect(refusalOf(new Cluster([7000], { keyPrefix: 'app:', lazyConnect }))).toMatch(/keyPrefix/)
    const natMap = { '10.0.0.1:7000': { host: 'a.example', port: 7000 } }
    expect(refusalOf(new Cluster([7000], { natMap, lazyConnect }))).toMatch(/natMap/)
    const sentinels = [{ host: 'a.example' }]
    expect(refusalOf(new Redis({ sentinels, name: 'm', role: 'slave', lazyConnect }))).toMatch(/slave/)
  })
})

describe.each([
  ['5', createClient5, createCluster5],
  ['6', createClient, createCluster],
] as const)('a client of redis %s', (_, create, createOfCluster) => {
  const clientOf = create as typeof createClient
  const clusterOf = createOfCluster as typeof createCluster

  it('has its address, user, password and database', () => {
    expect(urlsOf(clientOf())).toEqual(['redis://127.0.0.1:6379'])
    expect(urlsOf(clientOf({ url: `redis://${AUTHORITY}a.example:6390/3` }))).toEqual([
      `redis://${AUTHORITY}a.example:6390/3`,
    ])
    const parts = { socket: { host: '::1', port: 6390 }, ...credentials, database: 3 }
    expect(urlsOf(clientOf(parts))).toEqual([`redis://${AUTHORITY}[::1]:6390/3`])
    expect(urlsOf(clientOf({ socket: { path: '/run/redis.sock', tls: false }, database: 2 }))).toEqual([
      'unix:///run/redis.sock?db=2',
    ])
  })

  it('has its TLS settings', () => {
    const { urls, tls } = targetOfClient(clientOf({ url: 'rediss://a.example', socket: { tls: true, ca } }))
    expect([urls, tls]).toEqual([['rediss://a.example:6379'], { ca }])
  })

  it('of a cluster has each of its nodes', () => {
    const rootNodes = [{ url: 'rediss://a.example:7000' }, { socket: { host: 'b.example', port: 7001 } }]
    const cluster = clusterOf({ rootNodes, defaults: { ...credentials, socket: { tls: true, ca } } })
    expect(targetOfClient(cluster)).toEqual({
      kind: 'cluster',
      urls: [`rediss://${AUTHORITY}a.example:7000`, `rediss://${AUTHORITY}b.example:7001`],
      tls: { ca },
    })
  })

  it('is refused with what a connection of Sluice lacks', () => {
    const credentialsProvider = {
      type: 'async-credentials-provider',
      credentials: async () => ({ password: 'for an hour' }),
    } as const
    expect(refusalOf(clientOf({ credentialsProvider }))).toMatch(/credentialsProvider.*password/s)
    const nodeAddressMap = { '10.0.0.1:7000': { host: 'a.example', port: 7000 } }
    expect(refusalOf(clusterOf({ rootNodes: [], nodeAddressMap }))).toMatch(/nodeAddressMap.*announces/s)
  })
})

it('an object that is no client of these libraries is refused', () => {
  expect(refusalOf({ duplicate: () => ({}) })).toMatch(/redis.*URL/s)
})
