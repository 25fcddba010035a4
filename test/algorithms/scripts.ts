/** Random requests together with what the reference says of each: written once, then played on every engine. */
import { expect } from 'vitest'
import { type AlgorithmName, algorithms } from '../../src/algorithms/index.ts'
import type { NumbersInput } from '../../src/config/check/rule-schema.ts'
import type { Rule } from '../../src/config/compile.ts'
import { parseDuration } from '../../src/config/duration.ts'
import type { Outcome } from '../../src/script/evaluation.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import { bound } from '../support/bound.ts'
import type { Engine, TimedEvaluation } from '../support/engines.ts'
import { type Random, SEED } from '../support/random.ts'
import { evaluationOf, NOON } from '../support/traffic.ts'
import { ReferenceLimiter } from './reference.ts'
import { nextWindow } from './windows.ts'

export const ALGORITHMS = Object.keys(algorithms) as AlgorithmName[]
/** Most do not divide the periods, so that fractions of a microsecond come up. */
const LIMITS = [1, 2, 3, 3, 5, 6, 7, 7, 9, 10] as const
const PERIODS = ['1ms', '7ms', '100ms', '1s', '3s', '1m', '1h'] as const
const CALENDARS = [
  { period: 'day', timeZone: 'Europe/Berlin' },
  { period: 'day', timeZone: 'Asia/Kathmandu' },
  // The clock is put forward over midnight.
  { period: 'day', timeZone: 'Africa/Cairo' },
  { period: 'week', timeZone: 'America/New_York' },
  { period: 'month' },
  { period: 'month', timeZone: 'Pacific/Chatham' },
] as const

/** Small numbers, legal ones. */
export function randomNumbers(random: Random, algorithm: AlgorithmName): NumbersInput {
  const period = random.pick(PERIODS)
  const limit = random.pick(LIMITS)
  switch (algorithm) {
    case 'gcra':
    case 'token-bucket':
      return { algorithm, limit, period, burst: random.int(1, 10) }
    case 'leaky-bucket': {
      // Nobody is held longer than a minute.
      const most = Math.floor((60e6 * limit) / parseDuration(period)!)
      return { algorithm, limit, period, queue: random.int(0, Math.min(most, 9)) }
    }
    case 'fixed-window':
      return { algorithm, limit, ...(random.chance(0.4) ? random.pick(CALENDARS) : { period }) }
    case 'sliding-window':
      // With so many units an hour slides in steps of 100 µs.
      return random.chance(0.3)
        ? { algorithm, limit: limit * LOT, period: '1h' }
        : { algorithm, limit, period }
    case 'sliding-log':
      return { algorithm, limit, period }
  }
}

const LOT = 800_000
const lotOf = ({ limit }: Rule) => (limit >= LOT ? LOT : 1)

export type Script = { evaluation: TimedEvaluation; expected: Outcome }[]

interface Scenario {
  random: Random
  requests: number
  /** The rules of the i-th request: asked for once. */
  rules: (i: number) => readonly Rule[]
  start?: number
  cost?: (rule: Rule) => number
  /** Instead of the pauses of randomPause, now and then. */
  pauses?: readonly number[]
}

/** What one request asks of a rule whose limit is about ten: mostly one, now and then nothing or too much. */
const COSTS = [0, 1, 1, 1, 1, 1, 2, 2, 3, 5, 11, 1000] as const

let callers = 0

/** The requests of one caller. */
export function scriptOf({ random, requests, rules, start, cost, pauses }: Scenario): Script {
  const reference = new ReferenceLimiter()
  const key = consumerStateKey(`caller-${callers++}`)
  let now = start ?? NOON + random.int(0, 366 * 86400) * 1e6 + random.int(0, 1e6)
  let expected: Outcome = { status: 'admitted', plan: '', at: now, verdicts: [] }
  return Array.from({ length: requests }, (_, i) => {
    const asked = rules(i)
    now += pauses && random.chance(0.2) ? random.pick(pauses) : randomPause(random, asked, now, expected)
    const shared = random.pick(COSTS)
    const costOf = cost ?? (rule => shared * lotOf(rule))
    const counted = asked.map(rule => bound(rule, key, costOf(rule), now / 1e3))
    const evaluation = evaluationOf(counted, now)
    expected = reference.evaluate(evaluation)
    return { evaluation, expected }
  })
}

/** The pauses at which something changes, and those in between. */
export function randomPause(
  random: Random,
  rules: readonly Rule[],
  now: number,
  { verdicts }: Pick<Outcome, 'verdicts'>,
): number {
  const rule = random.pick(rules)
  const { limit, period } = rule
  const { retryAfter = 0, resetAfter = 0 } = verdicts.find(verdict => verdict.rule === rule) ?? {}
  return random.pick([
    0,
    0,
    1,
    random.int(0, Math.ceil(period / limit)),
    random.int(0, Math.ceil(period / limit)),
    Math.max(0, retryAfter),
    Math.max(0, retryAfter - 1),
    Math.max(0, nextWindow(rule, now) - now + random.int(-1, 1)),
    random.chance(0.3) ? resetAfter : 1,
    random.chance(0.3) ? random.int(2, 3) * period : 0,
  ])
}

/** Plays scripts one after the other; the share of requests that was refused. */
export async function play(engine: Engine, scripts: readonly Script[]): Promise<number> {
  let [requests, refused] = [0, 0]
  for (const [i, script] of scripts.entries()) {
    for (const [j, { evaluation, expected }] of script.entries()) {
      const outcome = await engine.evaluate(evaluation)
      expect(outcome, `script ${i}, request ${j}, SEED=${SEED}`).toEqual(expected)
      requests += 1
      if (outcome.status === 'refused') refused += 1
    }
  }
  return refused / requests
}

/** Made when it is first asked for, and the same for every engine. */
export function once<T>(make: () => T): () => T {
  let made: T | undefined
  return () => {
    made ??= make()
    return made
  }
}
