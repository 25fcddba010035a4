/**
 * For each algorithm a rule, and decisions under it with known results. Of each: at (s), cost; whether it is allowed, remaining, reset after
 * (s), retry after (s; -1: never), delay (s). A test compares them with the models. test/algorithms has many more.
 */
import { ALL_ALGORITHMS, type AlgorithmName } from '../../algorithms/all.ts'
import type { LimitRuleInput } from '../../config/check/rule-schema.ts'
import { compileLimitRule } from '../../config/compile-rule.ts'

const TABLES: Readonly<Record<AlgorithmName, readonly [numbers: object, rows: string]>> = {
  gcra: [
    { limit: 5, period: '5s' },
    '0 6 no 5 0 -1; 0 1 yes 4 1 0; 0 4 yes 0 5 0; 0.999999 1 no 0 4.000001 0.000001; 1 1 yes 0 5 0; 3.5 3 no 2 2.5 0.5; 100 5 yes 0 5 0',
  ],
  'fixed-window': [
    { limit: 3, period: '10s' },
    '100 4 no 3 0 -1; 101 2 yes 1 9 0; 102 2 no 1 8 8; 103 1 yes 0 7 0; 109.999999 1 no 0 0.000001 0.000001; 110 3 yes 0 10 0',
  ],
  'token-bucket': [
    { limit: 5, period: '5s' },
    '0 4 yes 1 4 0; 0 3 no 1 4 2; 1.999999 3 no 2 2.000001 0.000001; 2 3 yes 0 5 0; 3.5 2 no 1 3.5 0.5; 100 5 yes 0 5 0',
  ],
  'leaky-bucket': [
    { limit: 2, period: '1s', queue: 3 },
    '0 5 no 4 0 -1; 0 1 yes 3 0.5 0 0; 0 1 yes 2 1 0 0.5; 0 2 yes 0 2 0 1; 0 1 no 0 2 0.5; 0.5 1 yes 0 2 0 1.5; 2.25 1 yes 2 0.75 0 0.25',
  ],
  'sliding-window': [
    { limit: 10, period: '10s' },
    '104 8 yes 2 16 0; 104 3 no 2 16 7.25; 111.249999 3 no 2 8.750001 0.000001; 111.25 3 yes 0 18.75 0; 115 3 yes 0 15 0; 115 10 no 0 15 15',
  ],
  'sliding-log': [
    { limit: 3, period: '10s' },
    '0 4 no 3 0 -1; 0 1 yes 2 10 0; 4 2 yes 0 10 0; 5 1 no 0 9 5; 9.999999 1 no 0 4.000001 0.000001; 10 1 yes 0 10 0',
  ],
  concurrency: [
    { limit: 2, ttl: '60s' },
    '0 3 no 2 0 -1; 0 1 yes 1 60 0; 10 1 yes 0 60 0; 11 1 no 0 59 59; 70 2 yes 0 60 0',
  ],
}

const microseconds = (seconds = '0') => (seconds === '-1' ? -1 : Math.round(Number(seconds) * 1e6))

/** Times in µs. */
function parseRow(row: string) {
  const [at, cost, allowed, remaining, reset, retry, delay] = row.split(' ')
  const times = {
    resetAfter: microseconds(reset),
    retryAfter: microseconds(retry),
    delay: microseconds(delay),
  }
  const result = { allowed: allowed === 'yes', remaining: Number(remaining), ...times }
  return { at: microseconds(at), cost: Number(cost), result }
}

export const VECTORS = Object.entries(TABLES).map(([name, [numbers, rows]]) => {
  const rule = { ...numbers, name, algorithm: name } as LimitRuleInput
  return { rule: compileLimitRule(rule, ALL_ALGORITHMS), rows: rows.split('; ').map(parseRow) }
})
