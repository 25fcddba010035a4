/** The Redis user of docs/deploy.md: everything works with its permissions, and it has no other. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { createAdminStore, loadScriptsIntoRedis } from '../../src/ops/admin-store.ts'
import { correctLimit } from '../../src/ops/corrections.ts'
import { readKeyPage } from '../../src/ops/key-pages.ts'
import { peekLimit } from '../../src/ops/limits.ts'
import { encodeSync } from '../../src/script/sync.ts'
import { syncScript } from '../../src/script/sync-text.ts'
import { guard } from '../../src/set-ups/guard/guard.ts'
import { createLimiter } from '../../src/set-ups/limits/create-limiter.ts'
import { runInProcess } from '../support/command-line.ts'
import { TOKEN, useGatewayOn } from '../support/gateway.ts'
import { PATIENT, PATIENT_MS } from '../support/patience.ts'
import { type RedisProcess, startRedisProcess } from '../support/redis-process.ts'
import { GRANTED, PASSWORD, SET_USER } from '../support/redis-user.ts'
import { hasRedisServer } from '../support/servers.ts'

const LONG = { period: '300d' } as const
const CONFIG = {
  plans: ['free', 'pro'],
  credentials: { opaqueKeys: {}, accept: ['api-key', 'opaque-key'] },
  units: { tokens: { estimate: 5, ttl: '10s' }, images: { estimate: 1, ttl: '10s', onUnsettled: 'release' } },
  rules: [
    { name: 'window', by: 'consumer', algorithm: 'fixed-window', limit: 3, ...LONG },
    { name: 'held', by: 'consumer', algorithm: 'concurrency', limit: 3 },
    { name: 'guesses', on: 'auth-failure', by: 'address', algorithm: 'gcra', limit: 5, ...LONG },
  ],
  shedding: {
    classes: [{ name: 'writes', match: { methods: ['POST'] } }, { name: 'reads' }],
    workerUtilization: { signals: ['push'] },
  },
  limits: {
    all: [
      { name: 'fixed', by: ['account'], algorithm: 'fixed-window', limit: 90, ...LONG },
      { name: 'sliding', by: ['account'], algorithm: 'sliding-window', limit: 90, ...LONG },
      { name: 'log', by: ['account'], algorithm: 'sliding-log', limit: 90, ...LONG },
      { name: 'gcra', by: ['account'], algorithm: 'gcra', limit: 90, ...LONG },
      { name: 'bucket', by: ['account'], algorithm: 'token-bucket', limit: 90, ...LONG },
      { name: 'leaky', by: ['account'], algorithm: 'leaky-bucket', limit: 1e5, period: '1s', queue: 9 },
      { name: 'held', by: ['account'], algorithm: 'concurrency', limit: 90 },
    ],
    kept: [{ name: 'day', unit: 'tokens', by: ['account'], algorithm: 'fixed-window', limit: 90, ...LONG }],
    released: [{ name: 'day', unit: 'images', by: ['account'], algorithm: 'gcra', limit: 90, ...LONG }],
  },
} satisfies Partial<ConfigInput>

const title = hasRedisServer ? '' : ' (no redis-server is installed)'

describe.skipIf(title)(`the Redis user of docs/deploy.md${title}`, () => {
  let redis: RedisProcess
  const gateway = useGatewayOn(async () => {
    redis = await startRedisProcess()
    await redis.send(...SET_USER.split(' '))
    return { url: userUrl(PASSWORD), close: redis.close }
  })
  const userUrl = (password: string) => redis.url.replace('//', `//sluice:${password}@`)

  /** The commands that Redis has refused, without those that the bridge can do without: it asks whether Redis is a cluster, and names itself. */
  async function refused(): Promise<string[]> {
    const entries = (await redis.send('ACL', 'LOG')) as Buffer[][]
    const objects = entries.map(entry => String(entry[entry.map(String).indexOf('object') + 1]))
    return objects.filter(object => !['cluster|info', 'client|setinfo'].includes(object))
  }

  const env = () => ({ UPSTASH_REDIS_REST_URL: gateway.store.url, UPSTASH_REDIS_REST_TOKEN: TOKEN })

  /** Runs a command of the command line. @returns its output */
  async function command(line: string, input = ''): Promise<string> {
    const { code, stdout, stderr } = await runInProcess(line.split(' '), env(), input)
    expect([line, code, stderr]).toEqual([line, 0, expect.not.stringContaining('NOPERM')])
    return stdout
  }

  it('can decide and give back under every algorithm', async () => {
    const limiter = createLimiter({ ...CONFIG, store: { deadline: '20s' } }, { env: env() })
    const account = { account: '42' }
    // More than 64, so that the log has a second key.
    for (let i = 0; i < 80; i++) {
      const { allowed, degraded } = await limiter.limit('all', account)
      expect([allowed, degraded]).toEqual([true, undefined])
    }
    const { degraded } = await limiter.refund(await limiter.limit('all', account))
    const peeked = await limiter.peek('all', account)
    expect([degraded, peeked.degraded]).toEqual([undefined, undefined])
    expect(peeked.rules.find(({ name }) => name === 'log')!.remaining).toBe(10)
    await limiter.reset('all', account)
    expect((await limiter.peek('all', account)).rules.every(({ remaining }) => remaining >= 9)).toBe(true)
    expect(await refused()).toEqual([])
  })

  it('can reserve and settle, show what is reserved, and correct a settlement', async () => {
    const limiter = createLimiter({ ...CONFIG, store: { deadline: '20s' } }, { env: env() })
    const admin = createAdminStore({ url: gateway.store.url, token: TOKEN })
    const config = checkedConfig({ origin: 'route', ...CONFIG })
    for (const [limit, unit] of [
      ['kept', 'tokens'],
      ['released', 'images'],
    ] as const) {
      const account = { account: '42' }
      const call = await limiter.reserve(limit, account)
      const [peeked] = await peekLimit(admin, config, limit, account)
      expect(peeked!.usage!.reserved.requests).toBe(1)
      expect(await call.settle({ [unit]: 3 })).toMatchObject({ applied: true, rules: [{ remaining: 87 }] })
      const { name } = config.limits.get(limit)![0]!
      const { after } = await correctLimit(admin, config, limit, account, name, -2)
      expect(after.remaining).toBe(89)
    }
    expect(await refused()).toEqual([])
  })

  it('can serve requests: keys, units in flight, guesses, statistics, and the load of the origin', async () => {
    const sleepers: (() => void)[] = []
    const timer = (_: number, wake: () => void) => {
      sleepers.push(wake)
      return () => {}
    }
    const variables = { SLUICE_UTILIZATION_SECRET: '0123456789abcdef'.repeat(4) }
    const app = gateway.app(CONFIG, { variables, reporting: { timer } })
    await command('keys import - --consumer partner', 'an-opaque-key-of-a-partner')
    for (const key of [await gateway.key('acme'), 'an-opaque-key-of-a-partner']) {
      const statuses = []
      for (let i = 0; i < 4; i++) {
        const reply = await app('/', { key })
        statuses.push([reply.status, reply.headers.get('sluice-degraded')])
        await reply.text()
      }
      expect(statuses).toEqual([...Array(3).fill([200, null]), [429, null]])
    }
    expect((await app('/', { key: 'an-opaque-key-that-is-made-up' })).status).toBe(401)
    const push = {
      method: 'POST',
      headers: { authorization: `Bearer ${variables.SLUICE_UTILIZATION_SECRET}` },
    }
    for (const reporter of ['a', 'b']) {
      const body = JSON.stringify({ reporter, utilization: 0.5 })
      expect((await app('/_sluice/utilization', { ...push, body })).status).toBe(204)
    }
    for (const wake of sleepers.splice(0)) wake()
    await vi.waitFor(async () => expect(await command('stats')).toMatch(/window +\d/), PATIENT)
    expect(await refused()).toEqual([])
  })

  it('can count the units of many isolates', async () => {
    const { decisions } = createAdminStore({ url: gateway.store.url, token: TOKEN })
    const holders = Array.from({ length: 100 }, (_, i) => `isolat${String(i).padStart(2, '0')}`)
    for (const holder of [...holders, holders[0]!]) {
      const message = { holding: { holder, epoch: 1, started: 1, ended: 0 }, ttl: 60e6 }
      await decisions.run([encodeSync(syncScript(), [{ key: 'sluice:{c:many}:state:held:abc', ...message }])])
    }
    expect(await refused()).toEqual([])
  })

  it('can run the commands of an operator', async () => {
    const list = async () =>
      JSON.parse(await command('keys list --consumer globex --json')) as { id: string }[]
    await command('keys create --consumer globex --plan pro --expires 1d')
    const [{ id }] = (await list()) as [{ id: string }]
    const store = createAdminStore({ url: gateway.store.url, token: TOKEN })
    expect((await readKeyPage(store, 'globex', { limit: 10 })).items).toMatchObject([{ id }])
    for (const line of [`rotate ${id} --overlap 1h`, `label ${id} ci`, `plan ${id} free`])
      await command(`keys ${line}`)
    // An expired key leaves the index with the next list.
    await redis.send(
      'DEL',
      `sluice:{c:globex}:key:${String(await redis.send('ZRANDMEMBER', 'sluice:{c:globex}:digests'))}`,
    )
    for (const key of await list()) await command(`keys revoke ${key.id} --yes`)
    for (const line of [
      'consumers set globex --plan pro',
      'consumers block globex --for 1h --yes',
      'consumers unblock globex',
      'consumers override globex consumer-minute --limit 500',
      'consumers show globex',
      'consumers list',
      'why globex',
      'why 192.0.2.7',
      'top',
      'stats --top consumers',
      'consumers remove globex --yes',
      'limits peek --consumer globex',
      'limits reset --consumer globex --yes',
      'switch kill on --for 1m --yes',
      'switch kill off',
      'switch rule consumer-minute shadow --for 1h',
      'switch rule consumer-minute reset',
      'switch',
      'explain GET / --consumer globex',
    ])
      await command(line)
    // As `npm start` does.
    await loadScriptsIntoRedis(store, checkedConfig({ origin: 'route', ...CONFIG }))
    expect(await refused()).toEqual([])
  })

  it('has no permission that is not used', async () => {
    const stats = String(await redis.send('INFO', 'commandstats'))
    const called = [...stats.matchAll(/^cmdstat_([a-z|]+):calls=[1-9]/gm)].map(([, command]) => command!)
    // Only a log whose oldest part has expired is shortened, which takes longer than a test should. Only some decisions drop reservations that
    // have ended, and only a consumer with more than 2,000 keys is removed in steps.
    const unused = GRANTED.filter(command => !called.includes(command) && command !== 'zremrangebyscore')
    expect(unused).toEqual(['hdel', 'zcard'])
  })

  it('cannot read other keys, or run other commands', async () => {
    const bridge = await startBridge({ redisUrl: userUrl(PASSWORD), token: TOKEN, port: 0 })
    const ask = async (...words: string[]) => {
      const init = {
        method: 'POST',
        headers: { authorization: `Bearer ${TOKEN}` },
        body: JSON.stringify(words),
      }
      return ((await (await fetch(bridge.url, init)).json()) as { error?: string }).error
    }
    try {
      expect(await ask('GET', 'sluice:{switches}')).toBeUndefined()
      for (const words of [
        ['GET', 'session:1'],
        ['EVAL', "return redis.call('GET', 'session:1')", '0'],
        ['KEYS', '*'],
        ['FLUSHALL'],
      ])
        expect([words, await ask(...words)]).toEqual([
          words,
          expect.stringMatching(/NOPERM|ACL failure|The user executing the script can't/),
        ])
    } finally {
      await bridge.close()
    }
  })
})

describe.skipIf(title)(`a Redis user who may only read${title}`, () => {
  let redis: RedisProcess
  let bridge: Bridge
  beforeAll(async () => {
    redis = await startRedisProcess()
    await redis.send(
      'ACL',
      'SETUSER',
      'reader',
      'on',
      '>secret',
      '~sluice:*',
      '+@read',
      '+ping',
      '+eval',
      '+evalsha',
      '+time',
    )
    const redisUrl = redis.url.replace('//', '//reader:secret@')
    bridge = await startBridge({ redisUrl, token: TOKEN, port: 0, deadlineMs: PATIENT_MS })
  })
  afterAll(async () => {
    await bridge?.close()
    await redis?.close()
  })
  const env = () => ({ UPSTASH_REDIS_REST_URL: bridge.url, UPSTASH_REDIS_REST_TOKEN: TOKEN })

  it.each(['keys create --consumer acme', 'switch kill on --for 1m --yes', 'consumers set acme --plan pro'])(
    'cannot change anything, and the message says why: %s',
    async line => {
      const { code, stdout, stderr } = await runInProcess(line.split(' '), env())
      expect([code, stdout]).toEqual([1, ''])
      expect(stderr).toMatch(/docs\/deploy\.md#your-own-redis/)
    },
  )

  it('gets the counters of stats without the permission to run scripts, and a note that the load is missing', async () => {
    await redis.send('ACL', 'SETUSER', 'watcher', 'on', '>secret', '~sluice:*', '+@read', '+ping', '+time')
    const redisUrl = redis.url.replace('//', '//watcher:secret@')
    const watched = await startBridge({ redisUrl, token: TOKEN, port: 0, deadlineMs: PATIENT_MS })
    const line = 'stats --prometheus --config test/support/shedding.config.ts'
    const result = await runInProcess(line.split(' '), { ...env(), UPSTASH_REDIS_REST_URL: watched.url })
    await watched.close()
    expect(result).toMatchObject({ code: 0, stdout: expect.stringMatching(/lost_requests_total 0\n/) })
    expect(result.stdout).not.toMatch(/fleet|pressure/)
    expect(result.stderr).toMatch(/^The load of the origin is not shown\. The store answered NOPERM/)
  })

  it('cannot start a bridge without PING, and the message says why', async () => {
    await redis.send('ACL', 'SETUSER', 'silent', 'on', '>secret', '~sluice:*', '+@read')
    const redisUrl = redis.url.replace('//', '//silent:secret@')
    await expect(startBridge({ redisUrl, token: TOKEN, port: 0 })).rejects.toThrow(
      /^Redis at [\d.:]+ answered with an error: NOPERM .*ping.*\. docs\/deploy\.md#your-own-redis lists/,
    )
  })

  it('refuses requests under a closed rule, and the log says why', async () => {
    const lines: unknown[] = []
    for (const level of ['warn', 'error', 'info'] as const)
      vi.spyOn(console, level).mockImplementation(line => void lines.push(line))
    const rule = { name: 'a', by: 'address', algorithm: 'fixed-window', limit: 5, ...LONG } as const
    const config: ConfigInput = {
      store: { deadline: '20s' },
      credentials: { accept: ['anonymous'] },
      onStoreFailure: 'closed',
      rules: [rule],
    }
    const reply = await guard(config, { env: env() })((_: Request) => new Response())(
      new Request('http://app.test/'),
    )
    expect([reply.status, reply.headers.get('sluice-degraded')]).toEqual([503, 'store-refused'])
    expect(lines.join('\n')).toMatch(/NOPERM: its token is read-only, or its Redis user lacks a permission/)
  })
})
