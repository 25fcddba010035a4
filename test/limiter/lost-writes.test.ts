/**
 * A failover to a replica that lost writes: decisions that were not replicated are forgotten, every later decision is right by what the
 * replica has, scripts are loaded again, and the units in flight of isolates that live are counted again at the next renewal.
 */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Timer } from '../../src/clock.ts'
import { checkedConfig } from '../../src/config/check/check.ts'
import { connectRedisStore, type RedisStore } from '../../src/node/redis-store/redis-store.ts'
import type { LimitDecision, Limiter } from '../../src/set-ups/limits/limiter.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { startTcpProxy, type TcpProxy } from '../support/fault-proxy.ts'
import { PATIENT, PATIENT_MS } from '../support/patience.ts'
import { type RedisProcess, startRedisProcess } from '../support/redis-process.ts'
import { hasRedisServer } from '../support/servers.ts'

const title = hasRedisServer ? '' : ' (no redis-server is installed)'
const USER = { user: '42' }
const window = { by: ['user'], algorithm: 'fixed-window', period: '300d' } as const
const CONFIG = checkedConfig({
  store: { deadline: '20s', breaker: false },
  onStoreFailure: 'closed',
  refusals: { rememberFor: 0 },
  units: { tokens: { estimate: 10, ttl: '1h' } },
  limits: {
    calls: [{ ...window, name: 'window', limit: 10 }],
    log: [{ ...window, name: 'log', algorithm: 'sliding-log', limit: 10 }],
    leased: [{ ...window, name: 'leased', limit: 10_000, lease: { for: '10s' } }],
    jobs: [{ name: 'in-flight', by: ['user'], algorithm: 'concurrency', limit: 4, ttl: '3s' }],
    llm: [{ ...window, name: 'tokens', limit: 100, unit: 'tokens' }],
  },
})

describe.skipIf(title)(`a failover to a replica that lost writes${title}`, () => {
  let primary: RedisProcess
  let replica: RedisProcess
  let address: TcpProxy
  const stores: RedisStore[] = []
  /** Of all processes (ms). */
  let now = Date.now()

  beforeEach(async () => {
    primary = await startRedisProcess()
    replica = await startRedisProcess()
    address = await startTcpProxy({ host: primary.host, port: primary.port })
    await replica.send('REPLICAOF', primary.host, String(primary.port))
    await expect
      .poll(async () => String(await replica.send('INFO', 'replication')), PATIENT)
      .toContain('master_link_status:up')
  })
  afterEach(async () => {
    await Promise.all(stores.splice(0).map(store => store.close()))
    await address?.close()
    await Promise.all([primary?.close(), replica?.close()])
  })

  /** A process with a limiter. `tick` runs its timers that are due within so many ms. */
  async function isolate() {
    const store = await connectRedisStore({
      url: `redis://127.0.0.1:${address.port}`,
      deadlineMs: PATIENT_MS,
    })
    stores.push(store)
    const timers = new Set<{ at: number; run: () => void }>()
    const timer: Timer = (ms, run) => {
      const entry = { at: now + ms, run }
      timers.add(entry)
      return () => timers.delete(entry)
    }
    const limiter = createLimiterOnStore(CONFIG, store.store, {
      // µs
      clock: { now: () => now * 1e3, sleep: async () => {}, timer },
    })
    const tick = async (ms: number) => {
      now += ms
      for (const entry of [...timers].filter(({ at }) => at <= now)) {
        timers.delete(entry)
        entry.run()
      }
      await new Promise(setImmediate)
    }
    return { limiter, tick }
  }

  /** Later writes do not reach the replica. */
  async function breakReplication(): Promise<void> {
    const offset = async (server: RedisProcess, name: string) =>
      new RegExp(`${name}:(\\d+)`).exec(String(await server.send('INFO', 'replication')))![1]
    await expect
      .poll(
        async () =>
          (await offset(replica, 'slave_repl_offset')) === (await offset(primary, 'master_repl_offset')),
        PATIENT,
      )
      .toBe(true)
    await replica.send('REPLICAOF', 'NO', 'ONE')
  }

  /** The primary is gone, and its address leads to what was its replica. Waits until a process has connected to it. */
  async function promote(...limiters: Limiter[]): Promise<void> {
    address.target = { host: replica.host, port: replica.port }
    await primary.kill()
    for (const limiter of limiters)
      await expect
        .poll(async () => (await limiter.peek('calls', { user: 'any' })).degraded, PATIENT)
        .toBeUndefined()
  }

  const remaining = async (limiter: Limiter, name: string) =>
    (await limiter.peek(name, USER)).rules[0]!.remaining

  it.each(['calls', 'log'])('forgets what was not replicated, and counts on from there: %s', async name => {
    const { limiter } = await isolate()
    for (let i = 0; i < 3; i++) await limiter.limit(name, USER)
    await breakReplication()
    for (let i = 0; i < 4; i++) await limiter.limit(name, USER)
    expect(await remaining(limiter, name)).toBe(3)
    await promote(limiter)
    expect(await remaining(limiter, name)).toBe(7)
    const decisions: LimitDecision[] = []
    for (let i = 0; i < 9; i++) decisions.push(await limiter.limit(name, USER))
    expect(decisions.map(({ allowed, degraded }) => degraded ?? allowed)).toEqual([
      ...Array(7).fill(true),
      ...[false, false],
    ])
    expect(
      Number(/cmdstat_eval:calls=(\d+)/.exec(String(await replica.send('INFO', 'commandstats')))?.[1]),
    ).toBeGreaterThan(0)
  })

  it('counts units in flight again, which living processes renew', async () => {
    const [a, b] = [await isolate(), await isolate()]
    await breakReplication()
    const held = [await a.limiter.limit('jobs', USER), await a.limiter.limit('jobs', USER)]
    expect(held.map(({ allowed }) => allowed)).toEqual([true, true])
    await promote(a.limiter, b.limiter)
    expect(await remaining(b.limiter, 'jobs')).toBe(4)
    /** While time passes in the first process. */
    const left = () =>
      expect.poll(async () => {
        await a.tick(250)
        return await remaining(b.limiter, 'jobs')
      }, PATIENT)
    await left().toBe(2)
    held[0]!.release()
    await left().toBe(3)
    held[1]!.release()
    await left().toBe(4)
  })

  it('leaves what was not replicated without effect: a settlement, a refund and a lease', async () => {
    const { limiter } = await isolate()
    await limiter.limit('calls', USER)
    await breakReplication()
    const lost = await limiter.limit('calls', USER, { cost: 5 })
    const call = await limiter.reserve('llm', USER)
    expect([lost.allowed, call.allowed]).toEqual([true, true])
    for (let i = 0; i < 40; i++) await limiter.limit('leased', USER)
    await promote(limiter)
    await limiter.refund(lost)
    // The counts of others cannot be distinguished from those that were lost: at most as many are given back, and never more than there are.
    expect(await remaining(limiter, 'calls')).toBeGreaterThanOrEqual(9)
    expect(await remaining(limiter, 'calls')).toBeLessThanOrEqual(10)
    await call.settle({ tokens: 30 })
    now += 11_000
    // The lease has ended. Its return travels with this call, which the new primary counts.
    for (let i = 1; i <= 3; i++) {
      expect(await limiter.limit('leased', USER)).toMatchObject({ allowed: true })
      expect(await remaining(limiter, 'leased')).toBeLessThanOrEqual(10_000)
    }
    expect(await remaining(limiter, 'llm')).toBe(100)
    expect((await limiter.reserve('llm', USER)).degraded).toBeUndefined()
    expect(await remaining(limiter, 'llm')).toBe(90)
    await limiter.close()
  })
})
