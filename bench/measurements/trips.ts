/**
 * Counts the decisions that Redis makes (EVALSHA) where calls go on after a refusal: calls of `acquire` that wait, and a caller that
 * floods a limit.
 */
import { createLimiter } from '../../src/set-ups/limits/create-limiter.ts'
import { totalsOf } from '../redis-statistics.ts'
import { type Findings, neededRow } from '../report.ts'
import type { Rest, TestBed } from '../test-bed.ts'

const RULES = [
  { algorithm: 'gcra', limit: 50, burst: 5, period: '1s' },
  { algorithm: 'token-bucket', limit: 50, burst: 5, period: '1s' },
  { algorithm: 'leaky-bucket', limit: 50, queue: 5, period: '1s' },
  { algorithm: 'fixed-window', limit: 50, period: '1s' },
  { algorithm: 'sliding-window', limit: 50, period: '1s' },
  { algorithm: 'sliding-log', limit: 50, period: '1s' },
] as const

const CALLS = 100
const WAITING = 50
const MOST_PER_CALL = 1.2

const FLOOD = { algorithm: 'gcra', limit: 10, period: '1s' } as const
const FLOOD_MS = 2000
const AT_ONCE = [1, 10] as const
const MOST_PER_ADMISSION = 1.1

export async function trips(bed: TestBed): Promise<Findings> {
  const places = { near: bed.near, 'with Redis 20 ms away': bed.far }
  const waits: { place: string; algorithm: string; perCall: number; seconds: number }[] = []
  const floods: { place: string; atOnce: number; perAdmission: number; admitted: number }[] = []
  for (const [place, rest] of Object.entries(places)) {
    for (const rule of RULES) {
      const startedAt = performance.now()
      const decisions = await decisionsOf(bed, () =>
        acquireAll(limiterOf(rest, rule), `w ${place} ${rule.algorithm}`),
      )
      waits.push({
        ...{ place, algorithm: rule.algorithm, perCall: decisions / CALLS },
        seconds: (performance.now() - startedAt) / 1000,
      })
    }
    for (const atOnce of AT_ONCE) {
      let admitted = 0
      const decisions = await decisionsOf(bed, async () => {
        admitted = await flood(limiterOf(rest, FLOOD), `f ${place} ${atOnce}`, atOnce)
      })
      floods.push({ place, atOnce, perAdmission: decisions / admitted, admitted })
    }
  }
  const mostPerCall = Math.max(...waits.map(({ perCall }) => perCall))
  const [alone] = floods
  return {
    rows: [
      neededRow(
        `decisions of Redis per call of acquire, ${WAITING} waiting, the most of six algorithms`,
        mostPerCall,
        { most: MOST_PER_CALL },
      ),
      neededRow('decisions of Redis per admission, one caller floods gcra 10/s', alone!.perAdmission, {
        most: MOST_PER_ADMISSION,
      }),
    ],
    tables: [
      {
        title: `Calls of acquire that wait: ${CALLS} calls, ${WAITING} at once, 50 a second`,
        head: ['', 'algorithm', 'decisions of Redis per call', 'seconds'],
        rows: waits.map(({ place, algorithm, perCall, seconds }) => [
          place,
          algorithm,
          perCall.toFixed(2),
          seconds.toFixed(1),
        ]),
      },
      {
        title: 'Floods: callers of gcra 10/s that go on at once after each refusal, 2 s',
        head: ['', 'requests at once', 'admitted', 'decisions of Redis per admission'],
        rows: floods.map(({ place, atOnce, admitted, perAdmission }) => [
          ...[place, String(atOnce), String(admitted), perAdmission.toFixed(2)],
        ]),
      },
    ],
    notes: [
      'Decisions of Redis: EVALSHA from INFO commandstats, through the bridge, with the defaults of a config (`refusals`: 1 s).',
    ],
  }
}

/** Runs some work. @returns how many decisions Redis has made for it */
async function decisionsOf({ redis }: TestBed, work: () => Promise<unknown>): Promise<number> {
  const before = await totalsOf(redis)
  await work()
  return (await totalsOf(redis)).scriptCalls - before.scriptCalls
}

function limiterOf(rest: Rest, rule: (typeof RULES)[number] | typeof FLOOD) {
  return createLimiter(
    { limits: { calls: [{ name: 'rate', by: ['account'], ...rule }] } },
    { env: { UPSTASH_REDIS_REST_URL: rest.url, UPSTASH_REDIS_REST_TOKEN: rest.token } },
  )
}

async function acquireAll(limiter: ReturnType<typeof createLimiter>, account: string): Promise<void> {
  let left = CALLS
  await Promise.all(
    Array.from({ length: WAITING }, async () => {
      while (left-- > 0) await limiter.acquire('calls', { account })
    }),
  )
}

/** @returns how many calls were admitted */
async function flood(limiter: ReturnType<typeof createLimiter>, account: string, atOnce: number) {
  let admitted = 0
  const end = performance.now() + FLOOD_MS
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      while (performance.now() < end) {
        const { allowed } = await limiter.limit('calls', { account })
        if (allowed) admitted += 1
        else await new Promise(resolve => setTimeout(resolve, 1))
      }
    }),
  )
  return admitted
}
