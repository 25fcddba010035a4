/** A process whose callers wait for units in flight, by one of two ways. Reports when it has ended what it has used. */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createClient } from 'redis'
import { randomName } from '../../src/base62.ts'
import { checkedConfig } from '../../src/config/check/check.ts'
import { connectRedisStore } from '../../src/node/redis-store/redis-store.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import type { Store } from '../../src/store/store.ts'
import { childSettings, reportReady } from '../child.ts'

export type Way = 'acquire' | 'polling'

export interface Settings {
  /** `unix://…` */
  url: string
  key: string
  way: Way
  limit: number
  jobMs: number
  callers: number
  /** ms since the epoch, the same for all processes. */
  startAt: number
  seconds: number
}

export interface Used {
  jobs: number
  /** The time of all jobs within the measured time (ms). */
  busyMs: number
  trips: number
}

/** As redis-semaphore does it by default. */
const POLL_MS = 10
const TTL_MS = 60_000

const { url, key, way, limit, jobMs, callers, startAt, seconds } = childSettings<Settings>()
const used: Used = { jobs: 0, busyMs: 0, trips: 0 }
const pass = (ms: number) => new Promise<void>(resolve => setTimeout(resolve, ms))

/** @returns releases the unit */
type Take = (key: string) => Promise<() => unknown>

async function acquiring(): Promise<Take> {
  const { store } = await connectRedisStore({ url, deadlineMs: 10_000 })
  const counted: Store = {
    ...store,
    run(...args) {
      used.trips += 1
      return store.run(...args)
    },
  }
  const config = checkedConfig({
    store: { deadline: '10s' },
    rules: [],
    limits: { jobs: [{ name: 'at-once', by: ['key'], algorithm: 'concurrency', limit }] },
  })
  const limiter = createLimiterOnStore(config, counted)
  return async key => {
    const { release } = await limiter.acquire('jobs', { key })
    return release
  }
}

async function polling(): Promise<Take> {
  const source = readFileSync(new URL('../published/concurrency.lua', import.meta.url), 'utf8')
  const sha = createHash('sha1').update(source).digest('hex')
  const redis = createClient({ socket: { path: url.slice('unix://'.length), tls: false } })
  await redis.connect()
  await redis.scriptLoad(source)
  return async key => {
    const name = randomName(12)
    for (;;) {
      used.trips += 1
      const args = [String(limit), String(TTL_MS), name, String(Date.now())]
      const [allowed] = (await redis.evalSha(sha, { keys: [key], arguments: args })) as number[]
      if (allowed === 1) break
      await pass(POLL_MS)
    }
    return () => {
      used.trips += 1
      return redis.zRem(key, name)
    }
  }
}

const take = await (way === 'acquire' ? acquiring() : polling())
for (let i = 0; i < 300; i++) await (await take(`warm-${key}-${process.pid}`))()
used.trips = 0
await pass(startAt - Date.now())
const endAt = performance.now() + seconds * 1e3
void Promise.all(
  Array.from({ length: callers }, async () => {
    for (;;) {
      const release = await take(key)
      const begunAt = performance.now()
      await pass(jobMs)
      used.busyMs += Math.max(0, Math.min(performance.now(), endAt) - begunAt)
      if (performance.now() < endAt) used.jobs += 1
      release()
    }
  }),
)
await pass(seconds * 1e3)
reportReady(used)
