/** Compares the numbers that `explain` prints with the commands that a Redis counts, and with the HTTP requests. */
import { readFileSync } from 'node:fs'
import { describe, expect, it, vi } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { blockConsumer } from '../../src/ops/consumers.ts'
import type { CommandCounts } from '../../src/ops/decision-cost.ts'
import { explain } from '../../src/ops/explain.ts'
import { createLookUp } from '../../src/ops/explain-stored.ts'
import { revokeKey } from '../../src/ops/key-changes.ts'
import { findKey } from '../../src/ops/key-reference.ts'
import { importKey } from '../../src/ops/keys.ts'
import { describeOnCluster } from '../support/cluster.ts'
import { configOf } from '../support/engines.ts'
import { useGateway, useGatewayOn } from '../support/gateway.ts'
import { PATIENT } from '../support/patience.ts'
import { hasRedisServer } from '../support/servers.ts'

const window = { algorithm: 'fixed-window', limit: 1000, period: '300d' } as const
const six = (['consumer', 'address'] as const).flatMap((by): RuleInput[] => [
  { name: `${by}-second`, by, algorithm: 'gcra', limit: 50, period: '300d' },
  { name: `${by}-minute`, by, ...window, period: '100d' },
  { name: `${by}-hour`, by, ...window },
])
const log = (name: string, limit: number): RuleInput => ({
  ...{ name, by: 'consumer', algorithm: 'sliding-log', limit, period: '30d' },
})

/** The limit is so high that the end of a request is not reported to the store immediately. */
const inFlight: RuleInput = { name: 'in-flight', by: 'consumer', algorithm: 'concurrency', limit: 1000 }

const CONFIGS: Record<string, RuleInput[]> = {
  'the six limits of the example': six,
  'one limit': six.slice(0, 1),
  'three identities': [...six, { name: 'path', by: ['consumer', 'method'], ...window }],
  'rules of cost 0, for other plans, or for guesses': [
    { ...six[0]!, cost: 0 },
    { ...six[3]!, match: { plans: ['pro'] } },
    { name: 'guesses', by: 'address', on: 'auth-failure', ...window },
  ],
  'the six limits, and requests in flight': [
    ...six,
    { name: 'in-flight', by: 'consumer', algorithm: 'concurrency', limit: 64 },
  ],
  'only requests in flight': [{ name: 'in-flight', by: 'consumer', algorithm: 'concurrency', limit: 64 }],
  'a short log': [log('short', 50), six[3]!],
  'a long log': [log('long', 500)],
  'requests in flight': [inFlight, six[3]!],
  'two logs and a shadow': [log('short', 20), log('long', 500), { ...six[1]!, mode: 'shadow' }],
}

const address = '192.0.2.7'

const INFO = ['INFO', 'commandstats']

const title = hasRedisServer
  ? 'the cost that explain prints, on redis-server'
  : 'the cost that explain prints (no real Redis is installed to count the commands)'

describe.skipIf(!hasRedisServer)(title, () => {
  const gateway = useGateway('redis-server')

  it.each(Object.entries(CONFIGS))('is the real cost: %s', async (name, rules) => {
    const input = { plans: ['free', 'pro'], rules }
    const { cost } = await explained(input, { consumer: 'acme' })
    const consumer = name.replaceAll(/\W/g, '-')
    const key = await gateway.key(consumer)
    // Without timers: on a slow machine, units in flight would be renewed while the commands of another request are counted.
    const app = await gateway.informed(input, { timer: () => () => {} })
    for (let i = 0; i < 12; i++) {
      const spent = await counted(() => app('/', { key, address }))
      expect(spent.status).toBe(200)
      expectWithin(spent, cost.httpRequests, cost.admitted!)
    }
  })

  it('is the real cost of a request in an isolate that has not read the live switches', async () => {
    const { cost } = await explained({ rules: six }, { consumer: 'acme' })
    const key = await gateway.key('thin')
    const app = gateway.app({ rules: six })
    // Without a credential, nothing is read from the store.
    expect((await app('/')).status).toBe(401)
    const { requests, commands } = await counted(() => app('/', { key, address }))
    expect(requests).toBe(cost.httpRequests)
    expect(commands.get).toBe(1)
    expect(Object.values(commands).reduce((a, b) => a + b, 0)).toBe(
      cost.admitted!.most + cost.switchRead!.most,
    )
  })

  it('is the real cost of a refused request', async () => {
    const rules: RuleInput[] = [log('short', 1), log('long', 101), { ...window, name: 'w', by: 'address' }]
    const { cost } = await explained({ rules }, { consumer: 'acme' })
    const key = await gateway.key('refused')
    const app = gateway.app({ rules })
    await app('/', { key, address })
    const refused = await counted(() => app('/', { key, address }))
    expect(refused.status).toBe(429)
    expectWithin(refused, 1, cost.refused)
  })

  it('is the real cost of a request of a blocked consumer, and of one with a revoked key', async () => {
    const guesses: RuleInput = { name: 'guesses', by: 'address', on: 'auth-failure', ...window }
    const rules = [...six, inFlight, log('long', 500), guesses]
    const config = { ...configOf({ rules }), input: { rules } }
    const lookUp = createLookUp(gateway.admin)
    for (const [consumer, status] of [
      ['blocked', 403],
      ['revoked', 401],
    ] as const) {
      const key = await gateway.key(consumer)
      const app = await gateway.informed({ rules }, { timer: () => () => {} })
      expect((await app('/', { key, address })).status).toBe(200)
      if (status === 403) await blockConsumer(gateway.admin, consumer)
      else await revokeKey(gateway.admin, await findKey(gateway.admin, key))
      const { cost, refusal } = await explain(config, { method: 'GET', path: '/', address, key }, lookUp)
      expect([refusal?.status, cost.admitted, cost.ended]).toEqual([status, undefined, undefined])
      // Uses another app, which remembers nothing about this key.
      const other = await gateway.informed({ rules })
      const refused = await counted(() => other('/', { key, address }))
      expect(refused.status).toBe(status)
      expectWithin(refused, 1, cost.refused)
    }
  })

  it('is the real cost of a request and its ending if no other request follows', async () => {
    const rules: RuleInput[] = [{ ...inFlight, limit: 1 }]
    const { cost } = await explained({ rules }, { consumer: 'acme' })
    const [admitted, ended] = [cost.admitted!.most, cost.ended!.most]
    expect([admitted, ended]).toEqual([4, 4])
    const app = await gateway.informed({ rules })
    const calls = async () =>
      Number(/^cmdstat_setex:calls=(\d+)/m.exec(String(await gateway.redis.connection.send(INFO)))?.[1])
    // The script has to be sent once.
    for (const isWarm of [false, true]) {
      const key = await gateway.key(isWarm ? 'warm' : 'cold')
      const { requests, commands } = await counted(async () => {
        const response = await app('/', { key, address })
        await response.text()
        await vi.waitFor(async () => expect(await calls()).toBe(2), PATIENT)
        return response
      })
      if (!isWarm) continue
      expect(requests).toBe(2)
      expect(Object.values(commands).reduce((a, b) => a + b, 0)).toBe(admitted + ended)
    }
  })

  it('is the real cost of a request that reserves units, and of its settlement', async () => {
    const units: ConfigInput['units'] = {
      bytes: { estimate: 9, actual: 'bytes' },
      ms: { estimate: 9, actual: 'ms', onUnsettled: 'release' },
    }
    const rules: RuleInput[] = [
      ...six,
      { ...window, name: 'bytes', by: 'consumer', unit: 'bytes' },
      { ...window, name: 'time', by: 'address', unit: 'ms', limit: 100_000 },
    ]
    const { cost } = await explained({ rules, units }, { consumer: 'acme' })
    const [admitted, settled] = [cost.admitted!, cost.settled!]
    expect([admitted.least, admitted.most, settled.least, settled.most]).toEqual([8, 17, 5, 10])
    const key = await gateway.key('reserving')
    const app = await gateway.informed({ rules, units }, { timer: () => () => {} })
    const send = () =>
      counted(async () => {
        const response = await app('/', { key, address })
        await response.text()
        return response
      })
    expectWithin(await send(), 1, admitted)
    // The settlement of a request is part of a later trip.
    await vi.waitFor(async () => {
      const { status, requests, commands } = await send()
      const sum = Object.values(commands).reduce((a, b) => a + b, 0)
      expect([status, requests]).toEqual([200, 1])
      expect(sum).toBeGreaterThanOrEqual(admitted.least + settled.least)
      expect(sum).toBeLessThanOrEqual(admitted.most + settled.most)
      // Of the rule by consumer, what is reserved is in the state.
      expect(commands).toMatchObject({ evalsha: 2, zadd: 1, zmscore: 1 })
    }, PATIENT)
  })

  it('is the real cost of a request with an opaque key, before and after its first use', async () => {
    const input = { rules: six, credentials: { opaqueKeys: {} } }
    const key = 'partner-key-of-before'
    await importKey(gateway.admin, { key }, { consumer: 'partner' })
    const cold = (await explained(input, { key })).cost
    const app = await gateway.informed(input)
    expectWithin(await counted(() => app('/', { key, address })), cold.httpRequests, cold.admitted!)
    const warm = (await explained(input, { consumer: 'partner' })).cost
    expectWithin(await counted(() => app('/', { key, address })), warm.httpRequests, warm.admitted!)
  })

  it('is zero if the store is not called', async () => {
    const { cost } = await explained({ rules: six }, {})
    expect(cost).toMatchObject({ httpRequests: 0, admitted: { most: 0 }, refused: { most: 0 } })
    expect(await counted(() => gateway.app({ rules: six }, { isCold: true })('/'))).toEqual({
      status: 401,
      requests: 0,
      commands: {},
    })
  })

  async function counted(work: () => Promise<Response>) {
    const { connection } = gateway.redis
    gateway.store.count()
    await connection.send(['CONFIG', 'RESETSTAT'])
    const { status } = await work()
    const info = String(await connection.send(INFO))
    const calls = [...info.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)].map(
      ([, name, calls]) => [name!, Number(calls)] as const,
    )
    const commands = Object.fromEntries(calls.filter(([name]) => !/^(config|info)/.test(name)))
    return { status, requests: gateway.store.count(), commands }
  }
})

describe('the price', () => {
  it('equals the price in README.md and docs/deploy.md: $10 and $6 per million', async () => {
    const { cost } = await explained({ rules: six }, { consumer: 'acme' })
    expect([cost.admitted!.least, cost.admitted!.most, cost.admitted!.dollarsPerMillion]).toEqual([
      5,
      5,
      [10, 10],
    ])
    expect([cost.refused.least, cost.refused.dollarsPerMillion]).toEqual([3, [6, 6]])
    expect(cost.switchRead).toMatchObject({ least: 1, most: 1, dollarsPerMillion: [2, 2] })
    const read = (page: string) => readFileSync(new URL(`../../${page}`, import.meta.url), 'utf8')
    expect(read('docs/deploy.md')).toContain(
      'a `GET` with each decision: 6 commands if admitted, 4 if refused | $12 and $8 per million |',
    )
    expect(read('README.md')).toContain('**$2,000**: 5 commands each. A refused request takes 3')
    expect(read('docs/deploy.md')).toMatch(
      /\| 5 \(.+\) \| \$10 per million \|\n\| a refused one \| 3 \| \$6 per million \|/,
    )
  })
})

describeOnCluster('the cost that explain prints', start => {
  const gateway = useGatewayOn(start, true)

  it('is one HTTP request, and a call for each slot', async () => {
    const input = { rules: six, store: { cluster: true }, credentials: { opaqueKeys: {} } }
    const { cost } = await explained(input, { consumer: 'acme' })
    expect(cost).toMatchObject({ httpRequests: 1, calls: 2, admitted: { least: 8, most: 8 } })
    const key = await gateway.key('acme')
    const app = gateway.app(input)
    gateway.store.count()
    expect((await app('/', { key, address })).status).toBe(200)
    // New to the isolate: its slot decides first.
    expect(gateway.store.count()).toBe(cost.httpRequests + 1)
    expect((await app('/', { key, address })).status).toBe(200)
    expect(gateway.store.count()).toBe(cost.httpRequests)

    const opaque = 'partner-key-of-before'
    await importKey(gateway.admin, { key: opaque }, { consumer: 'partner' })
    const cold = (await explained(input, { key: opaque })).cost
    expect((await app('/', { key: opaque, address })).status).toBe(200)
    expect(gateway.store.count()).toBe(cold.httpRequests)
  })
})

async function explained(
  input: Partial<ConfigInput> & Pick<ConfigInput, 'rules'>,
  caller: { consumer?: string; key?: string },
) {
  const { rules, units } = input
  const config = { ...configOf(input), input: { rules, ...(units && { units }) } }
  return await explain(config, { method: 'GET', path: '/', address, ...caller })
}

/** Compares the sum and each command. If `explain` prints alternatives such as `a or b`, only the sum is compared. */
function expectWithin(
  { requests, commands }: { requests: number; commands: Record<string, number> },
  httpRequests: number,
  reported: CommandCounts,
): void {
  expect(requests).toBe(httpRequests)
  const sum = Object.values(commands).reduce((a, b) => a + b, 0)
  expect(sum, JSON.stringify(commands)).toBeGreaterThanOrEqual(reported.least)
  expect(sum, JSON.stringify(commands)).toBeLessThanOrEqual(reported.most)
  if (reported.commands.some(({ command }) => / or /.test(command))) return
  for (const { command, least, most } of reported.commands) {
    if (least === most) expect(commands[command.toLowerCase()], command).toBe(least)
  }
  const names = reported.commands.map(({ command }) => command.toLowerCase())
  expect(Object.keys(commands).filter(name => !names.includes(name))).toEqual([])
}
