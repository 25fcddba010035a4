/** Random numbers of rules, small enough that a few requests reach the limits. */
import * as fc from 'fast-check'
import { countings } from '../../src/algorithms/all.ts'
import { type AlgorithmName, algorithms } from '../../src/algorithms/index.ts'
import type { NumbersInput } from '../../src/config/check/rule-schema.ts'
import type { Rule } from '../../src/config/compile.ts'
import { parseDuration } from '../../src/config/duration.ts'

export const ALGORITHMS = Object.keys(algorithms) as AlgorithmName[]

/** Algorithms that limit requests over time. For `concurrency`, see test/limiter/units/interleavings.test.ts. */
export const ALGORITHMS_OVER_TIME = ALGORITHMS.filter(name => countings[name].state !== 'held')

// fast-check shrinks towards the first item of a list, so the simplest value comes first.
/** Most limits do not divide the periods, so that fractions of a microsecond occur. */
const limits = fc.constantFrom(1, 2, 3, 3, 5, 6, 7, 7, 9, 10)
const periods = fc.constantFrom('1s', '1ms', '7ms', '100ms', '3s', '1m', '1h')
const ttls = fc.constantFrom('1s' as const, '1.5s' as const, '15s' as const, '1h' as const)
const calendars = fc.constantFrom(
  { period: 'day', timeZone: 'Europe/Berlin' },
  { period: 'day', timeZone: 'Asia/Kathmandu' },
  // In Cairo, the clock is put forward over midnight.
  { period: 'day', timeZone: 'Africa/Cairo' },
  { period: 'week', timeZone: 'America/New_York' },
  { period: 'month' },
  { period: 'month', timeZone: 'Pacific/Chatham' },
)

/** A sliding window with a limit of up to seven lots per hour has steps of 10 µs. One with nine or ten lots has steps of 100 µs. */
const LOT = 800_000

/** How many units a test spends as one, so that it can reach large limits. */
export const lotOf = ({ limit }: Pick<Rule, 'limit'>) => (limit >= LOT ? LOT : 1)

const upTo10 = fc.integer({ min: 1, max: 10 })

/** Numbers of an algorithm, without calendar periods and large limits. */
export function plainNumbersOf(algorithm: AlgorithmName): fc.Arbitrary<NumbersInput> {
  const common = { algorithm: fc.constant(algorithm), limit: limits, period: periods }
  switch (algorithm) {
    case 'gcra':
    case 'token-bucket':
      return fc.record({ ...common, burst: upTo10 }) as fc.Arbitrary<NumbersInput>
    case 'leaky-bucket':
      return (fc.record({ ...common, queue: fc.nat(9) }) as fc.Arbitrary<LeakyNumbers>).map(
        withQueueThatDrains,
      )
    case 'fixed-window':
      return fc.record({
        ...common,
        start: fc.constantFrom('clock', 'first-request'),
      }) as fc.Arbitrary<NumbersInput>
    case 'concurrency':
      return fc.record({ algorithm: fc.constant(algorithm), limit: limits, ttl: ttls })
    default:
      return fc.record(common) as fc.Arbitrary<NumbersInput>
  }
}

type LeakyNumbers = Extract<NumbersInput, { algorithm: 'leaky-bucket' }>

/** Shortens the queue: the check refuses a config in which a request could wait for more than a minute. */
function withQueueThatDrains(numbers: LeakyNumbers): LeakyNumbers {
  const most = Math.floor((60e6 * numbers.limit) / parseDuration(numbers.period as string)!)
  return { ...numbers, queue: Math.min(most, numbers.queue ?? 0) }
}

export function numbersOf(algorithm: AlgorithmName): fc.Arbitrary<NumbersInput> {
  const plain = { weight: 6, arbitrary: plainNumbersOf(algorithm) }
  switch (algorithm) {
    case 'fixed-window':
      return fc.oneof(plain, { weight: 4, arbitrary: fc.tuple(limits, calendars).map(ofCalendar) })
    case 'sliding-window':
      return fc.oneof(plain, { weight: 2, arbitrary: limits.map(ofLots) })
    default:
      return plain.arbitrary
  }
}

const ofCalendar = ([limit, calendar]: [number, { period: string; timeZone?: string }]) =>
  ({ algorithm: 'fixed-window', limit, ...calendar }) as NumbersInput

const ofLots = (limit: number): NumbersInput => ({
  algorithm: 'sliding-window',
  limit: limit * LOT,
  period: '1h',
})

export const anyNumbers: fc.Arbitrary<NumbersInput> = fc.oneof(...ALGORITHMS.map(numbersOf))
