/**
 * A quota of 100 a second for all workers together. Each worker has a share of it ("limit ÷ workers"), or all of them have one limit in
 * Redis. Time is virtual: the script gets the time of each request, so the same requests have the same results.
 */
import { checkedConfig } from '../../src/config/check/check.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { chanceFrom } from '../../test/simulation/chance.ts'
import type { TestBed } from '../test-bed.ts'
import { throughBridge } from '../transport.ts'
import { count, type Figure, NOON, percent } from './figure.ts'

export const QUOTA = 100
const WORKERS = 4
const SECONDS = 20
const SEED = 20261125

export interface Load {
  what: string
  /** The mean number of requests a second, for each worker. */
  perSecond: readonly number[]
}

const LOADS: readonly Load[] = [
  { what: 'equal: 30 each', perSecond: [30, 30, 30, 30] },
  { what: 'unequal: 84, 24, 9 and 3', perSecond: [84, 24, 9, 3] },
  { what: 'one busy worker: 120', perSecond: [120, 0, 0, 0] },
  { what: 'unequal, below the quota: 56, 16, 6 and 2', perSecond: [56, 16, 6, 2] },
]

/** Whether a request of a worker passes. @param now µs */
export type Decide = (worker: number, now: number) => boolean | Promise<boolean>

export interface Result {
  requests: number
  admitted: number
  /** Of the quota over the whole time. */
  used: number
}

/** Requests arrive at random (Poisson). */
export async function runWorkers({ perSecond }: Load, seconds: number, decide: Decide): Promise<Result> {
  const arrivals = perSecond
    .flatMap((rate, worker) => {
      const chance = chanceFrom(SEED + worker)
      const times: { worker: number; at: number }[] = []
      for (let ms = chance.gapMs(rate); ms < seconds * 1e3; ms += chance.gapMs(rate))
        times.push({ worker, at: NOON + Math.round(ms * 1e3) })
      return times
    })
    .sort((a, b) => a.at - b.at)
  let admitted = 0
  for (const { worker, at } of arrivals) if (await decide(worker, at)) admitted += 1
  return { requests: arrivals.length, admitted, used: admitted / (QUOTA * seconds) }
}

/** `sliding-log`: never more than the quota in any second, wherever the third party's windows begin. */
const rule = { algorithm: 'sliding-log', period: '1s' } as const

const CONFIG = checkedConfig({
  limits: {
    share: [{ ...rule, name: 'second', by: ['run', 'worker'], limit: QUOTA / WORKERS }],
    global: [{ ...rule, name: 'second', by: ['run'], limit: QUOTA }],
  },
})
const LABELS: Readonly<Record<string, string>> = { share: 'limit ÷ workers', global: 'one global limit' }

export async function globalLimit(bed: TestBed): Promise<Figure> {
  const rows: string[][] = []
  for (const load of LOADS) {
    for (const [limit, rules] of CONFIG.limits) {
      let now = NOON
      const clock = { now: () => now, sleep: async () => {} }
      // As many limiters as workers: each has its own memory, as in a process of its own.
      const workers = load.perSecond.map(() =>
        createLimiterOnStore(CONFIG, throughBridge(bed.near).store, { clock }),
      )
      const decide: Decide = async (worker, at) => {
        now = at
        const identity = { run: load.what, worker: String(worker) }
        const own = Object.fromEntries(
          Object.entries(identity).filter(([part]) => rules[0]!.by.includes(part)),
        )
        return (await workers[worker]!.limit(limit, own)).allowed
      }
      const { requests, admitted, used } = await runWorkers(load, SECONDS, decide)
      rows.push([
        ...[load.what, LABELS[limit]!, count(requests), count(admitted)],
        ...[percent(used, 1), percent(requests - admitted, requests)],
      ])
    }
  }
  return {
    sentences: [
      'Ramp needs limits for third-party APIs and tasks that hold globally, over all its workers ([Rate limiting with Redis](https://engineering.ramp.com/rate-limiting-with-redis), 2022).',
      `Four workers share a quota of ${QUOTA} a second. "Limit ÷ workers": ${QUOTA / WORKERS} a second for each. Both are \`sliding-log\` limits by name, decided by the real script in redis-server ` +
        `through the bridge. Requests arrive at random (Poisson, seeded) over ${SECONDS} s, and a refused request is not tried again.`,
      'The time is virtual: the script gets it with each request.',
    ],
    table: {
      head: ['requests a second, by worker', 'limit', 'requests', 'admitted', 'quota used', 'refused'],
      rows,
    },
  }
}
