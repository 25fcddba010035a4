/** What only the store over a direct connection has: its URLs, its connection, and commands that wait in the process. */
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { GatewayError } from '../../src/errors.ts'
import { createLightController } from '../../src/node/redis-store/light-controller.ts'
import {
  connectRedisStore,
  type RedisStore,
  type RedisStoreOptions,
} from '../../src/node/redis-store/redis-store.ts'
import { parseRedisUrl } from '../../src/node/redis-store/redis-url.ts'
import { sendCommands } from '../../src/node/redis-store/send-commands.ts'
import type { FoundRedis } from '../../src/node/rest-bridge/found-redis.ts'
import { ErrorReply } from '../../src/node/rest-bridge/redis-server.ts'
import { createScript } from '../../src/script/create-script.ts'
import type { ScriptCall } from '../../src/store/store.ts'
import { storeOn } from '../../src/store/store-on.ts'
import { createDeadlineClock } from '../support/deadline-clock.ts'
import { startTcpProxy } from '../support/fault-proxy.ts'
import { PATIENT, PATIENT_MS } from '../support/patience.ts'
import { type RedisProcess, startRedisProcess } from '../support/redis-process.ts'
import { hasRedisServer } from '../support/servers.ts'

const NOTE = createScript("return redis.call('RPUSH', KEYS[1], ARGV[1])")
const note = (name: string, padding = ''): ScriptCall => ({
  ...{ script: NOTE, keys: ['notes'], args: [name, padding] },
})

describe('the URL of a store', () => {
  it.each([
    ['redis://a', { kind: 'server', urls: ['redis://a'] }],
    ['rediss://u:p@[::1]:1/2', { kind: 'server', urls: ['rediss://u:p@[::1]:1/2'] }],
    ['unix:///run/redis.sock?db=2', { kind: 'server', urls: ['unix:///run/redis.sock?db=2'] }],
    ['redis+cluster://a', { kind: 'cluster', urls: ['redis://a'] }],
    [
      'rediss+cluster://u:p%40@a:1,[::1]:2/',
      { kind: 'cluster', urls: ['rediss://u:p%40@a:1', 'rediss://u:p%40@[::1]:2'] },
    ],
  ])('%s', (url, target) => {
    expect(parseRedisUrl(url)).toEqual(target)
  })

  it('of Sentinels has a user and a password for Redis, and others for them', () => {
    const url = 'rediss+sentinel://u:p@a,[::1],b:1/my%20master/3?sentinelPassword=s%2Fs&sentinelUsername=n'
    const target = parseRedisUrl(url)
    if (target.kind !== 'sentinel') throw new Error(target.kind)
    expect(target.master).toBe('my master')
    expect(target.urls).toEqual([
      ...['rediss://n:s%2Fs@a:26379', 'rediss://n:s%2Fs@[::1]:26379', 'rediss://n:s%2Fs@b:1'],
    ])
    expect(target.urlOf('::2', '7')).toBe('rediss://u:p@[::2]:7/3')
    expect(target.urlOf('c', '7')).toBe('rediss://u:p@c:7/3')
  })

  it.each([
    ...['redis://:secret%@a', 'redis://u:secret#1@a:6379/2', 'rediss://:secret/1@a', 'redis://:secret?@a'],
    ...['redis+cluster://:secret%zz@a', 'redis+sentinel://:secret%@a/m', 'redis+sentinel://:secret#@a/m'],
  ])('names percent-encoding for a password that needs it: %s', async url => {
    const failure = await connectRedisStore({ url }).catch(error => error)
    expect(failure.message).toBe(
      'The URL of the store is not valid. The user and the password must be percent-encoded: write %25 for %, %23 for #, %2F for / and %3F for ?.',
    )
  })

  it.each([
    'unix:///run/redis.sock?password=a%25@b',
    'redis+sentinel://a/m?sentinelPassword=p@',
    'redis://u:p@b%25@a',
  ])('can have an @ in a password: %s', url => {
    expect(() => parseRedisUrl(url)).not.toThrow()
  })

  it.each([
    'http://secret.example',
    'secret',
    'redis://',
    'unix://secret/path',
    'unix:///',
    'redis://secret/x',
    'unix:///secret?db=x',
    'redis+sentinel://secret/master/x',
    'redis+cluster://',
    'redis+cluster://secret:1/name',
    'redis+cluster://a,,secret',
    'redis+sentinel://secret:1',
    'redis+sentinel://secret:1/',
    'redis+sentinel://secret:x/m',
    'redis+other://secret',
  ])('is refused without being quoted: %s', async url => {
    const failure = await connectRedisStore({ url }).catch(error => error)
    expect(failure.code).toBe('ERR_CONFIG_INVALID')
    expect(failure.message).not.toContain('secret')
  })
})

it('a script that Redis lacks is not sent with its source after the deadline', async () => {
  const sent: string[] = []
  const dispatch: FoundRedis['dispatch'] = ([name], departure) => {
    sent.push(name!)
    departure.begin({ isReady: true })
    departure.removeEventListener()
    // The second reply does not come, so the trip lasts until the deadline.
    return name === 'EVALSHA' ? Promise.reject(new ErrorReply('NOSCRIPT')) : new Promise(() => {})
  }
  const clock = createDeadlineClock()
  const store = storeOn({
    ...{ deadlineMs: 1000, clock: { ...clock, createController: createLightController } },
    send: (commands, deadline) => sendCommands({ dispatch } as FoundRedis, commands, deadline),
    refusal: message => new GatewayError('ERR_STORE_REFUSED', message),
    textOf: ({ script }) => script.plain,
  })
  const replies = store.run([note('late'), { command: 'GET', key: 'none' }])
  await new Promise(setImmediate)
  clock.pass(1000)
  await new Promise(setImmediate)
  expect(sent).toEqual(['EVALSHA', 'GET'])
  expect(await replies).toMatchObject([
    { code: 'ERR_STORE_TIMEOUT', fate: 'not-sent' },
    { code: 'ERR_STORE_TIMEOUT', fate: 'may-have-run' },
  ])
})

const title = hasRedisServer ? '' : ' (no redis-server is installed)'

describe.skipIf(title)(`a store over a direct connection${title}`, () => {
  let redis: RedisProcess
  const opened: RedisStore[] = []
  beforeAll(async () => {
    redis = await startRedisProcess({ unixsocket: 's' })
  })
  afterEach(async () => {
    await Promise.all(opened.splice(0).map(each => each.close()))
    await redis.send('DEL', 'notes')
  })
  afterAll(() => redis?.close())

  async function open(options: Partial<RedisStoreOptions> = {}): Promise<RedisStore> {
    const store = await connectRedisStore({ url: redis.url, deadlineMs: PATIENT_MS, ...options })
    opened.push(store)
    return store
  }
  const notes = async () => ((await redis.send('LRANGE', 'notes', '0', '-1')) as Buffer[]).map(String)
  const failureOf = (work: Promise<unknown>) =>
    work.then(
      () => undefined,
      ({ code, message, fate }) => ({ code, message, fate }),
    )

  it('sends all calls of a trip in one write', async () => {
    const chunks: Buffer[] = []
    const proxy = await startTcpProxy({ host: redis.host, port: redis.port }, bytes => {
      if (bytes.length > 0) chunks.push(bytes)
      return bytes.length
    })
    const { store } = await open({ url: `redis://127.0.0.1:${proxy.port}` })
    await store.run([note('warm')])
    chunks.length = 0
    const names = Array.from({ length: 50 }, (_, i) => String(i))
    await store.run([...names.map(name => note(name)), { command: 'GET', key: 'none' }])
    expect(chunks).toHaveLength(1)
    await proxy.close()
  })

  it('calls off commands that have not left at the deadline: they never run', async () => {
    const proxy = await startTcpProxy({ host: redis.host, port: redis.port })
    const clock = createDeadlineClock()
    const { store } = await open({ url: `redis://127.0.0.1:${proxy.port}`, deadlineMs: 1000, clock })
    await store.run([note('warm')])
    proxy.freeze()
    // The sockets on the way take a few megabytes at most.
    const calls = Array.from({ length: 40 }, (_, i) => note(`large-${i}`, 'x'.repeat(1e6)))
    const large = Promise.allSettled(calls.map(call => store.run([call])))
    await new Promise(resolve => setTimeout(resolve, 50))
    const late = failureOf(store.run([note('late')]))
    await new Promise(resolve => setTimeout(resolve, 20))
    clock.pass(1000)
    expect(await late).toMatchObject({ code: 'ERR_STORE_TIMEOUT', fate: 'not-sent' })
    const fates = (await large).map(result => (result as PromiseRejectedResult).reason.fate as string)
    expect(new Set(fates)).toEqual(new Set(['may-have-run', 'not-sent']))
    proxy.thaw()
    await expect.poll(() => failureOf(store.run([note('after')])), PATIENT).toBe(undefined)
    const ran = await notes()
    expect(ran).toContain('after')
    expect(ran).not.toContain('late')
    for (const [i, fate] of fates.entries()) if (fate === 'not-sent') expect(ran).not.toContain(`large-${i}`)
    await proxy.close()
  })

  it('works over a socket of this machine, with a user, a password and a database', async () => {
    await redis.send('ACL', 'SETUSER', 'app', 'on', '>p&w', '~*', '+@all')
    const query = new URLSearchParams({ username: 'app', password: 'p&w', db: '3' })
    const { store, ready } = await open({ url: `unix://${join(redis.directory, 's')}?${query}` })
    await ready()
    expect(await store.run([note('in 3')])).toEqual([1])
    expect(await notes()).toEqual([])
  })

  it.each([
    ['with a wrong password', 'app:wrong@', 'WRONGPASS'],
    ['without a password', '', 'NOAUTH'],
  ])('reports that Redis refuses the connection %s', async (_, user, code) => {
    await redis.send('ACL', 'SETUSER', 'app', 'on', '>pw', '~*', '+@all')
    await redis.send('ACL', 'SETUSER', 'default', 'resetpass', '>other')
    try {
      const { store, ready } = await open({ url: `redis://${user}127.0.0.1:${redis.port}` })
      expect(await failureOf(store.run([note('refused')]))).toEqual({
        ...{ code: 'ERR_STORE_REFUSED', fate: 'answered' },
        message: `The store answered ${code}. Check the user and the password in the URL of Redis, or of the client.`,
      })
      await expect(ready()).rejects.toThrow(
        new RegExp(`^Redis at 127\\.0\\.0\\.1:${redis.port} .*${code}.* Check the user and the password`),
      )
    } finally {
      await (await open({ url: `redis://app:pw@127.0.0.1:${redis.port}` })).admin.run(
        ...(['ACL', 'SETUSER', 'default', 'nopass'] as const),
      )
    }
  })

  it('starts while Redis is down, and works as soon as it is up', async () => {
    const proxy = await startTcpProxy({ host: redis.host, port: redis.port })
    await proxy.shut()
    const { store, ready } = await open({ url: `redis://127.0.0.1:${proxy.port}` })
    await expect(ready()).rejects.toThrow(
      `Redis at 127.0.0.1:${proxy.port} does not answer: connect ECONNREFUSED 127.0.0.1:${proxy.port}.`,
    )
    expect(await failureOf(store.run([note('early')]))).toMatchObject({ fate: 'not-sent' })
    await proxy.open()
    await expect.poll(() => failureOf(ready()), PATIENT).toBe(undefined)
    expect(await store.run([note('first')])).toEqual([1])
    await proxy.close()
  })

  it('answers the calls in flight when it is closed, and takes no more', async () => {
    const { store, close } = await open()
    await store.run([note('warm')])
    const inFlight = store.run([note('in flight')])
    const closed = close()
    expect(await inFlight).toEqual([2])
    await closed
    expect(await failureOf(store.run([note('closed')]))).toMatchObject({
      ...{ code: 'ERR_STORE_UNREACHABLE', fate: 'not-sent' },
    })
    await close()
  })
})
