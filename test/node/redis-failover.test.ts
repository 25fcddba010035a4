/**
 * An address of Redis (a service of Kubernetes, a virtual IP, a name of DNS) leads to a new primary, while the connections to the old one
 * stay open. A proxy in front of two servers is such an address.
 */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { connectRedisStore, type RedisStore } from '../../src/node/redis-store/redis-store.ts'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { Failover } from '../../src/node/rest-bridge/failover.ts'
import { ErrorReply } from '../../src/node/rest-bridge/redis-server.ts'
import { createScript } from '../../src/script/create-script.ts'
import { startTcpProxy, type TcpProxy } from '../support/fault-proxy.ts'
import { PATIENT, PATIENT_MS } from '../support/patience.ts'
import { type RedisProcess, startRedisProcess } from '../support/redis-process.ts'
import { hasRedisServer } from '../support/servers.ts'

const NOTE = createScript("return redis.call('RPUSH', KEYS[1], ARGV[1])")

const title = hasRedisServer ? '' : ' (no redis-server is installed)'

describe.skipIf(title)(`an address that leads to another Redis${title}`, () => {
  let servers: [RedisProcess, RedisProcess]
  let address: TcpProxy
  let url: string
  let store: RedisStore | undefined
  let bridge: Bridge | undefined

  beforeEach(async () => {
    servers = [await startRedisProcess(), await startRedisProcess()]
    address = await startTcpProxy({ host: servers[0].host, port: servers[0].port })
    url = `redis://127.0.0.1:${address.port}`
  })
  afterEach(async () => {
    await store?.close()
    await bridge?.close()
    await address?.close()
    await Promise.all(servers?.map(server => server.close()))
    store = undefined
    bridge = undefined
  })

  const replicate = async (replica: RedisProcess, { host, port }: RedisProcess) => {
    await replica.send('REPLICAOF', host, String(port))
    await expect
      .poll(async () => String(await replica.send('INFO', 'replication')), PATIENT)
      .toContain('master_link_status:up')
  }
  /** The second server takes over, and the first becomes its replica. */
  async function failOver(): Promise<void> {
    const [old, next] = servers
    await replicate(next, old)
    await next.send('REPLICAOF', 'NO', 'ONE')
    await old.send('REPLICAOF', next.host, String(next.port))
  }
  const leadTo = ({ host, port }: RedisProcess) => {
    address.target = { host, port }
  }
  const clientsOf = async (server: RedisProcess) =>
    String(await server.send('CLIENT', 'LIST', 'TYPE', 'normal'))
      .split('\n')
      .flatMap(line => /^id=(\d+) .*cmd=(?!client)/.exec(line)?.[1] ?? [])

  /** Runs a call. @returns '', or the message of its failure */
  const note = (name: string) =>
    store!.store.run([{ script: NOTE, keys: ['notes'], args: [name] }]).then(
      () => '',
      ({ message }) => message as string,
    )

  it('is followed by a store: no call runs twice, and none that was refused has run', async () => {
    store = await connectRedisStore({ url, deadlineMs: PATIENT_MS })
    expect(await note('before')).toBe('')
    await failOver()
    leadTo(servers[1])
    expect(await note('refused-0')).toBe('The store answered READONLY.')
    await expect(store.store.ping()).rejects.toMatchObject({ code: 'ERR_STORE_REFUSED' })
    await expect(store.ready()).rejects.toThrow('answers with an error: READONLY')

    const fates = new Map<string, string>()
    let calls = 0
    await expect
      .poll(async () => {
        const names = Array.from({ length: 5 }, () => `call-${calls++}`)
        const failures = await Promise.all(names.map(note))
        for (const [i, name] of names.entries()) fates.set(name, failures[i]!)
        return failures
      }, PATIENT)
      .toEqual(['', '', '', '', ''])
    // No call has failed but by the refusals of the old primary.
    expect(new Set(fates.values())).toEqual(new Set(['', 'The store answered READONLY.']))
    const ran = [...fates].flatMap(([name, failure]) => (failure ? [] : name))
    const notes = (await servers[1].send('LRANGE', 'notes', '0', '-1')) as Buffer[]
    expect(notes.map(String)).toEqual(['before', ...ran])
    await store.store.ping()
    await store.ready()
  })

  it('is followed by the bridge, whose /health tells that Redis is read-only', async () => {
    const token = 'a token for tests'
    bridge = await startBridge({ redisUrl: url, token, port: 0, deadlineMs: PATIENT_MS })
    const { url: at } = bridge
    const set = async () =>
      (
        await fetch(at, {
          ...{ method: 'POST', headers: { authorization: `Bearer ${token}` }, body: '["SET", "a", "1"]' },
        })
      ).status
    const health = async () => (await fetch(`${at}/health`)).status
    expect(await set()).toBe(200)
    await failOver()
    await expect.poll(health, PATIENT).toBe(503)
    expect(await set()).toBe(400)
    leadTo(servers[1])
    // No caller has to send a command: the bridge tests the connection because of /health.
    await expect.poll(health, PATIENT).toBe(200)
    expect(await set()).toBe(200)
  })

  it('keeps its connection if its server takes changes again', async () => {
    store = await connectRedisStore({ url, deadlineMs: PATIENT_MS })
    expect(await note('before')).toBe('')
    const [first] = servers
    const connected = await clientsOf(first)
    expect(connected).toHaveLength(1)
    await first.send('REPLICAOF', '127.0.0.1', '1')
    expect(await note('refused')).toMatch(/READONLY/)
    await first.send('REPLICAOF', 'NO', 'ONE')
    await expect.poll(() => note('again'), PATIENT).toBe('')
    expect(await clientsOf(first)).toEqual(connected)
  })
})

describe('while its server refuses, a connection', () => {
  const refusal = (message: string) => new ErrorReply(message)
  const READONLY = refusal("READONLY You can't write against a read only replica.")

  /** A connection in virtual time. Its clients are numbers, in the order in which they were made. */
  function bed(errorAt: (client: number) => ErrorReply | undefined, isReachable = () => true) {
    const pauses: { ms: number; end(): void }[] = []
    const log: string[] = []
    let current: number | undefined = 0
    let made = 0
    const failover = new Failover<number>(
      {
        current: () => current,
        connect: async () => {
          made += 1
          log.push(`connects ${made}`)
          if (!isReachable()) throw new Error('ECONNREFUSED')
          return made
        },
        errorAt: async client => errorAt(client),
        adopt: client => {
          log.push(`adopts ${client}`)
          current = client
        },
        drop: client => log.push(`drops ${client}`),
      },
      ms => new Promise(resolve => pauses.push({ ms, end: resolve })),
    )
    return {
      ...{ failover, log, pauses },
      leave: () => {
        current = undefined
      },
      async passSecond() {
        const due = pauses.splice(0)
        for (const { ms, end } of due) {
          expect(ms).toBe(1000)
          end()
        }
        await new Promise(setImmediate)
        return due.length
      },
    }
  }

  it.each(['READONLY x', 'MASTERDOWN x', 'LOADING x'])('is looked for once a second: %s', async message => {
    const error = refusal(message)
    const { failover, log, passSecond } = bed(client => (client < 3 ? error : undefined))
    for (let i = 0; i < 1000; i++) failover.noteError(error)
    expect(log).toEqual([])
    for (const _ of [1, 2, 3]) {
      expect(await passSecond()).toBe(1)
      for (let i = 0; i < 1000; i++) failover.noteError(error)
    }
    expect(log.join(', ')).toBe('connects 1, drops 1, connects 2, drops 2, connects 3, adopts 3')
  })

  it('is left alone because of one refusal, or of an error of another kind', async () => {
    const { failover, log, passSecond } = bed(() => undefined)
    failover.noteError(READONLY)
    await passSecond()
    failover.noteError(refusal('OOM command not allowed'))
    failover.noteError(refusal('NOSCRIPT No matching script'))
    expect(await passSecond()).toBe(0)
    expect(log).toEqual([])
  })

  it('stays if the address leads nowhere, and is not replaced after it was closed', async () => {
    let isReachable = false
    const error = () => READONLY
    const { failover, log, passSecond, leave } = bed(error, () => isReachable)
    failover.noteError(READONLY)
    await passSecond()
    expect(log).toEqual(['connects 1'])
    isReachable = true
    leave()
    await passSecond()
    expect(await passSecond()).toBe(0)
    expect(log).toEqual(['connects 1'])
  })

  it('is replaced for a user who cannot test it, as long as its commands are refused', async () => {
    const { failover, log, passSecond } = bed(() => refusal('NOPERM no permission for this key'))
    failover.noteError(READONLY)
    await passSecond()
    expect(log).toEqual([])
    failover.noteError(READONLY)
    failover.noteError(READONLY)
    await passSecond()
    expect(log).toEqual(['connects 1', 'adopts 1'])
  })
})
