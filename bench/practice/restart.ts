/**
 * The share of decisions that are made without the store, in an hour of steady load in which redis-server is killed and started again once.
 * Only the time around the restarts is run: limits by name, their REST connection, the bridge, and Redis over sockets.
 */
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
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
const RESTARTS = 7
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
  killedAt: number
  /** Redis answers again. */
  upAt: number
}

export interface Degraded {
  decisions: number
  /** Before the first restart. */
  inCalm: number
  /** For each restart: decisions without the store, and the time from the kill to the last of them (ms). */
  perRestart: readonly { decisions: number; lastMs: number }[]
  refused: number
  causes: readonly string[]
}

/** What the decisions of one kind say about the restarts. */
export function degradedOf(decided: readonly Decided[], restarts: readonly Restart[]): Degraded {
  const degraded = decided.filter(({ cause }) => cause !== undefined)
  const perRestart = restarts.map(({ killedAt }, i) => {
    const until = restarts[i + 1]?.killedAt ?? Number.POSITIVE_INFINITY
    const own = degraded.filter(({ endedAt }) => endedAt >= killedAt && endedAt < until)
    return { decisions: own.length, lastMs: Math.max(0, ...own.map(({ endedAt }) => endedAt - killedAt)) }
  })
  return {
    decisions: decided.length,
    inCalm: degraded.length - perRestart.reduce((sum, { decisions }) => sum + decisions, 0),
    perRestart,
    refused: degraded.filter(({ allowed }) => !allowed).length,
    causes: [...new Set(degraded.map(({ cause }) => cause!))].sort(),
  }
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
    for (let i = 0; i < RESTARTS; i++) {
      // The restarts are at different times after the last probe of a breaker.
      await pause(CALM_MS + (i * 1000) / RESTARTS)
      const killedAt = performance.now()
      await redis.kill()
      await redis.start()
      restarts.push({ killedAt, upAt: performance.now() })
      await pause(RECOVERY_MS)
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
  const { decided, restarts } = await run()
  const took = restarts.map(({ killedAt, upAt }) => upAt - killedAt)
  const anHour = PER_SECOND * 3600
  const rows = KINDS.map(({ onStoreFailure, retryAfter, isolates }, i) => {
    const { decisions, inCalm, perRestart, refused, causes } = degradedOf(
      decided.filter(({ kind }) => kind === i),
      restarts,
    )
    const numbers = perRestart.map(each => each.decisions)
    const mean = numbers.reduce((sum, n) => sum + n, 0) / numbers.length
    return [
      ...[`'${onStoreFailure}'`, `'${retryAfter}'`, String(isolates), count(decisions)],
      `${mean.toFixed(0)} (${Math.min(...numbers)} to ${Math.max(...numbers)})`,
      `${(Math.max(...perRestart.map(({ lastMs }) => lastMs)) / 1000).toFixed(2)} s`,
      ...[percent(mean, anHour, 3), percent(refused, numbers.reduce((sum, n) => sum + n, 0) || 1, 0)],
      ...[String(inCalm), causes.join(', ')],
    ]
  })
  return {
    sentences: [
      'Stripe lets requests pass if Redis fails, and a comment in its code says "Our observed failure rate is 0.01%" ' +
        "([Paul Tarjan's gist](https://gist.github.com/ptarjan/e38f45f2dfe601419ca3af937fff574d), 2017).",
      `Measured: ${PER_SECOND} decisions a second for each row, by limits by name through the bridge, while redis-server is killed and started again ` +
        `${RESTARTS} times, which takes ${median(took).toFixed(0)} ms (${Math.min(...took).toFixed(0)} to ${Math.max(...took).toFixed(0)}).`,
      `The time is scaled: only ${(CALM_MS + RECOVERY_MS + 500) / 1000} s around each restart are run. The rest of the hour counts as decided by the store, as all decisions between the restarts were. ` +
        'So a share is the mean number without the store, divided by the decisions of an hour with one restart.',
    ],
    table: {
      head: [
        ...[
          '`onStoreFailure`',
          '`breaker.retryAfter`',
          'isolates',
          'decisions',
          'without the store, each restart',
        ],
        ...[
          'longest time without the store',
          'share of an hour',
          'refused of these',
          'without the store otherwise',
          'causes',
        ],
      ],
      rows,
    },
  }
}
