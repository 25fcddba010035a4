/**
 * The share of decisions that are made without the store, in an hour of steady load in which redis-server is killed and started again once.
 * Only the time around the restarts is run: limits by name, their REST connection, the bridge, and Redis over sockets.
 */
import { mkdtempSync } from 'node:fs'
import { loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Duration, OnStoreFailure } from '../../src/config/check/schema.ts'
import { startGuardian } from '../../src/node/start/guardian.ts'
import { createLimiter } from '../../src/set-ups/limits/create-limiter.ts'
import type { Limiter } from '../../src/set-ups/limits/limiter.ts'
import { startRedisProcess } from '../../test/support/redis-process.ts'
import { startChild } from '../child.ts'
import { median } from '../measure.ts'
import { count, type Figure, percent } from './figure.ts'

/** Settings under which the same load is decided. */
interface Kind {
  onStoreFailure: OnStoreFailure
  /** `store.breaker.retryAfter` */
  retryAfter: Duration
  /** Isolates that share the load. Five failures in a row open the breaker of an isolate, so a busy one opens it earlier. */
  isolates: number
}

const KINDS: readonly Kind[] = [
  { onStoreFailure: 'local', retryAfter: '1s', isolates: 1 },
  { onStoreFailure: 'closed', retryAfter: '1s', isolates: 1 },
  { onStoreFailure: 'open', retryAfter: '1s', isolates: 1 },
  { onStoreFailure: 'local', retryAfter: '1s', isolates: 10 },
  { onStoreFailure: 'local', retryAfter: '100ms', isolates: 1 },
]

/** Decisions of each kind. */
const PER_SECOND = 100
const CALLERS = 100
/** How often Redis is killed, and after how long it is started again. Without data, a server starts in a few hundredths of a second. */
const DOWNTIMES = [
  { waitMs: 0, times: 7 },
  { waitMs: 2000, times: 3 },
] as const
const CALM_MS = 1500
/** From the start of a server to the next calm time. */
const RECOVERY_MS = 2500

/** One decision. Times are those of `performance.now`. */
export interface Decided {
  endedAt: number
  kind: number
  allowed: boolean
  cause?: string
}

export interface Restart {
  /** The time before the server was started again. */
  waitMs: number
  killedAt: number
  /** Redis answers again. */
  upAt: number
}

export interface Degraded {
  decisions: number
  refused: number
  /** From the kill to the last of them (ms). */
  lastMs: number
}

/** What was decided without the store from each restart to the next. Decisions are of one kind. */
export function degradedOf(decided: readonly Decided[], restarts: readonly Restart[]): Degraded[] {
  const degraded = decided.filter(({ cause }) => cause !== undefined)
  return restarts.map(({ killedAt }, i) => {
    const until = restarts[i + 1]?.killedAt ?? Number.POSITIVE_INFINITY
    const own = degraded.filter(({ endedAt }) => endedAt >= killedAt && endedAt < until)
    return {
      decisions: own.length,
      refused: own.filter(({ allowed }) => !allowed).length,
      lastMs: Math.max(0, ...own.map(({ endedAt }) => endedAt - killedAt)),
    }
  })
}

async function run(): Promise<{ decided: Decided[]; restarts: Restart[] }> {
  const guardian = startGuardian()
  const directory = mkdtempSync(join(tmpdir(), 'sluice-restart-'))
  guardian.guard({ directory })
  const closers: (() => Promise<unknown>)[] = [() => guardian.dismiss()]
  try {
    const redis = await startRedisProcess()
    closers.push(() => redis.close())
    const token = 'token-of-the-benchmark'
    const settings = { redisUrl: `redis://${redis.host}:${redis.port}`, token }
    const bridge = await startChild<{ url: string }>('bridge-process.ts', settings, { guardian, directory })
    closers.push(() => bridge.close())
    const env = { UPSTASH_REDIS_REST_URL: bridge.ready.url, UPSTASH_REDIS_REST_TOKEN: token }
    const limiters = KINDS.map(kind => Array.from({ length: kind.isolates }, () => limiterOf(kind, env)))
    closers.push(() => Promise.all(limiters.flat().map(limiter => limiter.close())))
    // Opens the connections and loads the scripts.
    for (const limiter of limiters.flat()) await limiter.limit('api', { caller: 'warm-up' })
    const load = steadyLoad(limiters)
    const restarts: Restart[] = []
    for (const { waitMs, times } of DOWNTIMES) {
      for (let i = 0; i < times; i++) {
        // Restarts are at different times after the last probe of a breaker.
        await pause(CALM_MS + (i * 1000) / times)
        const killedAt = performance.now()
        await redis.kill()
        await pause(waitMs)
        await redis.start()
        restarts.push({ waitMs, killedAt, upAt: performance.now() })
        await pause(RECOVERY_MS)
      }
    }
    return { decided: await load.stop(), restarts }
  } finally {
    for (const close of closers.reverse()) await close()
  }
}

function limiterOf({ onStoreFailure, retryAfter }: Kind, env: Record<string, string>): Limiter {
  return createLimiter(
    {
      store: { breaker: { retryAfter } },
      limits: {
        api: [{ name: 'second', by: ['caller'], algorithm: 'gcra', limit: 10, period: '1s', onStoreFailure }],
      },
    },
    { env },
  )
}

/** Sends requests at a fixed rate, without waiting for earlier ones, until it is stopped. */
function steadyLoad(limiters: readonly (readonly Limiter[])[]) {
  const startedAt = performance.now()
  const decisions: Promise<Decided>[] = []
  const decide = async (kind: number, i: number): Promise<Decided> => {
    const caller = `${kind}-${i % CALLERS}`
    const { allowed, degraded } = await limiters[kind]![i % KINDS[kind]!.isolates]!.limit('api', { caller })
    return { endedAt: performance.now(), kind, allowed, ...(degraded && { cause: degraded }) }
  }
  let sent = 0
  const timer = setInterval(() => {
    for (const due = ((performance.now() - startedAt) * PER_SECOND) / 1000; sent < due; sent++)
      for (const kind of KINDS.keys()) decisions.push(decide(kind, sent))
  }, 2)
  return {
    async stop() {
      clearInterval(timer)
      return await Promise.all(decisions)
    },
  }
}

const pause = (ms: number) => new Promise<void>(resolve => setTimeout(resolve, ms))

export async function restart(): Promise<Figure> {
  const [load] = loadavg()
  const { decided, restarts } = await run()
  const kinds = KINDS.map((kind, i) => {
    const own = decided.filter(each => each.kind === i)
    return { ...kind, degraded: degradedOf(own, restarts) }
  })
  const rows = DOWNTIMES.flatMap(({ waitMs }) =>
    kinds.map(({ onStoreFailure, retryAfter, isolates, degraded }) => {
      const times = degraded.filter((_, n) => restarts[n]!.waitMs === waitMs)
      const numbers = times.map(({ decisions }) => decisions)
      const mean = sumOf(times, 'decisions') / times.length
      return [
        ...[downtimeOf(restarts, waitMs), `'${onStoreFailure}'`, `'${retryAfter}'`, String(isolates)],
        `${mean.toFixed(0)} (${Math.min(...numbers)} to ${Math.max(...numbers)})`,
        percent(sumOf(times, 'refused'), sumOf(times, 'decisions') || 1, 0),
        `${(Math.max(...times.map(({ lastMs }) => lastMs)) / 1000).toFixed(2)} s`,
        percent(mean, PER_SECOND * 3600, 3),
      ]
    }),
  )
  const calm = decided.filter(
    ({ cause, endedAt }) => cause !== undefined && endedAt < restarts[0]!.killedAt,
  ).length
  const causes = [...new Set(decided.flatMap(({ cause }) => cause ?? []))].sort()
  return {
    sentences: [
      'Stripe lets requests pass if Redis fails, and a comment in its code says "Our observed failure rate is 0.01%" ' +
        "([Paul Tarjan's gist](https://gist.github.com/ptarjan/e38f45f2dfe601419ca3af937fff574d), 2017).",
      `Measured: ${PER_SECOND} decisions a second for each kind of isolates, by limits by name through the bridge, while redis-server is killed and started again without data. ` +
        `In all, ${count(decided.length)} decisions were made, ${calm} of them without the store before the first restart. Causes: ${causes.join(', ')}. Load average before: ${load!.toFixed(1)}.`,
      'The time is scaled: only some seconds around each restart are run. The rest of the hour counts as decided by the store. So a share is the mean number without the store, ' +
        'divided by the decisions of an hour with one restart.',
      'An outage lasts until Redis answers and, if the breaker has opened, until the next probe (`breaker.retryAfter`).',
    ],
    table: {
      head: [
        ...['Redis down for', '`onStoreFailure`', '`breaker.retryAfter`', 'isolates', 'without the store'],
        ...['refused of these', 'longest time without the store', 'share of the hour'],
      ],
      rows,
    },
  }
}

/** From the kill until Redis answers: the median of the restarts, and their range. */
function downtimeOf(restarts: readonly Restart[], waitMs: number): string {
  const took = restarts.filter(each => each.waitMs === waitMs).map(({ killedAt, upAt }) => upAt - killedAt)
  const [middle, least, most] = [median(took), Math.min(...took), Math.max(...took)].map(ms =>
    (ms / 1000).toFixed(2),
  )
  return `${middle} s (${least} to ${most})`
}

function sumOf(degraded: readonly Degraded[], what: 'decisions' | 'refused'): number {
  return degraded.reduce((sum, each) => sum + each[what], 0)
}
