/** After the whole budget of an hour is spent at once: the time until the next request passes, for each algorithm. */
import { IDLE } from '../../src/algorithms/algorithm.ts'
import { ALL_ALGORITHMS } from '../../src/algorithms/all.ts'
import { algorithms } from '../../src/algorithms/index.ts'
import type { LimitRuleInput } from '../../src/config/check/schema.ts'
import { compileLimitRule } from '../../src/config/compile-rule.ts'
import { type Figure, NOON } from './figure.ts'

/** 5,000 an hour, as in the post. A queue holds requests for at most 60 s, so `leaky-bucket` admits fewer at once. */
const RULES = [
  { algorithm: 'fixed-window' },
  { algorithm: 'fixed-window', start: 'first-request' },
  { algorithm: 'sliding-window' },
  { algorithm: 'sliding-log' },
  { algorithm: 'token-bucket', burst: 5000 },
  { algorithm: 'gcra', burst: 5000 },
  { algorithm: 'leaky-bucket', queue: 83 },
].map(numbers => ({ name: numbers.algorithm, limit: 5000, period: '1h', ...numbers }) as LimitRuleInput)

const HOUR_SECONDS = 3600

/**
 * Spends the whole budget at once.
 * @param at seconds since the hour began
 * @returns seconds until the next request of cost 1 passes
 */
export function waitAfterBurning(input: LimitRuleInput, at: number): number {
  const { quota, algorithm } = compileLimitRule(input, ALL_ALGORITHMS)
  const model = algorithms[algorithm]
  const now = NOON + at * 1e6
  const { after } = model.decide({ quota, state: IDLE, now, cost: quota.burst })
  if (!after) throw new Error(`${algorithm} does not admit its whole budget at once.`)
  return model.decide({ quota, state: after.state, now, cost: 1 }).retryAfter / 1e6
}

function spentAtOnce({ limit, ...numbers }: LimitRuleInput): number {
  return 'queue' in numbers ? numbers.queue! + 1 : limit
}

const nameOf = (rule: LimitRuleInput) =>
  'start' in rule ? `${rule.algorithm}, start: '${rule.start}'` : rule.algorithm

export async function burntBudget(): Promise<Figure> {
  const rows = RULES.map(rule => {
    const waits = Array.from({ length: HOUR_SECONDS }, (_, at) => waitAfterBurning(rule, at))
    const mean = waits.reduce((sum, wait) => sum + wait, 0) / waits.length
    const spent = spentAtOnce(rule)
    return [
      ...[nameOf(rule), spent.toLocaleString('en')],
      ...[Math.min(...waits), mean, Math.max(...waits)].map(formatSeconds),
    ]
  })
  return {
    sentences: [
      'Brandur Leach burnt the 5,000 requests an hour of an API at once and found "51 minute(s) before reset" ' +
        '([Rate Limiting, Cells, and GCRA](https://brandur.org/rate-limiting), 2015).',
      'Each algorithm has a limit of 5,000 an hour. Its model spends the whole budget at one instant, in every second of an hour, and says when the next request ' +
        'passes. `leaky-bucket` has a queue of 83, because it holds requests for at most 60 s; the request that passes next is held for about that long. `concurrency` has no period.',
    ],
    table: {
      head: ['algorithm', 'spent at once', 'shortest wait', 'mean wait', 'longest wait'],
      rows,
    },
  }
}

function formatSeconds(seconds: number): string {
  return seconds < 60 ? `${seconds.toFixed(2)} s` : `${(seconds / 60).toFixed(1)} min`
}
