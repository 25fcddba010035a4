/**
 * Leases with all real parts: two Worker processes in workerd, the REST bridge, a Redis, keep-alive clients, and an origin that counts.
 * The results do not depend on the speed of the machine. A slow one only has fewer requests per lease, and more trips.
 */
import { randomBytes } from 'node:crypto'
import { mkdtempSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { startGuardian } from '../../src/node/start/guardian.ts'
import { type RunningWorker, startWorker } from '../../src/node/start/worker.ts'
import { type AdminStore, createAdminStore } from '../../src/ops/admin-store.ts'
import { peekCaller } from '../../src/ops/limits.ts'
import { type CountingProxy, startCountingProxy } from '../support/counting-proxy.ts'
import { LEASE_LIMITS } from '../support/lease-limits.ts'
import configInput from '../support/leases.config.ts'
import { startOrigin, type TestOrigin } from '../support/origin.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { startRedis } from '../support/redis.ts'
import { hasRedisServer } from '../support/servers.ts'

type Path = keyof typeof LEASE_LIMITS

const ADDRESS = '10.4.0.1'
const AT_ONCE = 8
const PATIENTLY = { timeout: PATIENT_MS, interval: 50 }

const title = hasRedisServer
  ? 'two Workers on one Redis'
  : 'two Workers on one Redis (no redis-server is installed)'

describe.skipIf(!hasRedisServer)(title, () => {
  const parts: { close(): Promise<unknown> }[] = []
  let store: CountingProxy
  let admin: AdminStore
  let origin: TestOrigin
  let workers: RunningWorker[]
  beforeAll(async () => {
    const token = randomBytes(12).toString('hex')
    const guardian = startGuardian()
    parts.push({ close: () => guardian.dismiss() })
    const directory = mkdtempSync(join(tmpdir(), 'sluice-'))
    guardian.guard({ directory })
    const redis = await startRedis('redis-server')
    parts.push(redis)
    const bridge = await startBridge({ redisUrl: redis.url, token, port: 0, deadlineMs: PATIENT_MS })
    parts.push(bridge)
    store = await startCountingProxy(bridge.url)
    parts.push(store)
    origin = await startOrigin()
    parts.push(origin)
    admin = createAdminStore({ url: bridge.url, token })
    workers = await Promise.all(
      ['a', 'b'].map(name =>
        startWorker({
          ...{ guardian, directory: join(directory, name), host: '127.0.0.1', port: 0, watch: false },
          configFile: fileURLToPath(new URL('../support/leases.config.ts', import.meta.url)),
          bindings: {
            UPSTASH_REDIS_REST_URL: store.url,
            UPSTASH_REDIS_REST_TOKEN: token,
            ORIGIN_URL: origin.url,
          },
        }),
      ),
    )
    parts.push(...workers)
  })
  afterAll(async () => {
    for (const part of parts.reverse()) await part.close()
  })

  /** Sends this many requests, some at once on kept connections. @returns their number by status, where 0 means that no reply came */
  async function load(worker: RunningWorker, path: Path, requests: number): Promise<Record<number, number>> {
    const agent = new Agent({ keepAlive: true, maxSockets: AT_ONCE })
    const statuses: Record<number, number> = {}
    let sent = 0
    const ask = () =>
      new Promise<number>(resolve => {
        const headers = { 'cf-connecting-ip': ADDRESS }
        request(`${worker.url}/${path}`, { agent, headers }, reply =>
          reply
            .resume()
            .once('end', () => resolve(reply.statusCode!))
            .once('error', () => resolve(0)),
        )
          .once('error', () => resolve(0))
          .end()
      })
    const client = async () => {
      while (sent < requests) {
        sent += 1
        const status = await ask()
        statuses[status] = (statuses[status] ?? 0) + 1
      }
    }
    await Promise.all(Array.from({ length: AT_ONCE }, client))
    agent.destroy()
    return statuses
  }

  const received = (path: Path) => origin.received.filter(({ url }) => url === `/${path}`).length

  /** Units that the store counts as spent. */
  async function spent(path: Path): Promise<number> {
    const { standings } = await peekCaller(admin, checkedConfig(configInput), { address: ADDRESS })
    return LEASE_LIMITS[path] - standings.find(({ rule }) => rule.name === path)!.remaining
  }

  it('make fewer trips than requests, and the store counts exactly the requests that reach the origin', async () => {
    const requests = 1500
    store.count()
    const statuses = await Promise.all(workers.map(worker => load(worker, 'spared', requests)))
    expect(statuses).toEqual([{ 200: requests }, { 200: requests }])
    await expect.poll(() => spent('spared'), PATIENTLY).toBe(2 * requests)
    expect(received('spared')).toBe(2 * requests)
    // Includes the trips that give units back.
    const trips = store.count()
    expect(trips).toBeLessThan(2 * requests)
    if (process.env.SOAK) console.log(`${trips} trips for ${2 * requests} requests`)
  })

  it('never admit more than the limit, even when it is used up', async () => {
    const requests = 2200
    const statuses = await Promise.all(workers.map(worker => load(worker, 'used', requests)))
    const [admitted, refused] = [200, 429].map(status =>
      statuses.reduce((sum, each) => sum + (each[status] ?? 0), 0),
    )
    expect(admitted! + refused!).toBe(2 * requests)
    expect(received('used')).toBe(admitted)
    expect(admitted).toBeLessThanOrEqual(LEASE_LIMITS.used)
    expect(refused).toBeGreaterThanOrEqual(2 * requests - LEASE_LIMITS.used)
    await expect.poll(() => spent('used'), PATIENTLY).toBe(admitted)
  })

  // Runs last, because its Worker is not restarted.
  it('a killed Worker loses at most the units that it held, and the other one continues', async () => {
    const [one, other] = workers as [RunningWorker, RunningWorker]
    const requests = 1000
    const loads = Promise.all([load(one, 'killed', requests), load(other, 'killed', requests)])
    await expect.poll(() => received('killed'), { ...PATIENTLY, interval: 1 }).toBeGreaterThan(200)
    // The process leads its own group, which includes workerd.
    process.kill(-one.pid, 'SIGKILL')
    const [ofOne, ofOther] = await loads
    expect(ofOther).toEqual({ 200: requests })
    const lostBy = async () => (await spent('killed')) - received('killed')
    // More units are missing until the other Worker has given its own back.
    const most = (ofOne[200] ?? 0) + 2 * AT_ONCE
    await expect.poll(lostBy, PATIENTLY).toBeLessThanOrEqual(most)
    expect(await lostBy()).toBeGreaterThanOrEqual(0)
  })
})
