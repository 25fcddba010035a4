/**
 * Three limits at once, 10 a second, 120 a minute and 240 an hour, and a client that sends 100 requests a second. Compares what passes if
 * a request is counted before it is decided, as in published pipelines, with what passes if a refused request is not counted.
 */
import { ALL_ALGORITHMS } from '../../src/algorithms/all.ts'
import type { Duration } from '../../src/config/check/schema.ts'
import { compileLimitRule } from '../../src/config/compile-rule.ts'
import { bindRule } from '../../src/limiter/bind.ts'
import type { Command, RedisConnection, Reply } from '../../src/node/rest-bridge/redis-connection.ts'
import { decodeDecide, encodeDecide } from '../../src/script/decide.ts'
import type { BoundRule } from '../../src/script/evaluation.ts'
import { ScriptModel } from '../../src/script/model.ts'
import { createLimiter } from '../../src/set-ups/limits/create-limiter.ts'
import { limitStateKey } from '../../src/store/keys.ts'
import { ruleSetOf } from '../../test/support/rule-set.ts'
import { WINDOWS } from '../rules.ts'
import type { TestBed } from '../test-bed.ts'
import { count, type Figure, NOON } from './figure.ts'

export interface Window {
  name: string
  period: Duration
  milliseconds: number
  limit: number
}

/** Whether a request at this time (ms) passes. */
export type Limiter = (now: number) => boolean

export type WindowAlgorithm = 'fixed-window' | 'sliding-window' | 'sliding-log'

/** For a run in real time: a minute is 4 s, an hour 12 s, and each has a sixth of the units. */
const SCALED: readonly Window[] = [
  { name: 'second', period: '1s', milliseconds: 1e3, limit: 10 },
  { name: 'minute', period: '4s', milliseconds: 4e3, limit: 20 },
  { name: 'hour', period: '12s', milliseconds: 12e3, limit: 40 },
]

const PER_SECOND = 100
const GAP_MS = 1000 / PER_SECOND
const HOUR_SECONDS = 3600
/** Commands that are written to Redis before the first reply is awaited. */
const BATCH = 500

/** INCR and EXPIRE: each request, refused or not, starts the time to live of the key again. */
function renewedKey({ milliseconds, limit }: Window): Limiter {
  let [units, expiresAt] = [0, 0]
  return now => {
    units = now < expiresAt ? units + 1 : 1
    expiresAt = now + milliseconds
    return units <= limit
  }
}

/** INCR of a key that has the number of the window in its name. */
function keyOfWindow({ milliseconds, limit }: Window): Limiter {
  let [window, units] = [-1, 0]
  return now => {
    const current = Math.floor(now / milliseconds)
    units = current === window ? units + 1 : 1
    window = current
    return units <= limit
  }
}

/** Counts in all windows, and then compares. */
function inOnePipeline(keys: readonly Limiter[]): Limiter {
  return now => keys.map(key => key(now)).every(Boolean)
}

/** Counts in one window after the other, up to the first that is over its limit. */
function inTurn(keys: readonly Limiter[]): Limiter {
  return now => keys.every(key => key(now))
}

/** The limiters that count first, by what they do. */
export const COUNTING_FIRST: Readonly<Record<string, (windows: readonly Window[]) => Limiter>> = {
  'INCR and EXPIRE of each window in one pipeline, then compare': windows =>
    inOnePipeline(windows.map(renewedKey)),
  'the same, with the time of the window in each key': windows => inOnePipeline(windows.map(keyOfWindow)),
  'one such key after the other, the longest window first, up to the first that is over': windows =>
    inTurn(windows.toReversed().map(keyOfWindow)),
  'one such key after the other, the shortest window first (`over_limit_multi`)': windows =>
    inTurn(windows.map(keyOfWindow)),
}

function bindWindows(windows: readonly Window[], algorithm: WindowAlgorithm): BoundRule[] {
  const key = limitStateKey('counted', [])
  return windows.map(({ name, period, limit }) =>
    bindRule(compileLimitRule({ name, algorithm, limit, period }, ALL_ALGORITHMS), key, 1, NOON / 1e3),
  )
}

/** The model of the script. */
export function sluiceModel(windows: readonly Window[], algorithm: WindowAlgorithm): Limiter {
  const model = new ScriptModel()
  const rules = bindWindows(windows, algorithm)
  const ruleSet = { plans: [], leases: false }
  return now => model.decide({ ruleSet, rules, now: now * 1e3 }).status === 'admitted'
}

/** How many of a client's requests pass, from the beginning of an hour. */
export function admittedBy(limiter: Limiter, seconds: number): number {
  let admitted = 0
  for (let i = 0; i < seconds * PER_SECOND; i++) if (limiter(NOON / 1e3 + i * GAP_MS)) admitted += 1
  return admitted
}

/** The same requests through the real script in Redis, which gets the time of each as an argument. */
async function admittedByScript(redis: RedisConnection, algorithm: WindowAlgorithm): Promise<number> {
  const rules = bindWindows(WINDOWS, algorithm)
  const ruleSet = ruleSetOf(rules)
  await redis.send(['SCRIPT', 'LOAD', ruleSet.decide.plain.source])
  const decide = async (now: number) => {
    const evaluation = { ruleSet, rules, now }
    const { script, keys, args } = encodeDecide(evaluation)
    const reply = await redis.send(['EVALSHA', script.plain.sha1, String(keys.length), ...keys, ...args])
    return decodeDecide(textOf(reply), evaluation).status === 'admitted'
  }
  let admitted = 0
  for (let first = 0; first < HOUR_SECONDS * PER_SECOND; first += BATCH) {
    const batch = Array.from({ length: BATCH }, (_, i) => decide(NOON + (first + i) * GAP_MS * 1e3))
    for (const isAdmitted of await Promise.all(batch)) if (isAdmitted) admitted += 1
  }
  return admitted
}

function textOf(reply: Reply): unknown {
  if (Array.isArray(reply)) return reply.map(textOf)
  return Buffer.isBuffer(reply) ? reply.toString() : reply
}

/** Both in real time, by the clock of Redis: the pipeline as MULTI … EXEC, and a limit by name through the bridge. */
async function admittedInRealTime({ redis, near }: TestBed): Promise<{ pipeline: number; sluice: number }> {
  const limiter = createLimiter(
    {
      limits: {
        scaled: SCALED.map(({ name, period, limit }) => ({
          ...{ name, period, limit },
          algorithm: 'fixed-window' as const,
        })),
      },
    },
    { env: { UPSTASH_REDIS_REST_URL: near.url, UPSTASH_REDIS_REST_TOKEN: near.token } },
  )
  const pipeline: Command[] = SCALED.flatMap(({ name, milliseconds }) => [
    ['INCR', `naive:${name}`],
    ['PEXPIRE', `naive:${name}`, String(milliseconds)],
  ])
  const passes = async () => {
    const replies = await redis.transaction(pipeline)
    return SCALED.every(({ limit }, i) => Number(replies[2 * i]) <= limit)
  }
  const hour = SCALED.at(-1)!.milliseconds
  // Loads the script. This unit is counted in an earlier hour.
  await limiter.limit('scaled')
  await pause(hour - (Date.now() % hour) + 1)
  const startedAt = performance.now()
  const decisions: Promise<[pipeline: boolean, sluice: boolean]>[] = []
  for (let i = 0; i < (hour - 100) / GAP_MS; i++) {
    await pause(startedAt + i * GAP_MS - performance.now())
    decisions.push(Promise.all([passes(), limiter.limit('scaled').then(({ allowed }) => allowed)]))
  }
  const all = await Promise.all(decisions)
  await limiter.close()
  return {
    pipeline: all.filter(([isAdmitted]) => isAdmitted).length,
    sluice: all.filter(([, isAdmitted]) => isAdmitted).length,
  }
}

const pause = (ms: number) => new Promise<void>(resolve => setTimeout(resolve, Math.max(0, ms)))

export async function countingBug(bed: TestBed): Promise<Figure> {
  const hour = WINDOWS.at(-1)!.limit
  const scaledHour = SCALED.at(-1)!.limit
  const row = (how: string, limiter: string, admitted: number, of: number) => [
    ...[how, limiter],
    `${admitted} of ${of}`,
  ]
  const modelled = `modelled, ${count(HOUR_SECONDS * PER_SECOND)} requests`
  const rows = Object.entries(COUNTING_FIRST).map(([what, limiterOf]) =>
    row(modelled, what, admittedBy(limiterOf(WINDOWS), HOUR_SECONDS), hour),
  )
  for (const algorithm of ['fixed-window', 'sliding-window', 'sliding-log'] as const) {
    const limiter = sluiceModel(WINDOWS, algorithm)
    rows.push(row(modelled, `Sluice, ${algorithm}`, admittedBy(limiter, HOUR_SECONDS), hour))
  }
  const script = await admittedByScript(bed.redis, 'fixed-window')
  const inRedis = `redis-server with the time given, ${count(HOUR_SECONDS * PER_SECOND)} requests`
  rows.push(row(inRedis, 'Sluice, fixed-window', script, hour))
  const { pipeline, sluice } = await admittedInRealTime(bed)
  const [naive] = Object.keys(COUNTING_FIRST)
  rows.push(row('redis-server in real time, scaled', naive!, pipeline, scaledHour))
  rows.push(row('redis-server in real time, scaled', 'Sluice, fixed-window', sluice, scaledHour))
  return {
    sentences: [
      'Josiah Carlson showed limits of 10 a second, 120 a minute and 240 an hour, and the problem that refused requests are counted as well ' +
        '([Introduction to rate limiting with Redis](https://www.dr-josiah.com/2014/11/introduction-to-rate-limiting-with.html), 2014). ' +
        '[His code](https://gist.github.com/josiahcarlson/80584b49da41549a7d5c) has the function `over_limit_multi`.',
      'A client sends 100 requests a second from the beginning of an hour. If a refused request counts as well, it uses up the longer limits, or starts their ' +
        'time again.',
      'Scaled, in real time: a minute is 4 s with 20 units, and an hour 12 s with 40.',
    ],
    table: { head: ['run', 'limiter', 'admitted in the hour'], rows },
  }
}
