/** `npx sluicegate doctor` on stores that work, and on fakes of which each lacks one thing: the report names it. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { checkedConfig } from '../../../src/config/check/check.ts'
import type { ConfigInput } from '../../../src/config/check/schema.ts'
import { type Checked, overallOf } from '../../../src/node/doctor/checks.ts'
import { commandsToTry } from '../../../src/node/doctor/protocol.ts'
import { examineStore, type StoreAddress } from '../../../src/node/doctor/store.ts'
import { type Bridge, startBridge } from '../../../src/node/rest-bridge/bridge.ts'
import { RedisServer } from '../../../src/node/rest-bridge/redis-server.ts'
import { describeOnCluster, type TestCluster } from '../../support/cluster.ts'
import { examined, found, type Stopped } from '../../support/examinations.ts'
import { type FakeStoreOptions, startFakeStore } from '../../support/fake-store.ts'
import { PATIENT_MS } from '../../support/patience.ts'
import { describeOnRedis, type TestRedis } from '../../support/redis.ts'
import { type RedisProcess, startRedisProcess } from '../../support/redis-process.ts'
import { GRANTED, PASSWORD, SET_USER } from '../../support/redis-user.ts'
import { MASTER, startSentinels } from '../../support/sentinels.ts'
import { hasRedisServer } from '../../support/servers.ts'

const TOKEN = 'token-of-the-store'
const WINDOW = { algorithm: 'fixed-window', limit: 5, period: '1m' } as const

const SMALL = {
  plans: ['free'],
  rules: [{ name: 'a', by: 'consumer', ...WINDOW }],
} satisfies Partial<ConfigInput>

/** Every kind of state, plans, settlement, and a limit by name. */
const LARGE = {
  plans: ['free', 'pro'],
  units: { tokens: { estimate: 3, ttl: '10s' } },
  rules: [
    { name: 'window', by: 'consumer', ...WINDOW, plans: { pro: { limit: 50 } } },
    { name: 'day', by: ['consumer', 'route'], algorithm: 'fixed-window', limit: 50, period: 'day' },
    { name: 'log', by: 'address', algorithm: 'sliding-log', limit: 90, period: '1m' },
    { name: 'held', by: 'consumer', algorithm: 'concurrency', limit: 3 },
    { name: 'all', by: 'global', algorithm: 'gcra', limit: 100, period: '1s' },
    { name: 'tokens', by: 'consumer', unit: 'tokens', algorithm: 'token-bucket', limit: 90, period: '1h' },
    { name: 'guesses', on: 'auth-failure', by: 'address', algorithm: 'gcra', limit: 5, period: '1h' },
  ],
  limits: {
    jobs: [{ name: 'queue', by: ['account'], algorithm: 'leaky-bucket', limit: 9, period: '1s', queue: 9 }],
  },
} satisfies Partial<ConfigInput>

const configOf = (input: Partial<ConfigInput>) => checkedConfig({ origin: 'route', ...input })

const examineWith = (
  store: StoreAddress,
  input: Partial<ConfigInput> = SMALL,
  isStopped?: Stopped,
  deadlineMs?: number,
) => examined(examination => examineStore(store, configOf(input), examination, { deadlineMs }), isStopped)

const examine = (rest: { url: string; token?: string }, ...more: [Partial<ConfigInput>?, Stopped?]) =>
  examineWith({ token: TOKEN, ...rest }, ...more)

const examineDirectly = (url: string, input?: Partial<ConfigInput>) => examineWith({ url }, input)

/** With their texts, so that a failure says what was found. */
const faultsOf = (all: readonly Checked[]) => all.filter(({ verdict }) => verdict === 'fault')

describeOnRedis('a store that works', (start, kind) => {
  let redis: TestRedis
  let bridge: Bridge
  beforeAll(async () => {
    redis = await start()
    bridge = await startBridge({ redisUrl: redis.url, token: TOKEN, port: 0, deadlineMs: PATIENT_MS })
  })
  afterAll(async () => {
    await bridge?.close()
    await redis?.close()
  })

  it.each([
    ['a small config', SMALL],
    ['every kind of rule', LARGE],
    ['no key locking', { ...SMALL, store: { keyLocking: false } }],
  ])('has no fault, and keeps only the keys of others: %s', async (_, input) => {
    await redis.connection.send(['SET', 'sluice:{c:acme}:state', 'of a user'])
    const { all, by } = await examine(bridge, input)
    expect(faultsOf(all)).toEqual([])
    for (const name of ['algorithms', 'rules', 'clock', 'script-cache', 'time-in-scripts', 'removal'])
      expect(by[name]).toMatchObject({ verdict: 'ok' })
    expect(String(await redis.connection.send(['KEYS', '*']))).toBe('sluice:{c:acme}:state')
  })

  it.each([
    ['a small config', SMALL],
    ['every kind of rule', LARGE],
  ])('works directly, without HTTP, and skips what only REST has: %s', async (_, input) => {
    await redis.connection.send(['SET', 'sluice:{c:acme}:state', 'of a user'])
    const { all, by } = await examineDirectly(redis.url, input)
    expect(faultsOf(all)).toEqual([])
    expect(by.protocol!.finding).toMatch(/Skipped.*: key-locking\.$/)
    expect(by['key-locking']).toBeUndefined()
    for (const name of ['protocol', 'permissions', 'script-cache', 'algorithms', 'rules', 'clock', 'removal'])
      expect(by[name]).toMatchObject({ verdict: 'ok' })
    expect(String(await redis.connection.send(['KEYS', '*']))).toBe('sluice:{c:acme}:state')
  })

  it.runIf(kind !== 'embedded')('tells version and memory', async () => {
    const { by } = await examine(bridge)
    expect(by.version!.finding).toMatch(/^(Redis|Valkey) \d+\.\d+\.\d+\.$/)
    expect(by.memory).toMatchObject(found('ok', 'Eviction is off'))
  })

  it('removes its keys if it is stopped before the end', async () => {
    const { all } = await examine(bridge, LARGE, done => done.at(-1)?.name === 'rules')
    expect(all.slice(-2).map(({ name, verdict }) => [name, verdict])).toEqual([
      ['rules', 'ok'],
      ['removal', 'ok'],
    ])
    expect(all.at(-1)!.finding).toMatch(/^The [1-9]\d* keys of this examination are removed: none is left\.$/)
    expect(String(await redis.connection.send(['KEYS', '*']))).toBe('sluice:{c:acme}:state')
  })
})

describe.skipIf(!hasRedisServer)('a master that Sentinels watch', () => {
  it('works directly', async () => {
    const sentinels = await startSentinels()
    try {
      const { all, by } = await examineWith({ url: `redis+sentinel://${sentinels.hosts}/${MASTER}` })
      expect(faultsOf(all)).toEqual([])
      expect(by.replicas).toMatchObject({ verdict: 'ok', measured: { replicas: 1 } })
    } finally {
      await sentinels.close()
    }
  })
})

describeOnCluster('a cluster of three', start => {
  let cluster: TestCluster
  let bridge: Bridge
  beforeAll(async () => {
    cluster = await start()
    bridge = await startBridge({ redisUrl: cluster.url, token: TOKEN, port: 0, deadlineMs: PATIENT_MS })
  })
  afterAll(async () => {
    await bridge?.close()
    await cluster?.close()
  })
  const keys = async () => (await Promise.all(cluster.nodes.map(({ port }) => keysAt(port)))).flat()

  it.each([
    ['a small config', SMALL],
    ['every kind of rule', LARGE],
  ])('has no fault with cluster: true, and no key is left on any node: %s', async (_, input) => {
    const { all, by } = await examine(bridge, { ...input, store: { cluster: true } })
    expect(faultsOf(all)).toEqual([])
    expect(by.version!.finding).toContain('a cluster')
    expect([by.rules!.verdict, await keys()]).toEqual(['ok', []])
  })

  it.each([
    ['redis://', () => cluster.url],
    ['redis+cluster://', () => cluster.url.replace(/^redis:\/\/([^/]+).*/, 'redis+cluster://$1,$1')],
  ])('works directly, over %s', async (_, url) => {
    const { all, by } = await examineDirectly(url(), { ...LARGE, store: { cluster: true } })
    expect(faultsOf(all)).toEqual([])
    expect(by.version!.finding).toContain('a cluster')
    expect([by.rules!.verdict, await keys()]).toEqual(['ok', []])
    expect((await examineDirectly(url(), SMALL)).by.version).toMatchObject(found('fault', ' → cluster: true'))
  })

  it('is a fault without cluster: true, which the report names', async () => {
    const { by } = await examine(bridge, LARGE)
    expect(by.version).toMatchObject(found('fault', ' → cluster: true'))
    expect(by.rules).toMatchObject(found('fault', 'CROSSSLOT'))
    expect(await keys()).toEqual([])
  })
})

async function keysAt(port: number): Promise<string[]> {
  const node = new RedisServer(`redis://127.0.0.1:${port}`, PATIENT_MS)
  try {
    await node.connected
    return ((await node.send(['KEYS', '*'])) as Buffer[]).map(String)
  } finally {
    node.destroy()
  }
}

it('the commands that are tried are those that docs/deploy.md grants', () => {
  const names = commandsToTry(name => name).map(([name]) => name.toLowerCase().replace(' ', '|'))
  // Transactions are tried by another check.
  expect([...new Set([...names, 'exec', 'multi'])].sort()).toEqual([...GRANTED].sort())
})

const title = hasRedisServer ? '' : ' (no redis-server is installed)'

describe.skipIf(title)(`a store that lacks one thing${title}`, () => {
  let redis: RedisProcess
  let bridge: Bridge
  const closing: (() => Promise<void>)[] = []
  const bridgeTo = async (redisUrl: string) => {
    const started = await startBridge({ redisUrl, token: TOKEN, port: 0, deadlineMs: PATIENT_MS })
    closing.push(started.close)
    return started
  }
  beforeAll(async () => {
    redis = await startRedisProcess()
    bridge = await bridgeTo(redis.url)
  })
  afterAll(async () => {
    for (const close of closing.reverse()) await close()
    await redis?.close()
  })

  const userWith = async (name: string, ...rules: string[]) => {
    await redis.send('ACL', 'SETUSER', name, 'on', '>secret-of-a-user', '~sluice:*', '+@all', ...rules)
    return await bridgeTo(redis.url.replace('//', `//${name}:secret-of-a-user@`))
  }
  const fake = async (options: Omit<FakeStoreOptions, 'bridge'>) => {
    const started = await startFakeStore({ bridge: { url: bridge.url, token: TOKEN }, ...options })
    closing.push(started.close)
    return started
  }
  const settings = async (wanted: Record<string, string>, run: () => Promise<void>) => {
    const before: [string, string][] = []
    for (const [name, value] of Object.entries(wanted)) {
      before.push([name, String(((await redis.send('CONFIG', 'GET', name)) as unknown[])[1])])
      await redis.send('CONFIG', 'SET', name, value)
    }
    try {
      await run()
    } finally {
      for (const [name, value] of before) await redis.send('CONFIG', 'SET', name, value)
    }
  }

  it('works with limits if persistence is off, and says how to turn it on', async () => {
    const { all, by } = await examine(bridge)
    expect(by.persistence).toMatchObject(found('limit', ' → appendonly yes'))
    expect(overallOf(all)).toBe('works-with-limits')
  })

  it('works with the Redis user of docs/deploy.md, and says what that user cannot see', async () => {
    await redis.send(...SET_USER.split(' '))
    const { all, by } = await examine(await bridgeTo(redis.url.replace('//', `//sluice:${PASSWORD}@`)), LARGE)
    expect(faultsOf(all)).toEqual([])
    expect(by.memory).toMatchObject(found('unknown', ' → +info'))
    expect(overallOf(all)).toBe('works')
  })

  it('works directly with the Redis user of docs/deploy.md, and with a wrong password does not', async () => {
    await redis.send(...SET_USER.split(' '))
    const as = (password: string) => redis.url.replace('//', `//sluice:${password}@`)
    const { all, by } = await examineDirectly(as(PASSWORD), LARGE)
    expect(faultsOf(all)).toEqual([])
    expect(by.permissions!.verdict).toBe('ok')
    expect((await examineDirectly(as('wrong'))).by.protocol).toMatchObject(found('fault', 'WRONGPASS'))
  })

  it('is reached directly, and does not permit EVAL, or is a read-only replica', async () => {
    await redis.send(
      'ACL',
      'SETUSER',
      'direct',
      'on',
      '>of-a-user',
      '~sluice:*',
      '+@all',
      '-eval',
      '-evalsha',
    )
    const { by } = await examineDirectly(redis.url.replace('//', '//direct:of-a-user@'))
    expect(by.permissions).toMatchObject(found('fault', 'EVALSHA'))
    const replica = await startRedisProcess({ replicaof: `${redis.host} ${redis.port}` })
    closing.push(replica.close)
    expect((await examineDirectly(replica.url)).by.replicas!.verdict).toBe('fault')
  })

  it('lacks BITFIELD: a fault for rules that count requests in flight, else a limit', async () => {
    const without = await userWith('nobitfield', '-bitfield')
    expect((await examine(without)).by.permissions).toMatchObject(found('limit', 'does not permit BITFIELD'))
    expect((await examine(without, LARGE)).by.permissions).toMatchObject(
      found('fault', 'does not permit BITFIELD'),
    )
  })

  it('does not permit EVAL and EVALSHA', async () => {
    const { by } = await examine(await userWith('noeval', '-eval', '-evalsha'))
    expect(by.permissions).toMatchObject(found('fault', 'EVAL, EVALSHA'))
    expect(by.rules).toMatchObject(found('fault', 'NOPERM'))
  })

  it('has renamed commands in its redis.conf: a fault for those that decisions take, else a limit', async () => {
    const without = async (...names: string[]) => {
      const lines = names.map(name => `rename-command ${name} ""`).join('\n')
      const renamed = await startRedisProcess({ include: 'renamed.conf' }, directory =>
        writeFileSync(join(directory, 'renamed.conf'), lines),
      )
      closing.push(renamed.close)
      return await examineDirectly(renamed.url)
    }
    const { by } = await without('EVAL', 'EVALSHA', 'INFO')
    expect(by.permissions).toMatchObject(
      found('fault', 'lacks or does not permit EVAL, EVALSHA → remove rename-command'),
    )
    expect([by.struct!.verdict, by.version!.verdict]).toEqual(['unknown', 'unknown'])
    expect((await without('XADD')).by.permissions).toMatchObject(
      found('limit', 'XADD → remove rename-command'),
    )
  })

  it('is a read-only replica', async () => {
    const replica = await startRedisProcess({ replicaof: `${redis.host} ${redis.port}` })
    closing.push(replica.close)
    const { by } = await examine(await bridgeTo(replica.url))
    expect(by.permissions!.finding).toContain('read-only replica')
    expect(by.replicas).toMatchObject(found('fault', 'is a replica'))
    expect(by.removal!.verdict).toBe('ok')
  })

  it('has a token that may only read, as Upstash answers it', async () => {
    const writes = /^(SET|SETEX|HSET|HDEL|Z(ADD|REM)|XADD|E?PEXPIRE|EXPIRE|DEL|UNLINK|BITFIELD|EVAL|SCRIPT)/
    const readOnly = await fake({
      answer: ([name]) =>
        writes.test(String(name))
          ? {
              error: `NOPERM this user has no permissions to run the '${String(name).toLowerCase()}' command`,
            }
          : undefined,
    })
    const { by, all } = await examine(readOnly)
    expect(by.permissions).toMatchObject(found('fault', 'token is read-only'))
    expect(overallOf(all)).toBe('do-not-deploy')
  })

  it.each([
    ['allkeys-lru', 'fault', 'API keys are deleted'],
    ['volatile-ttl', 'limit', 'limits start again'],
  ])('has eviction on: %s', async (policy, verdict, effect) => {
    await settings({ 'maxmemory-policy': policy, maxmemory: '1gb' }, async () => {
      const { memory } = (await examine(bridge)).by
      expect(memory).toMatchObject({ verdict, finding: expect.stringContaining(`Eviction is on (${policy}`) })
      expect(memory!.finding).toContain(effect)
    })
  })

  it.each([
    [0.85, 'limit', 'nearly full'],
    [0.97, 'fault', 'is full'],
  ])('has used %d of its memory', async (share, verdict, finding) => {
    const info = (used: number, max: number) => ({
      result: `redis_version:7.0.0\r\ncluster_enabled:0\r\nmaxmemory_policy:noeviction\r\nused_memory:${used}\r\nmaxmemory:${max}\r\n`,
    })
    const full = await fake({ answer: ([name]) => (name === 'INFO' ? info(1e6 * share, 1e6) : undefined) })
    expect((await examine(full)).by.memory).toMatchObject({
      verdict,
      finding: expect.stringContaining(finding),
    })
  })

  it('refuses changes because its memory is full', async () => {
    await settings({ maxmemory: '1' }, async () => {
      const { by } = await examine(bridge)
      expect(by.permissions).toMatchObject(found('fault', 'memory is full'))
      expect(by.memory!.verdict).toBe('fault')
    })
  })

  it.each([
    [5, '5 s ahead of'],
    [-5, '5 s behind'],
  ])('has a clock that is %d s off', async (seconds, where) => {
    const late = await fake({
      answer: ([name]) =>
        name === 'TIME' ? { result: [String(Math.floor(Date.now() / 1e3) + seconds), '500000'] } : undefined,
    })
    const { clock } = (await examine(late)).by
    expect(clock).toMatchObject(found('limit', ' → synchronize'))
    expect(clock!.finding).toMatch(
      new RegExp(`is ${Math.abs(seconds) - 1}\\.\\d|is ${where}|is \\d(\\.\\d)? s ${where.slice(4)}`),
    )
  })

  it.each([
    [
      'a quota that is used up',
      400,
      '{"error":"ERR max daily request limit exceeded. Limit: 10000"}',
      'quota',
    ],
    [
      'a request that is too large',
      400,
      '{"error":"ERR max request size exceeded. Limit: 10 bytes"}',
      'too large',
    ],
    [
      'a wrong token',
      401,
      '{"error":"WRONGPASS invalid or missing auth token"}',
      'does not accept the token',
    ],
    ['too many requests', 429, '{"error":"too many requests"}', 'limits the rate'],
    ['a web page', 200, '<!doctype html><title>Sign in</title>', 'web page'],
    ['a web page of a proxy', 502, '<html>502 Bad Gateway</html>', 'proxy in front of it'],
    ['a redirection', 302, '', 'redirects'],
    ['another service', 404, '{"message":"not found"}', 'not that of a REST API'],
    ['the bridge without its Redis', 503, '{"error":"ERR Redis cannot be reached"}', 'its Redis does not'],
  ])('answers with %s, which ends the examination', async (_, status, body, finding) => {
    const { all, by } = await examine(await fake({ reply: { status, body, type: 'text/html' } }))
    expect(by.protocol).toMatchObject({ verdict: 'fault', finding: expect.stringContaining(finding) })
    expect(by.protocol!.fix).toBeTruthy()
    expect(all.map(({ name }) => name)).toEqual(['store-address', 'store-tls', 'protocol', 'removal'])
    // Nothing was written, so there is nothing to remove, and the report does not warn of keys that are left.
    expect(by.removal!.verdict).toBe('ok')
  })

  it('loses NOSCRIPT', async () => {
    const losing = await fake({
      async answer([name], real) {
        const answer = await real()
        return name === 'EVALSHA' && answer.error ? { error: 'Failed to execute Redis command' } : answer
      },
    })
    expect((await examine(losing)).by['script-cache']).toMatchObject(found('fault', 'NOSCRIPT'))
  })

  it('counts wrong: its scripts lose the fractions of numbers', async () => {
    const wrong = await fake({
      async answer([name], real) {
        const { result, ...rest } = await real()
        const isRow = name === 'EVALSHA' && Array.isArray(result)
        return { ...rest, result: isRow ? result.map(field => (field === 1 ? 2 : field)) : result }
      },
    })
    const { by } = await examine(wrong)
    expect([by.algorithms!.verdict, by.rules!.verdict]).toEqual(['fault', 'fault'])
    expect(by.algorithms!.finding).toMatch(/counts wrong under .*gcra/)
  })

  it('has a replica that lags, as the server tells it', async () => {
    const info = `role:master\r\nmaster_repl_offset:900\r\nslave0:ip=10.0.0.7,port=6379,state=online,offset=100,lag=25\r\n`
    const lagging = await fake({ answer: ([name]) => (name === 'INFO' ? { result: info } : undefined) })
    const { replicas } = (await examine(lagging)).by
    expect(replicas).toMatchObject(found('limit', 'lags, by 25 s and 800 bytes'))
    expect(replicas!.measured).toEqual({ replicas: 1, lag_seconds: 25, lag_bytes: 800 })
  })

  it.each([
    ['a command', 'PEXPIRE', 'permissions'],
    ['INFO', 'INFO', 'version'],
    ['decisions', 'EVALSHA', 'algorithms'],
  ])(
    'stops answering %s: the examination ends there, and names what was not checked',
    async (_, named, name) => {
      let isHung = false
      const hung = await fake({
        answer: ([command, , keys]) => {
          // A script without keys is not a decision.
          isHung ||= command === named && String(keys) !== '0'
          return isHung ? new Promise(() => {}) : undefined
        },
      })
      const { all, by } = await examineWith(hung, SMALL, undefined, 1000)
      expect(by[name]).toMatchObject(found('fault', 'The store stopped answering'))
      expect(all.slice(-2).map(each => each.name)).toEqual([name, 'removal'])
      expect(by[name]!.finding).toMatch(/ Not checked: .*rules, latency\.$/)
      expect(by.removal).toMatchObject(found('fault', 'may be left'))
      expect(by.removal!.fix).toMatch(/--pattern 'sluice:doctor[a-z0-9]{10}:\*'/)
      expect(overallOf(all)).toBe('do-not-deploy')
      await redis.send('FLUSHALL')
    },
  )

  it('hangs behind its bridge, which says so', async () => {
    const late = { status: 504, body: '{"error":"ERR Redis did not answer in time"}' }
    const { all, by } = await examine(await fake({ reply: late }))
    expect(by.protocol).toMatchObject(found('fault', 'The store stopped answering'))
    expect(all.at(-1)).toMatchObject({ name: 'removal', verdict: 'ok' })
  })

  it('does not permit EXISTS, or answers reads from a replica that lags: its keys are removed all the same', async () => {
    const stale = await fake({
      answer: ([name]) => (name === 'EXISTS' || name === 'GET' ? { result: 1 } : undefined),
    })
    expect((await examine(stale)).by.removal).toMatchObject(found('ok', 'none is left'))
    expect(await redis.send('KEYS', '*')).toEqual([])
  })

  it('refuses the first line of scripts, as Redis does without the bridge', async () => {
    const refusing = await fake({
      answer: ([name, source]) =>
        name === 'EVAL' && String(source).startsWith('#!lua')
          ? { error: 'ERR Unexpected flag in script shebang: allow-key-locking' }
          : undefined,
    })
    expect((await examine(refusing)).by['key-locking']).toMatchObject(found('fault', ' → keyLocking: false'))
  })

  it('locks only the keys of scripts, as Upstash does, or the whole database without keyLocking', async () => {
    const locking = await fake({
      answer: ([name, source]) =>
        name === 'EVAL' && /^#!lua.*\nreturn redis.call\('GET', ARGV/.test(String(source))
          ? {
              error:
                "ERR Dynamic keys are not allowed in Lua scripts when 'allow-key-locking' flag is set. Key was: a",
            }
          : undefined,
    })
    expect((await examine(locking)).by['key-locking']).toMatchObject(found('ok', 'side by side'))
    const without = await examine(locking, { ...SMALL, store: { keyLocking: false } })
    expect(without.by['key-locking']).toMatchObject(found('limit', 'whole database'))
  })

  it('is a cluster, and the config does not say so', async () => {
    const cluster = await fake({
      answer: ([name]) =>
        name === 'INFO' ? { result: 'redis_version:7.2.0\r\ncluster_enabled:1\r\n' } : undefined,
    })
    expect((await examine(cluster)).by.version).toMatchObject(found('fault', ' → cluster: true'))
  })

  it('does not let its keys be removed: the report names their prefix', async () => {
    const kept = await fake({
      answer: ([name]) => (name === 'UNLINK' || name === 'DEL' ? { error: 'NOPERM no' } : undefined),
    })
    const { by } = await examine(kept)
    const prefix = /sluice:doctor[a-z0-9]{10}:/.exec(by.removal!.finding)?.[0]
    expect([by.removal!.verdict, prefix]).toEqual(['fault', expect.any(String)])
    const left = ((await redis.send('KEYS', '*')) as Buffer[]).map(String)
    expect(left.length).toBeGreaterThan(0)
    expect(left.every(key => key.startsWith(prefix!))).toBe(true)
    await redis.send('FLUSHALL')
  })
})

it('a store that cannot be reached: its name does not resolve, or nothing listens', async () => {
  const gone = await examine({ url: 'https://gone.invalid' })
  expect(gone.by['store-address']).toMatchObject({
    verdict: 'fault',
    finding: expect.stringMatching(/does not resolve \(E[A-Z_]+\)/),
  })
  const closed = await examine({ url: 'http://127.0.0.1:1' })
  expect(closed.by.protocol).toMatchObject(found('fault', 'check failed'))
  expect((await examineDirectly('redis://127.0.0.1:1')).by.protocol).toMatchObject(
    found('fault', 'ECONNREFUSED'),
  )
  const clear = await examine({ url: 'http://192.0.2.1' }, SMALL)
  expect(clear.by['store-tls']).toMatchObject(found('fault', 'clear text'))
})
