/**
 * `sluicegate serve` with all real parts: its processes, a Redis over a direct connection, keep-alive clients, and an origin that counts.
 * The results do not depend on the speed of the machine.
 */
import { once } from 'node:events'
import { createServer, get, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createToken } from '../../src/ops/tokens.ts'
import { runProcess } from '../support/command-line.ts'
import { PATIENT, PATIENT_MS } from '../support/patience.ts'
import { residentBytes } from '../support/processes.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'
import { startRedisProcess } from '../support/redis-process.ts'
import { type RunningServer, send, startLoad, startServer } from '../support/serve.ts'
import { hasRedisServer } from '../support/servers.ts'

const CONFIG = 'test/support/serve.config.ts'

describe.skipIf(!hasRedisServer)('sluicegate serve', () => {
  let redis: TestRedis
  let origin: Server
  let originUrl: string
  /** Requests that the origin has received, by path. */
  const received = new Map<string, number>()
  /** Ends the replies to /held. */
  const held: (() => void)[] = []
  const MEGABYTE = Buffer.alloc(1e6, 'sluice')

  beforeAll(async () => {
    redis = await startRedis('redis-server')
    origin = createServer(async (request, response) => {
      const path = request.url!
      received.set(path, (received.get(path) ?? 0) + 1)
      if (path === '/held') {
        response.write('first ')
        held.push(() => response.end('second'))
      } else if (path === '/upload') {
        let bytes = 0
        for await (const chunk of request) bytes += chunk.length
        response.end(String(bytes))
      } else if (path === '/download') {
        for (let i = 0; i < 200; i++) if (!response.write(MEGABYTE)) await once(response, 'drain')
        response.end()
      } else response.end('ok')
    }).listen(0, '127.0.0.1')
    await once(origin, 'listening')
    originUrl = `http://127.0.0.1:${(origin.address() as AddressInfo).port}`
  })
  afterAll(async () => {
    origin.closeAllConnections()
    origin.close()
    await redis.close()
  })
  beforeEach(async () => {
    received.clear()
    await redis.connection.send(['FLUSHALL'])
  })

  const running: RunningServer[] = []
  afterEach(async () => {
    for (const server of running.splice(0)) {
      server.kill('SIGKILL')
      await server.exited
    }
  })
  async function start(args?: readonly string[], env: Record<string, string> = {}): Promise<RunningServer> {
    const server = await startServer({ REDIS_URL: redis.url, ORIGIN_URL: originUrl, ...env }, args)
    running.push(server)
    return server
  }

  /** How many units Redis has counted under a rule: it takes one more to read it. */
  async function countedBy(url: string, rule: string, path: string): Promise<number> {
    const { headers } = await send(url + path)
    const [, left] = new RegExp(`"${rule}";r=(\\d+)`).exec(String(headers.ratelimit))!
    return 1e6 - Number(left) - 1
  }

  it('replaces a worker that was killed, and loses only its requests in flight', { retry: 0 }, async () => {
    const server = await start()
    const load = startLoad(`${server.url}/x`)
    await load.replies(200)
    const [victim] = server.workers()
    process.kill(victim!, 'SIGKILL')
    await server.until('worker-started')
    await load.replies(200)
    await load.stop()
    const atOrigin = received.get('/x')!
    const { 200: admitted, ...failed } = load.results as Record<string, number>
    const failures = Object.values(failed).reduce((sum, count) => sum + count, 0)
    // Of eight connections.
    expect(failures, JSON.stringify(failed)).toBeLessThanOrEqual(8)
    expect(Object.keys(failed).filter(code => code !== 'ECONNRESET')).toEqual([])
    expect(atOrigin).toBeGreaterThanOrEqual(admitted!)
    const counted = await countedBy(server.url, 'counted', '/x')
    // Redis has counted what the origin has received, and at most what was lost in between.
    expect(counted).toBeGreaterThanOrEqual(atOrigin)
    expect(counted).toBeLessThanOrEqual(admitted! + failures)
    expect(server.workers()).toHaveLength(2)
    expect(server.workers()).not.toContain(victim)
  })

  it('lets a key that one worker has admitted pass in all of them while Redis is away', async () => {
    const own = await startRedisProcess()
    const [env, config] = [{ REDIS_URL: own.url, ORIGIN_URL: originUrl }, 'test/support/serve-keys.config.ts']
    const server = await startServer(env, ['--workers', '3'], config)
    running.push(server)
    const created = await runProcess(
      ['keys', 'create', '--consumer', 'acme', '--config', config, '--json'],
      env,
    )
    const headers = { authorization: `Bearer ${JSON.parse(created.stdout).key}` }
    expect((await send(`${server.url}/x`, { headers })).status).toBe(200)
    await own.close()
    // At once, so that each worker gets some of them.
    const replies = Array.from({ length: 9 }, () => send(`${server.url}/held`, { headers }))
    await vi.waitFor(() => expect(held).toHaveLength(9), PATIENT)
    for (const release of held.splice(0)) release()
    expect((await Promise.all(replies)).map(({ status }) => status)).toEqual(Array(9).fill(200))
  })

  it('lets admitted keys pass, and no others, in workers that start while Redis is away', async () => {
    const own = await startRedisProcess()
    const [env, config] = [{ REDIS_URL: own.url, ORIGIN_URL: originUrl }, 'test/support/serve-keys.config.ts']
    const server = await startServer(env, ['--workers', '3'], config)
    running.push(server)
    const run = (...args: string[]) => runProcess([...args, '--yes', '--config', config, '--json'], env)
    const create = async (consumer: string) =>
      JSON.parse(
        (await runProcess(['keys', 'create', '--consumer', consumer, '--config', config, '--json'], env))
          .stdout,
      ).key as string
    const [key, revoked, blocked, unused] = await Promise.all(['acme', 'bolt', 'crate', 'dune'].map(create))
    const statuses = async (token: string, count: number) => {
      const headers = { authorization: `Bearer ${token}` }
      const replies = await Promise.all(
        Array.from({ length: count }, () => send(`${server.url}/x`, { headers })),
      )
      return [...new Set(replies.map(({ status }) => status))]
    }
    for (const token of [key, revoked, blocked]) expect(await statuses(token!, 1)).toEqual([200])
    await run('keys', 'revoke', revoked!)
    await run('consumers', 'block', 'crate')
    expect(await statuses(revoked!, 1)).toEqual([401])
    expect(await statuses(blocked!, 1)).toEqual([403])
    await own.close()
    const before = server.workers()
    const verify = async () => {
      expect(await statuses(key!, 12)).toEqual([200])
      // A worker that has seen the revocation may say so.
      expect(await statuses(revoked!, 12)).not.toContain(200)
      expect(await statuses(blocked!, 12)).toEqual([403])
      expect(await statuses(unused!, 12)).toEqual([503])
    }
    await verify()
    for (const pid of before) process.kill(pid, 'SIGKILL')
    await vi.waitFor(async () => {
      // Without workers, nothing listens.
      expect((await send(`${server.url}/x`)).status).toBe(401)
      expect(server.workers()).toHaveLength(3)
      expect(server.workers().filter(pid => before.includes(pid))).toEqual([])
    }, PATIENT)
    await verify()
  })

  it('hands a connection to another worker if the first one is killed before it takes it', async () => {
    const server = await start()
    const [victim] = server.workers()
    // It takes nothing any more, so the first connection in its turn waits.
    process.kill(victim!, 'SIGSTOP')
    const replies = Promise.all(Array.from({ length: 4 }, () => send(`${server.url}/x`)))
    await vi.waitUntil(() => received.get('/x') === 3, PATIENT)
    process.kill(victim!, 'SIGKILL')
    expect((await replies).map(({ status }) => status)).toEqual([200, 200, 200, 200])
  })

  it('frees the units in flight of a worker that was killed after their ttl', async () => {
    const server = await start(['--workers', '1'])
    const stream = get(`${server.url}/held`)
    const [reply] = (await once(stream, 'response')) as [IncomingMessage]
    expect(reply.headers.ratelimit).toContain('"in-flight";r=999')
    const broken = once(reply, 'error')
    process.kill(server.workers()[0]!, 'SIGKILL')
    await broken
    await server.until('worker-started')
    // The one of the dead worker runs out.
    await vi.waitFor(async () => {
      held.length = 0
      const reply = send(`${server.url}/held`)
      reply.catch(() => {})
      await vi.waitUntil(() => held.length > 0, PATIENT)
      for (const end of held.splice(0)) end()
      expect((await reply).headers.ratelimit).toContain('"in-flight";r=999')
    }, PATIENT)
  })

  it('restarts its workers in turn, and every request gets its reply and is counted once', async () => {
    const server = await start()
    const before = server.workers()
    const [load, leased] = [startLoad(`${server.url}/x`), startLoad(`${server.url}/leased`, 4)]
    await load.replies(100)
    server.kill('SIGHUP')
    await server.until('restarted')
    await load.replies(100)
    await Promise.all([load.stop(), leased.stop()])
    expect(server.workers().filter(pid => before.includes(pid))).toEqual([])
    const [admitted, admittedLeased] = [load.results['200']!, leased.results['200']!]
    expect([load.results, leased.results]).toEqual([{ 200: admitted }, { 200: admittedLeased }])
    expect([received.get('/x'), received.get('/leased')]).toEqual([admitted, admittedLeased])
    server.kill('SIGTERM')
    expect(await server.exited).toBe(0)
    const next = await start()
    expect(await countedBy(next.url, 'counted', '/x')).toBe(admitted + admittedLeased)
    // What the workers had leased and not used was given back.
    expect(await countedBy(next.url, 'leased', '/leased')).toBe(admittedLeased)
  })

  it('goes on when nothing reads its log', async () => {
    const server = await start(['--workers', '1'])
    const [first] = server.workers()
    server.closeLog()
    // The primary process and the old worker write log lines.
    server.kill('SIGHUP')
    await vi.waitUntil(() => !server.workers().includes(first!), PATIENT)
    expect((await send(`${server.url}/x`)).status).toBe(200)
    server.kill('SIGTERM')
    expect(await server.exited).toBe(0)
  })

  it('stops when its requests have ended, with code 0', async () => {
    const server = await start()
    const streams = await Promise.all(
      Array.from({ length: 6 }, async () => {
        const [reply] = (await once(get(`${server.url}/held`), 'response')) as [IncomingMessage]
        return reply
      }),
    )
    const load = startLoad(`${server.url}/leased`)
    await load.replies(50)
    server.kill('SIGTERM')
    await server.until('stopping')
    for (const end of held.splice(0)) end()
    for (const stream of streams) {
      let text = ''
      for await (const chunk of stream) text += chunk
      expect(text).toBe('first second')
    }
    expect(await server.exited).toBe(0)
    await load.stop()
    // Afterwards connections are refused, or reset if the server had not accepted them yet. No request was cut off: see the next lines.
    const {
      200: admitted,
      ECONNREFUSED: _,
      ECONNRESET: __,
      ...others
    } = load.results as Record<string, number>
    expect(others).toEqual({})
    expect(received.get('/leased')).toBe(admitted)
    const next = await start()
    expect(await countedBy(next.url, 'leased', '/leased')).toBe(admitted)
    const { headers } = await send(`${next.url}/_sluice/health`)
    expect(headers['content-type']).toBe('application/json')
  })

  it('stops at once after a second signal', async () => {
    const server = await start()
    const stream = get(`${server.url}/held`)
    await once(stream, 'response')
    stream.on('error', () => {})
    server.kill('SIGTERM')
    await server.until('stopping')
    const timer = setInterval(() => server.kill('SIGTERM'), 100)
    // Another one may arrive while Node ends, and end it by itself: shells say 143 as well.
    expect([143, null]).toContain(await server.exited)
    clearInterval(timer)
    held.length = 0
  })

  it('passes on 200 MB in each direction without keeping them in memory', async () => {
    const server = await start(['--workers', '1'])
    const [worker] = server.workers()
    await send(`${server.url}/x`)
    let most = 0
    const timer = setInterval(() => {
      most = Math.max(most, residentBytes(worker!) ?? 0)
    }, 20)
    const before = residentBytes(worker!)!
    const [reply] = (await once(get(`${server.url}/download`), 'response')) as [IncomingMessage]
    let bytes = 0
    for await (const chunk of reply) bytes += chunk.length
    expect(bytes).toBe(200e6)
    const upload = await send(`${server.url}/upload`, {
      method: 'POST',
      headers: { 'transfer-encoding': 'chunked' },
      body: Buffer.alloc(200e6),
    })
    clearInterval(timer)
    expect(String(upload.body)).toBe('200000000')
    expect(most - before).toBeLessThan(100e6)
  })

  it.each(['over a direct connection', 'over the REST protocol'])(
    'serves the API and metrics, %s',
    async kind => {
      const token = 'a token for tests'
      const bridge = await startBridge({ redisUrl: redis.url, token, port: 0, deadlineMs: PATIENT_MS })
      const store = createAdminStore({ url: bridge.url, token })
      const { token: bearer } = await createToken(store, { name: 'test', scopes: ['limits:use'] })
      const SLUICE_METRICS_TOKEN = 'a-long-token-for-metrics'
      const server = await startServer(
        kind.includes('direct')
          ? { REDIS_URL: redis.url, ORIGIN_URL: originUrl, SLUICE_METRICS_TOKEN }
          : {
              ...{ UPSTASH_REDIS_REST_URL: bridge.url, UPSTASH_REDIS_REST_TOKEN: token },
              ...{ ORIGIN_URL: originUrl, SLUICE_METRICS_TOKEN },
            },
      )
      running.push(server)
      const decision = await send(`${server.url}/_sluice/v1/limits/sms`, {
        method: 'POST',
        headers: { authorization: `Bearer ${bearer}`, 'content-type': 'application/json' },
        body: JSON.stringify({ identity: { account: '42' } }),
      })
      expect(JSON.parse(String(decision.body))).toMatchObject({ allowed: true, rules: [{ remaining: 99 }] })
      const metrics = await send(`${server.url}/_sluice/metrics`, {
        headers: { authorization: `Bearer ${SLUICE_METRICS_TOKEN}` },
      })
      expect(String(metrics.body)).toContain('sluice_store_up 1')
      await bridge.close()
    },
  )

  it('ends with an error if its workers always die', async () => {
    const server = await start(['--workers', '1'], { TEST_CRASHES: 'yes' })
    expect(await server.exited).toBe(1)
    expect(server.events().filter(({ event }) => event === 'worker-died')).toHaveLength(6)
    expect(server.events()).toContainEqual(expect.objectContaining({ event: 'crash-loop', level: 'error' }))
  })

  it('writes JSON lines only, also what its config and Node write as text', async () => {
    const server = await start(['--workers', '1'], { TEST_WRITES: 'yes' })
    const written = () => server.events().map(({ event, detail }) => [event, detail])
    for (const who of ['primary', 'worker']) {
      await vi.waitFor(() => expect(written()).toContainEqual(['warning', `Warning: of a ${who}`]), PATIENT)
      expect(written()).toContainEqual(['console', `${who}\nsays`])
      expect(written()).toContainEqual(['console', JSON.stringify({ level: 'info', event: 'forged', who })])
      expect(written()).toContainEqual(['console', `${who} on standard error`])
    }
  })

  describe('says why it cannot start', () => {
    const store = () => ({ REDIS_URL: redis.url, ORIGIN_URL: originUrl })
    const serve = (args: string[], env: Record<string, string>) =>
      runProcess(['serve', '--config', CONFIG, '--workers', '1', ...args], env)

    it('because its port is in use', async () => {
      const { port } = new URL(originUrl)
      const { code, stderr } = await serve(['--port', port], store())
      expect([code, stderr]).toEqual([1, expect.stringContaining(`Port ${port} is in use. Free it`)])
    })

    it.each(['8787', '0'])('because of its host, with the port %s', async port => {
      const { code, stderr } = await serve(['--host', '192.0.2.1', '--port', port], store())
      expect([code, stderr]).toEqual([
        1,
        expect.stringContaining('192.0.2.1 is not an address of this machine'),
      ])
    })

    it.each([
      ['No store is set', [], { ORIGIN_URL: 'https://a.example' }],
      ['Two stores are set', [], { REDIS_URL: 'redis://a', UPSTASH_REDIS_REST_URL: 'https://a.example' }],
      ["Unknown option '--prot'", ['--prot', '1'], {}],
      ["--workers: '0' is not valid. Use auto, or a number from 1 to 256", ['--workers', '0'], {}],
    ])('%s', async (text, args, env) => {
      const { code, stderr } = await serve(args, env as Record<string, string>)
      expect([code, stderr]).toEqual([2, expect.stringContaining(text)])
    })

    it("because ORIGIN_URL is 'route'", async () => {
      const { code, stderr } = await serve([], { ...store(), ORIGIN_URL: 'route' })
      expect([code, stderr]).toEqual([1, expect.stringContaining('ORIGIN_URL: is not valid')])
    })
  })
})
