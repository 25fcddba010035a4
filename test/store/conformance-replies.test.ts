/**
 * Each reply in turn is lost, late, cut off or doubled: on the way from Redis, and over HTTP also on the way from the bridge. No call runs
 * twice, what is said of each is true, and the next calls get their own replies.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createScript } from '../../src/script/create-script.ts'
import type { Store } from '../../src/store/store.ts'
import { createDeadlineClock } from '../support/deadline-clock.ts'
import { startTcpProxy, type TcpFault, type TcpProxy, targetOf } from '../support/fault-proxy.ts'
import { PATIENT, PATIENT_MS } from '../support/patience.ts'
import { type RedisProcess, startRedisProcess } from '../support/redis-process.ts'
import { endOfCommand, endOfRequest } from '../support/resp.ts'
import { hasRedisServer } from '../support/servers.ts'
import { type OpenStore, STORE_KINDS } from '../support/store-kinds.ts'

const NOTE = createScript("return redis.call('RPUSH', KEYS[1], ARGV[1])")
const ECHO = createScript('return ARGV[1]')

/** @param late resolves when the deadline of the call is over */
type Fault = (late: Promise<void>) => TcpFault

const NEVER = new Promise<void>(() => {})
const half = (bytes: Buffer) => bytes.subarray(0, bytes.length / 2)
const almostAll = (bytes: Buffer) => bytes.subarray(0, -1)
const stall = (part: (bytes: Buffer) => Buffer): Fault => {
  const reply: TcpFault['reply'] = (client, bytes) => {
    client.write(part(bytes))
    return NEVER
  }
  return () => ({ reply })
}

/** After these, a call gets its answer or an error before its deadline. */
const AT_ONCE: [name: string, fault: Fault][] = [
  ['is lost with its connection', () => ({ reply: client => void client.resetAndDestroy() })],
  ['is not sent, because the connection is closed', () => ({ reply: client => void client.end() })],
  ['is cut off by a close', () => ({ reply: (client, bytes) => void client.end(half(bytes)) })],
  [
    'is cut off near its end by a reset',
    () => ({
      reply: (client, bytes) => void client.write(almostAll(bytes), () => client.resetAndDestroy()),
    }),
  ],
  ['comes twice', () => ({ reply: (client, bytes) => void client.write(Buffer.concat([bytes, bytes])) })],
  [
    'has other bytes behind it',
    () => ({ reply: (client, bytes) => void client.write(Buffer.concat([bytes, Buffer.from('?\r\n')])) }),
  ],
  [
    'does not exist, because the request was reset',
    () => ({ request: client => void client.resetAndDestroy() }),
  ],
  ['does not exist, because the connection was closed', () => ({ request: client => void client.end() })],
]

/** After these, only the deadline ends a call. */
const UNTIL_DEADLINE: [name: string, fault: Fault][] = [
  ['is lost, and all that follow it', stall(bytes => bytes.subarray(0, 0))],
  ['stops in the middle', stall(half)],
  ['stops before its last byte', stall(almostAll)],
  [
    'is late',
    late => ({
      async reply(client, bytes) {
        await late
        client.write(bytes)
      },
    }),
  ],
]

const PLACES = STORE_KINDS.flatMap(kind => [
  { ...kind, place: 'Redis' },
  ...(kind.isDirect ? [] : [{ ...kind, place: 'the bridge' }]),
])

const title = hasRedisServer ? '' : ' (no redis-server is installed)'

describe.skipIf(title).each(PLACES)(`a store $name: a reply of $place${title}`, ({ open, place }) => {
  let redis: RedisProcess
  let proxy: TcpProxy
  beforeAll(async () => {
    redis = await startRedisProcess()
    proxy = await startTcpProxy(targetOf(redis.url), place === 'Redis' ? endOfCommand : endOfRequest)
  })
  afterAll(async () => {
    await proxy?.close()
    await redis?.close()
  })

  const proxied = `127.0.0.1:`
  const clock = createDeadlineClock()
  /** @param ms also how soon a silent connection is replaced */
  async function openStore(ms: number): Promise<OpenStore> {
    const options = { deadlineMs: ms, connectMs: ms, clock }
    if (place === 'Redis') return await open(`redis://${proxied}${proxy.port}`, options)
    return await open(redis.url, {
      ...options,
      async reach(bridgeUrl) {
        proxy.target = targetOf(bridgeUrl)
        return `http://${proxied}${proxy.port}`
      },
    })
  }

  async function expectTruth(fates: ReadonlyMap<string, string>): Promise<void> {
    const ran = ((await redis.send('LRANGE', 'notes', '0', '-1')) as Buffer[]).map(String)
    expect(ran, 'no call runs twice').toEqual([...new Set(ran)])
    for (const [name, fate] of fates) {
      if (fate === 'ran') expect(ran, name).toContain(name)
      else if (fate !== 'may-have-run') expect(ran, name).not.toContain(name)
    }
  }

  /** Its deadline goes on: a connection on which a reply has stopped is only replaced after a call on it was late. */
  const echoOf = (store: Store) => async () => {
    const timer = setInterval(() => clock.pass(300), 500)
    try {
      return await store.run([{ script: ECHO, keys: ['k'], args: ['own'] }]).catch(() => [])
    } finally {
      clearInterval(timer)
    }
  }
  const note = (name: string) => ({ script: NOTE, keys: ['notes'], args: [name] })

  /** Sends calls while the n-th reply is faulty. @returns whether there was an n-th reply, and what is said of each call */
  async function spoil(n: number, fault: Fault, isHanging: boolean) {
    for (const command of [
      ['SCRIPT', 'FLUSH'],
      ['DEL', 'notes'],
    ])
      await redis.send(...command)
    const { store, close } = await openStore(isHanging ? 300 : PATIENT_MS)
    const echo = echoOf(store)
    await expect.poll(echo, PATIENT).toEqual(['own'])
    const { promise: late, resolve: endLate } = Promise.withResolvers<void>()
    const armed = proxy.arm(fault(late), i => i === n)
    const fates = new Map<string, string>()
    // The first has to bring its script.
    for (const names of [['a'], ['b', 'c'], ['d']]) {
      let isEnded = false
      const ended = store
        .run(names.map(note))
        .catch(error => names.map(() => error))
        .finally(() => {
          isEnded = true
        })
      while (isHanging && !isEnded) {
        await new Promise(resolve => setTimeout(resolve, 2))
        if (armed.spoiled() > 0) clock.pass(300)
      }
      for (const [i, reply] of (await ended).entries()) fates.set(names[i]!, reply?.fate ?? 'ran')
    }
    const wasSpoiled = armed.spoiled() > 0
    await armed.disarm()
    endLate()
    await expect.poll(echo, PATIENT).toEqual(['own'])
    for (let i = 0; i < 3; i++) expect(await echo()).toEqual(['own'])
    await close()
    await expectTruth(fates)
    return { wasSpoiled, fates: [...new Set(fates.values())] }
  }

  async function spoilEach(fault: Fault, isHanging: boolean): Promise<void> {
    let n = 1
    const fates = new Set<string>()
    for (;;) {
      const spoiled = await spoil(n, fault, isHanging)
      if (!spoiled.wasSpoiled) break
      for (const fate of spoiled.fates) fates.add(fate)
      n += 1
      expect(n).toBeLessThan(12)
    }
    // Without a fault there are four replies over HTTP, and five of Redis.
    expect(n).toBeGreaterThan(4)
    expect(fates).toContain('ran')
    if (isHanging) expect(fates).toContain('may-have-run')
  }

  it('comes for each call once, although the connection was broken before it', async () => {
    await redis.send('DEL', 'notes')
    const { store, close } = await openStore(PATIENT_MS)
    const fates = new Map<string, string>()
    for (let n = 0; n < 30; n++) {
      await expect.poll(echoOf(store), PATIENT).toEqual(['own'])
      proxy.cut()
      // The client may not know yet that its connection is gone.
      if (n % 2) await new Promise(setImmediate)
      await store.run([note(`${n}`)]).then(
        () => fates.set(`${n}`, 'ran'),
        ({ fate }) => fates.set(`${n}`, fate),
      )
    }
    await close()
    await expectTruth(fates)
  })

  it.each(AT_ONCE)('%s', async (_, fault) => await spoilEach(fault, false))
  it.each(UNTIL_DEADLINE)('%s', async (_, fault) => await spoilEach(fault, true))
})
