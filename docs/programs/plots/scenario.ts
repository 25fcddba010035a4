/** What the pictures show: one stream of arrivals, met by each algorithm at the same limit. */
import { checkedConfig } from '../../../src/config/check/check.ts'
import type { NumbersInput } from '../../../src/config/check/rule-schema.ts'
import type { Rule } from '../../../src/config/compile.ts'
import { consumerStateKey } from '../../../src/store/keys.ts'
import { bound } from '../../../test/support/bound.ts'
import type { Evaluate } from './engine.ts'

export const LIMIT = 10
export const PERIOD_SECONDS = 10
export const END_SECONDS = 56

const numbers = { limit: LIMIT, period: `${PERIOD_SECONDS}s` } as const

/** The numbers each algorithm is shown with. A queue of 9 makes ten in the bucket, with the one that departs. */
export const shown: readonly NumbersInput[] = [
  { algorithm: 'fixed-window', ...numbers },
  { algorithm: 'sliding-window', ...numbers },
  { algorithm: 'sliding-log', ...numbers },
  { algorithm: 'token-bucket', ...numbers },
  { algorithm: 'gcra', ...numbers, burst: 1 },
  { algorithm: 'leaky-bucket', ...numbers, queue: 9 },
]

/** In the overview only: its own picture would be that of token-bucket. */
export const comparedOnly: readonly NumbersInput[] = [{ algorithm: 'gcra', ...numbers, burst: 10 }]

/** 30 at once; then two a second, which is twice the limit. After a pause, 12 shortly before a window ends, 12 shortly after, 12 later. */
export const arrivals: readonly number[] = [
  ...times(30, () => 4),
  ...times(28, i => 6 + i / 2),
  ...times(12, () => 39.6),
  ...times(12, () => 40.4),
  ...times(12, () => 45),
]

export interface Answer {
  /** Seconds. */
  at: number
  allowed: boolean
  /** When it goes on to the origin, if it does. */
  departure: number
}

/** What one algorithm says to each arrival. */
export async function replay(input: NumbersInput, evaluate: Evaluate): Promise<Answer[]> {
  const rule = ruleOf(input)
  const key = consumerStateKey(`shown-${rule.tag}`)
  const answers: Answer[] = []
  for (const at of arrivals) {
    const now = START + Math.round(at * 1e6)
    const { verdicts } = await evaluate({ rules: [bound(rule, key)], plans: [], now })
    const { allowed, delay } = verdicts[0]!
    answers.push({ at, allowed, departure: at + delay / 1e6 })
  }
  return answers
}

/** 2026-11-20T12:00:00Z in µs; a window begins there. */
const START = Date.UTC(2026, 10, 20, 12) * 1e3

function ruleOf(input: NumbersInput): Rule {
  const rule = { name: 'shown', by: 'consumer', ...input }
  return checkedConfig({ origin: 'https://api.example.com', rules: [rule] }).rules[0]!
}

function times(n: number, of: (i: number) => number): number[] {
  return Array.from({ length: n }, (_, i) => of(i))
}
