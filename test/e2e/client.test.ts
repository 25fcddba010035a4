/** `sluicegate/client` over real sockets: several processes share a limit of the gateway, and APIs that answer in other styles. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { createClient } from '../../src/client/index.ts'
import type { Isolate } from '../../src/node/serve/isolate.ts'
import { IN_FLIGHT_CLIENT, type InFlightOrder, type InFlightReport } from '../support/in-flight-client.ts'
import { listen } from '../support/listen.ts'
import { PACING_CLIENT, type PacingOrder, type PacingReport } from '../support/pacing-client.ts'
import { PACED_ALGORITHMS, PACED_LIMIT } from '../support/pacing-limit.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'
import { serveInProcess } from '../support/serve.ts'
import { hasRedisServer } from '../support/servers.ts'
import { useStack } from '../support/stack.ts'

const PROCESSES = 4
const SECONDS = 15

describe.skipIf(!hasRedisServer)(`${PROCESSES} processes that share a limit of the gateway`, () => {
  const running = useStack('pacing.config.ts')
  let clients: ChildProcess[]
  beforeAll(async () => {
    clients = Array.from({ length: PROCESSES }, () => fork(PACING_CLIENT, { execArgv: ['--no-warnings'] }))
    await Promise.all(clients.map(client => once(client, 'message')))
  })
  afterAll(() => {
    for (const client of clients) client.kill()
  })

  it.each(PACED_ALGORITHMS)('use most of it, and hardly any call is refused: %s', async algorithm => {
    const url = `${running.stack.url}/${algorithm}`
    // The first request compiles the script.
    await (await fetch(url)).arrayBuffer()
    const order: PacingOrder = { url, atOnce: 10, ms: SECONDS * 1e3 }
    const reports = await Promise.all(
      clients.map(async client => {
        client.send(order)
        return (await once(client, 'message'))[0] as PacingReport
      }),
    )
    const shares = reports.map(({ replies }) => replies['200'] ?? 0)
    const admitted = shares.reduce((sum, share) => sum + share)
    const refused = reports.reduce((sum, { replies }) => sum + (replies['429'] ?? 0), 0)
    const [usedShare, refusedShare] = [admitted / (PACED_LIMIT * SECONDS), refused / (admitted + refused)]
    const lateMs = reports.reduce((sum, report) => sum + report.lateMs, 0)
    const lateShare = lateMs / (PROCESSES * SECONDS * 1e3)
    const percent = (share: number) => `${(100 * share).toFixed(1)} %`
    console.log(
      `${algorithm}: ${percent(usedShare)} used, ${percent(refusedShare)} refused; by process ${shares}; late ${percent(lateShare)} of the time`,
    )
    // test/client/fleet.test.ts has narrow bounds in virtual time. On a busy machine, calls go out late, and what a window has not
    // admitted by its end is lost.
    expect(usedShare).toBeGreaterThanOrEqual(0.8 * (1 - lateShare))
    expect(refusedShare).toBeLessThanOrEqual(0.03)
  })
})

/** Calls of half a second under 20 at once: as many as keep them busy for some seconds, because a process knows no limit at first. */
const JOB_MS = 500
const AT_ONCE = 20
const JOBS = 240

describe.skipIf(!hasRedisServer)('a limit of requests in flight at `serve`', () => {
  let redis: TestRedis
  let origin: Server
  let gateway: Isolate
  beforeAll(async () => {
    redis = await startRedis('redis-server')
    origin = createServer((_, response) => void setTimeout(() => response.end('done'), JOB_MS))
    await listen(origin, 0)
    gateway = await serveInProcess(
      {
        rules: [{ name: 'at-once', by: 'global', algorithm: 'concurrency', limit: AT_ONCE, ttl: '60s' }],
      },
      { REDIS_URL: redis.url, ORIGIN_URL: `http://127.0.0.1:${(origin.address() as AddressInfo).port}` },
    )
  })
  afterAll(async () => {
    await gateway?.stop(0, true)
    origin?.closeAllConnections()
    origin?.close()
    await redis?.close()
  })

  it.each([1, 4])('is kept busy by %i processes', async processes => {
    const clients = Array.from({ length: processes }, () =>
      fork(IN_FLIGHT_CLIENT, { execArgv: ['--no-warnings'] }),
    )
    onTestFinished(() => {
      for (const client of clients) client.kill()
    })
    await Promise.all(clients.map(client => once(client, 'message')))
    const start = performance.now()
    const reports = await Promise.all(
      clients.map(async client => {
        client.send({ url: gateway.url, calls: JOBS / processes } satisfies InFlightOrder)
        return (await once(client, 'message'))[0] as InFlightReport
      }),
    )
    const ms = performance.now() - start
    const used = ((JOBS / AT_ONCE) * JOB_MS) / ms
    const refused = reports.reduce((sum, report) => sum + report.refused, 0)
    console.log(
      `${processes} processes, ${JOBS} calls: ${(ms / 1e3).toFixed(2)} s, ${(100 * used).toFixed(0)} % of the ideal, ${refused} refused`,
    )
    for (const { outcomes } of reports) expect(outcomes).toEqual({ 200: JOBS / processes })
    // test/client/in-flight.test.ts has narrow bounds in virtual time. On a busy machine, calls take much longer than half a second.
    expect(used).toBeGreaterThanOrEqual(0.3)
  })
})

/** An API on a socket. @returns its URL and the times and statuses of its replies */
async function startApi(answer: (request: IncomingMessage, response: ServerResponse) => unknown) {
  const replies: { at: number; status: number }[] = []
  const server = createServer((request, response) => {
    answer(request, response)
    response.end()
    replies.push({ at: performance.now(), status: response.statusCode })
  })
  await listen(server, 0)
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, replies }
}

describe('an API that sends', () => {
  it('only Retry-After: 40 waiting calls make at most one retry for each', async () => {
    let [count, closedUntil] = [0, 0]
    const { url } = await startApi((_, response) => {
      const now = performance.now()
      // Ten calls, then a second without any, again and again.
      if (now >= closedUntil && ++count % 10 === 0) closedUntil = now + 1000
      else if (now < closedUntil) response.writeHead(429, { 'retry-after': '1' })
    })
    /** When the client got the refusals of calls that it sent before it knew of any, and of later ones. */
    const refusedAt = { atFirst: [] as number[], later: [] as number[] }
    const get = createClient({
      async fetch(...args) {
        const wave = refusedAt.atFirst.length === 0 ? 'atFirst' : 'later'
        const response = await fetch(...args)
        if (response.status === 429) refusedAt[wave].push(performance.now())
        return response
      },
    })
    await (await get(url)).arrayBuffer()
    const statuses = await Promise.all(Array.from({ length: 40 }, async () => (await get(url)).status))
    expect(statuses).toEqual(Array(40).fill(200))
    const { atFirst, later } = refusedAt
    for (let i = 1; i < later.length; i++) expect(later[i]! - later[i - 1]!).toBeGreaterThan(900)
    console.log(
      `Retry-After only: ${atFirst.length} of 40 calls refused at first, ${later.length} retries refused`,
    )
  })

  it('X-RateLimit-* with times in seconds since the epoch: calls wait for the next window', async () => {
    const LIMIT = 20
    let [window, count] = [0, 0]
    const { url, replies } = await startApi((_, response) => {
      const now = Math.floor(Date.now() / 3000)
      if (now !== window) [window, count] = [now, 0]
      count += 1
      response.setHeader('x-ratelimit-limit', LIMIT)
      response.setHeader('x-ratelimit-remaining', Math.max(0, LIMIT - count))
      response.setHeader('x-ratelimit-reset', (now + 1) * 3)
      if (count > LIMIT) response.statusCode = 403
    })
    const get = createClient()
    const statuses = await Promise.all(Array.from({ length: 50 }, async () => (await get(url)).status))
    expect(statuses).toEqual(Array(50).fill(200))
    const refused = replies.filter(({ status }) => status === 403).length
    console.log(`X-RateLimit: ${refused} of ${replies.length} calls refused`)
    expect(refused).toBeLessThanOrEqual(2)
  })
})
