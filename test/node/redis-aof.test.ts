/**
 * Redis with `appendonly yes` and `appendfsync always`, killed under load: after its restart, every admitted request is still counted, and
 * a decision is charged under all of its rules or under none. A decision is one script, and Redis writes all that a script has changed
 * into its file as one transaction.
 *
 * Each request names a job of its own. So the counter of the job shows whether the request was charged, and the counter of all jobs must
 * be the number of these jobs.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { createLimiter } from '../../src/set-ups/limits/create-limiter.ts'
import { PATIENT, PATIENT_MS } from '../support/patience.ts'
import { randomFrom, SEED } from '../support/random.ts'
import { type RedisProcess, startRedisProcess } from '../support/redis-process.ts'
import { hasRedisServer } from '../support/servers.ts'

const TOKEN = 'a token for tests'
const LIMIT = 800
const KILLS = 4
/** Requests at once. */
const CLIENTS = 16
/** At how many places the file is cut within the last decision. */
const CUTS = 8

const common = { algorithm: 'fixed-window', period: '300d', onStoreFailure: 'closed' } as const

const title = hasRedisServer ? '' : ' (no redis-server is installed)'

describe.skipIf(title)(`a Redis that is killed under load${title}`, () => {
  let redis: RedisProcess
  let bridge: Bridge
  let limiter: ReturnType<typeof createLimiter>
  /** The jobs whose request was admitted. */
  let admitted: Set<string>
  let jobs = 0

  beforeEach(async () => {
    admitted = new Set()
    redis = await startRedisProcess({ appendonly: 'yes', appendfsync: 'always' })
    bridge = await startBridge({ redisUrl: redis.url, token: TOKEN, port: 0, deadlineMs: PATIENT_MS })
    const rules = [
      { ...common, name: 'all', limit: LIMIT },
      { ...common, name: 'job', by: ['job'], limit: 5 },
    ]
    limiter = createLimiter(
      { store: { deadline: '20s' }, limits: { jobs: rules }, log: { perSecond: 0 } },
      { env: { UPSTASH_REDIS_REST_URL: bridge.url, UPSTASH_REDIS_REST_TOKEN: TOKEN } },
    )
  })
  afterEach(async () => {
    await bridge?.close()
    await redis?.close()
  })

  async function ask() {
    const job = String(jobs++)
    const decision = await limiter.limit('jobs', { job })
    if (decision.allowed) admitted.add(job)
    return { ...decision, job }
  }

  /** Sends requests from all clients until each has got an answer that admits nothing. */
  const load = () =>
    Promise.all(
      Array.from({ length: CLIENTS }, async () => {
        while ((await ask()).allowed);
      }),
    )

  /** The jobs that have a counter, and the units of the counter of all jobs. Waits until the limiter has noticed that Redis is back. */
  async function charges(): Promise<{ jobs: Set<string>; units: number }> {
    const { rules } = await vi.waitUntil(async () => {
      const peeked = await limiter.peek('jobs', { job: 'none' })
      return !peeked.degraded && peeked
    }, PATIENT)
    const keys = (await redis.send('KEYS', 'sluice:{l:jobs}:state:job=*')) as Buffer[]
    const { remaining } = rules.find(({ name }) => name === 'all')!
    return { jobs: new Set(keys.map(key => String(key).split('=')[1]!)), units: LIMIT - remaining }
  }

  it('has counted every admitted request, and each decision under all rules or none', async () => {
    const random = randomFrom(SEED)
    for (let kill = 0; kill < KILLS; kill++) {
      const killAt = admitted.size + random.int(10, 150)
      const loading = load()
      await vi.waitUntil(() => admitted.size >= killAt, { ...PATIENT, interval: 1 })
      await redis.kill()
      await loading
      await redis.start()
      const charged = await charges()
      expect(charged.units, `SEED=${SEED}`).toBe(charged.jobs.size)
      expect(
        [...admitted].filter(job => !charged.jobs.has(job)),
        `SEED=${SEED}`,
      ).toEqual([])
    }
    // Now the limit is reached.
    await load()
    const { jobs, units } = await charges()
    expect([jobs.size, units]).toEqual([LIMIT, LIMIT])
    // Of the requests in flight at a kill, some were charged without an answer. The others were not charged.
    expect(admitted.size).toBeGreaterThanOrEqual(LIMIT - KILLS * CLIENTS)
    expect(admitted.size).toBeLessThanOrEqual(LIMIT)
  })

  it('has charged all rules of the last decision or none, wherever its file ends', async () => {
    const folder = join(redis.directory, 'appendonlydir')
    const file = join(folder, readdirSync(folder).find(name => name.endsWith('.incr.aof'))!)
    for (let i = 0; i < 3; i++) await ask()
    const before = readFileSync(file).length
    const last = await ask()
    expect(last.allowed).toBe(true)
    await redis.kill()
    const whole = readFileSync(file)
    expect(whole.subarray(before).toString()).toMatch(/MULTI.*:state\b.*:state:job=.*EXEC/s)
    const step = Math.floor((whole.length - before) / CUTS)
    const ends = [
      ...Array.from({ length: CUTS }, (_, i) => before + i * step),
      whole.length - 1,
      whole.length,
    ]
    const isCharged = []
    for (const end of ends) {
      writeFileSync(file, whole.subarray(0, end))
      await redis.start()
      const { jobs, units } = await charges()
      expect([end, units]).toEqual([end, jobs.size])
      isCharged.push(jobs.has(last.job))
      await redis.kill()
    }
    expect(isCharged).toEqual(ends.map(end => end === whole.length))
  })
})
