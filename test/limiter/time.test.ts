/**
 * Clocks and numbers at their extremes: a clock that jumps or is set back (a failover to a Redis that is behind), the
 * smallest and largest limits, periods and costs that a config can have.
 */
import { expect, it } from 'vitest'
import type { AlgorithmName } from '../../src/algorithms/index.ts'
import { MAX_LOG_LIMIT } from '../../src/algorithms/sliding-log.ts'
import { MAX_WINDOW_COUNT } from '../../src/algorithms/sliding-window.ts'
import type { NumbersInput, RuleInput } from '../../src/config/check/rule-schema.ts'
import type { Rule } from '../../src/config/compile.ts'
import { ConfigError } from '../../src/config/config-error.ts'
import type { BoundRule, Outcome, Verdict } from '../../src/script/evaluation.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import { type Admitted, unitsOf, violationOf } from '../algorithms/guarantees.ts'
import { ALGORITHMS, once, play, randomNumbers, randomPause, scriptOf } from '../algorithms/scripts.ts'
import { windowOf } from '../algorithms/windows.ts'
import { bound } from '../support/bound.ts'
import {
  describeOnEngines,
  describeOnRedisEngine,
  type Engine,
  ModelEngine,
  rulesOf,
} from '../support/engines.ts'
import { type Random, randomFrom, SEED } from '../support/random.ts'
import { evaluationOf, NOON } from '../support/traffic.ts'

const HOUR = 3600e6
const YEAR = 365 * 24 * HOUR

const ruleOf = (numbers: NumbersInput): Rule => rulesOf({ ...numbers, name: 'a', by: 'consumer' })[0]!

/** What the config check lets through at the ends of each range; the third is a prime. */
const WIDE = [
  { limit: 1, period: '366d' },
  { limit: 1e9, period: '1s' },
  { limit: 999_999_937, period: '1s' },
  { limit: 1e9, period: '1ms' },
  { limit: 1, period: '1ms' },
] as const
const EXTREMES: readonly NumbersInput[] = [
  ...WIDE.flatMap(numbers => [
    { algorithm: 'gcra' as const, ...numbers },
    { algorithm: 'token-bucket' as const, ...numbers },
    { algorithm: 'fixed-window' as const, ...numbers },
  ]),
  { algorithm: 'gcra', limit: 1e9, period: '366d' },
  { algorithm: 'gcra', limit: 999_999_937, period: '366d', burst: 71 },
  { algorithm: 'gcra', limit: 1, period: '366d', burst: 2 },
  { algorithm: 'token-bucket', limit: 1, period: '1ms', burst: 1e9 },
  { algorithm: 'fixed-window', limit: 1e9, period: '366d' },
  { algorithm: 'sliding-window', limit: MAX_WINDOW_COUNT, period: '1ms' },
  { algorithm: 'sliding-window', limit: MAX_WINDOW_COUNT, period: '366d' },
  { algorithm: 'sliding-window', limit: 1, period: '366d' },
  { algorithm: 'sliding-log', limit: MAX_LOG_LIMIT, period: '1ms' },
  { algorithm: 'sliding-log', limit: MAX_LOG_LIMIT, period: '366d' },
  { algorithm: 'sliding-log', limit: 1, period: '366d' },
  { algorithm: 'leaky-bucket', limit: 1e9, period: '1m', queue: 1e9 },
  { algorithm: 'leaky-bucket', limit: 999_999_937, period: '1s', queue: 999_999_937 },
  { algorithm: 'leaky-bucket', limit: 1, period: '366d', queue: 0 },
  { algorithm: 'leaky-bucket', limit: 1, period: '1m', queue: 1 },
]

/** From one unit to more than all, and what is just within and just beyond. */
function anyCost(random: Random, { quota: { burst } }: Rule): number {
  return random.pick([0, 1, 1, burst - 1, burst, burst + 1, Math.ceil(burst / 3), random.int(1, burst), 1e9])
}

const JUMPS = [1, HOUR, 13 * HOUR, YEAR, 366 * 24 * HOUR] as const

const atTheExtremes = EXTREMES.map(numbers => ({
  title: `${numbers.algorithm}, ${numbers.limit} per ${numbers.period}`,
  script: once(() => {
    const random = randomFrom(SEED)
    const rules = [ruleOf(numbers)]
    return scriptOf({
      random,
      requests: 12,
      rules: () => rules,
      cost: rule => anyCost(random, rule),
      pauses: JUMPS,
    })
  }),
}))

/** Up to the first of March, and over it. */
const overALeapDay = once(() => {
  const random = randomFrom(SEED)
  return (['day', 'week', 'month'] as const).map(period => {
    const rules = [ruleOf({ algorithm: 'fixed-window', limit: 3, period, timeZone: 'Asia/Tokyo' })]
    return scriptOf({
      random,
      requests: 30,
      rules: () => rules,
      start: Date.UTC(2028, 1, 26) * 1e3,
      pauses: [5 * HOUR, 11 * HOUR],
    })
  })
})

describeOnEngines('a reply', fresh => {
  it.each(atTheExtremes)(
    `is exact for $title, over jumps of hours and a year (SEED=${SEED})`,
    async ({ script }) => {
      await play(await fresh(), [script()])
    },
  )

  it(`is exact over a leap day (SEED=${SEED})`, async () => {
    await play(await fresh(), overALeapDay())
  })
})

/** Any legal rule: each number from its smallest to its largest, as often small as large. */
function anyNumbers(random: Random): NumbersInput {
  const upTo = (most: number) => Math.floor(Math.exp((random.int(0, 1e6) / 1e6) * Math.log(most + 1)))
  const algorithm = random.pick(ALGORITHMS)
  for (;;) {
    const numbers = {
      algorithm,
      limit: Math.max(1, upTo(1e9)),
      period: `${Math.max(1, upTo(366 * 86400e3))}ms`,
      ...(['gcra', 'token-bucket'].includes(algorithm) && { burst: Math.max(1, upTo(1e9)) }),
      ...(algorithm === 'leaky-bucket' && { queue: upTo(1e9) }),
    } as NumbersInput
    try {
      ruleOf(numbers)
      return numbers
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error
    }
  }
}

function expectSane({ verdicts }: Outcome, where: string): void {
  for (const { remaining, resetAfter, retryAfter, delay } of verdicts) {
    for (const field of [remaining, resetAfter, retryAfter === -1 ? 0 : retryAfter, delay]) {
      expect(Number.isInteger(field) && field >= 0 && field <= 2 ** 52, `${field}, ${where}`).toBe(true)
    }
  }
}

describeOnRedisEngine('numbers of any size', fresh => {
  it(`are read alike by model and script, with refunds, and over jumps to and fro (SEED=${SEED})`, async () => {
    const random = randomFrom(SEED)
    const redis = await fresh()
    let refunds = 0
    for (let set = 0; set < 20; set++) {
      const model = new ModelEngine()
      const rules = rulesOf(
        ...Array.from(
          { length: random.int(1, 3) },
          (_, i) => ({ ...anyNumbers(random), name: `rule-${i}`, by: 'consumer' }) as RuleInput,
        ),
      )
      const key = consumerStateKey(`any-${set}`)
      let now = NOON + random.int(0, 1e9)
      let expected: Outcome = { status: 'admitted', plan: '', at: now, verdicts: [] }
      const admittedAt: number[] = []
      for (let i = 0; i < 16; i++) {
        const back = random.chance(0.15)
        const jump = random.pick([1, 999, ...JUMPS, ...rules.map(({ period }) => period)])
        now += back
          ? -Math.min(jump, YEAR)
          : random.chance(0.2)
            ? jump
            : randomPause(random, rules, now, expected)
        // A record ends on a whole millisecond.
        if (random.chance(0.3)) now = Math.ceil(now / 1e3) * 1e3
        const isRefund = random.chance(0.3)
        const where = `set ${set}, request ${i}, SEED=${SEED}`
        if (isRefund) {
          const refunded = rules.map(rule => {
            const units = random.pick([0, 1, 1, rule.quota.burst, 1e9])
            return { ...bound(rule, key), units, spent: units + random.pick([0, 0, 3]) }
          })
          const spentAt = random.pick([now, now - 1, now + 1, ...admittedAt.slice(-2)])
          const refund = { rules: refunded, spentAt, now }
          const changed = await model.refund(refund)
          expect(await redis.refund(refund), where).toEqual(changed)
          expectSane({ ...expected, ...changed, status: 'admitted' }, where)
          refunds += 1
          continue
        }
        const evaluation = evaluationOf(
          rules.map(rule => bound(rule, key, random.chance(0.7) ? anyCost(random, rule) : 1)),
          now,
        )
        expected = await model.evaluate(evaluation)
        expect(await redis.evaluate(evaluation), where).toEqual(expected)
        expectSane(expected, where)
        if (expected.status === 'admitted') admittedAt.push(now)
      }
    }
    expect(refunds).toBeGreaterThan(40)
  })
})

describeOnRedisEngine('a clock that goes to and fro', fresh => {
  it.each(ALGORITHMS)(`leaves the same of %s in model and script (SEED=${SEED})`, async algorithm => {
    const random = randomFrom(SEED)
    const redis = await fresh()
    for (let set = 0; set < 4; set++) {
      const model = new ModelEngine()
      const rule = ruleOf(randomNumbers(random, algorithm))
      const span = Math.ceil(rule.period / random.int(1, 10))
      let now = NOON
      for (let i = 0; i < 30; i++) {
        now += random.chance(0.2) ? -random.int(0, rule.period) : random.int(0, span)
        const cost = random.pick([0, 1, 1, 1, 2, rule.quota.burst])
        const counted = bound(rule, consumerStateKey(`fro-${set}`), cost, now / 1e3)
        const where = `set ${set}, request ${i}, SEED=${SEED}`
        if (random.chance(0.15)) {
          const refund = { rules: [{ ...counted, units: 1, spent: 1 }], spentAt: now, now }
          const expected = await model.refund(refund)
          expect(await redis.refund(refund), where).toEqual(expected)
          continue
        }
        const evaluation = evaluationOf([counted], now)
        const expected = await model.evaluate(evaluation)
        expect(await redis.evaluate(evaluation), where).toEqual(expected)
      }
    }
  })
})

/** In µs: how long it takes until all is back, and so how long anything is remembered. */
const spanOf = ({ algorithm, period, limit, quota }: Rule) =>
  ['gcra', 'token-bucket', 'leaky-bucket'].includes(algorithm)
    ? Math.ceil((quota.burst * period) / limit)
    : period

/** The longest that this cost can be refused while the clock only goes forward. */
const longestWait = (rule: Rule, cost: number) => {
  switch (rule.algorithm) {
    case 'fixed-window':
    case 'sliding-log':
      return rule.period
    case 'sliding-window':
      return 2 * rule.period
    default:
      return Math.ceil((cost * rule.period) / rule.limit)
  }
}

let callers = 0

/** A caller that can also ask what would be said, at any instant: a second rule refuses, so that nothing is spent. */
class Caller {
  readonly #engine: Engine
  readonly #key = consumerStateKey(`caller-${callers++}`)
  readonly #barred = rulesOf({ name: 'barred', by: 'address', algorithm: 'gcra', limit: 1, period: '1s' })
  readonly rule: Rule

  constructor(engine: Engine, rule: Rule) {
    this.#engine = engine
    this.rule = rule
  }

  async spend(cost: number, now: number): Promise<Verdict> {
    return await this.#ask([bound(this.rule, this.#key, cost, now / 1e3)], now)
  }

  async look(cost: number, now: number): Promise<Verdict> {
    const never = bound(this.#barred[0]!, this.#key, 2)
    return await this.#ask([bound(this.rule, this.#key, cost, now / 1e3), never], now)
  }

  async #ask(rules: BoundRule[], now: number): Promise<Verdict> {
    return (await this.#engine.evaluate(evaluationOf(rules, now))).verdicts[0]!
  }
}

describeOnEngines('a clock that is set back', fresh => {
  it.each(ALGORITHMS)(
    `gives nobody the limit of %s again, and locks nobody out (SEED=${SEED})`,
    async algorithm => {
      const random = randomFrom(SEED)
      const engine = await fresh()
      for (let set = 0; set < (engine instanceof ModelEngine ? 60 : 5); set++) {
        const where = `set ${set}, SEED=${SEED}`
        const caller = new Caller(engine, ruleOf(withoutCalendar(random, algorithm)))
        const { rule } = caller
        const { burst } = rule.quota
        const span = spanOf(rule)
        const [before, after]: [Admitted[], Admitted[]] = [[], []]
        const spend = async (cost: number, now: number, list: Admitted[]) => {
          const verdict = await caller.spend(cost, now)
          if (verdict.allowed) list.push({ at: now, cost, delay: verdict.delay })
          return verdict
        }

        let now = NOON + random.int(0, 1e6)
        for (let i = 0; i < 5; i++) {
          now += random.int(0, Math.ceil(span / 3))
          await spend(random.int(1, burst), now, before)
        }
        now += random.pick([0, 1, random.int(0, span)])
        const cost = random.int(1, burst)
        const then = await caller.look(cost, now)

        const back = random.pick([
          1,
          1000,
          random.int(1, span),
          random.int(1, span),
          span,
          3 * span + 1,
          YEAR,
        ])
        now -= back
        const since = await caller.look(cost, now)
        expect(since.retryAfter, where).toBeLessThanOrEqual(longestWait(rule, cost) + span)
        if (back <= span) {
          expect(since.remaining, where).toBeLessThanOrEqual(then.remaining)
          expect(since.retryAfter, where).toBeLessThanOrEqual(then.retryAfter + back)
          expect(since.retryAfter, where).toBeGreaterThanOrEqual(then.retryAfter)
        }

        // Greedily from then on: all that is left, and one more as soon as it fits.
        let left = since.remaining
        for (let i = 0; i < 6; i++) {
          if (left > 0) await spend(left, now, after)
          const { retryAfter } = await caller.look(1, now)
          now += retryAfter
          const fits = await spend(1, now, after)
          expect(fits.allowed, where).toBe(true)
          left = fits.remaining
        }
        expect(violationOf(rule, after), where).toBeUndefined()
        if (back <= span) expectNoMoreThanBefore(rule, before, after, where)
      }
    },
  )

  it('by a year and a half, still keeps what a slow rule has spent, also when others are written', async () => {
    const engine = await fresh()
    const [slow, fast] = rulesOf(
      { name: 'slow', by: 'consumer', algorithm: 'gcra', limit: 1, period: '366d', burst: 2 },
      { name: 'fast', by: 'consumer', algorithm: 'fixed-window', limit: 9, period: '1h' },
    )
    const key = consumerStateKey('slow')
    await engine.evaluate(evaluationOf([bound(slow!, key, 2), bound(fast!, key)], NOON))
    const now = NOON - 1.5 * YEAR
    await engine.evaluate(evaluationOf([bound(fast!, key)], now))
    const { verdicts } = await engine.evaluate(evaluationOf([bound(slow!, key, 0)], now))
    expect(verdicts[0]!.remaining).toBe(0)
  })

  it('or put forward by days, keeps the limits of the calendar, though the gateway has not noticed', async () => {
    const engine = await fresh()
    for (const off of [-40, -3, -2, -1, 1, 2, 3, 40]) {
      const rule = ruleOf({ algorithm: 'fixed-window', limit: 5, period: 'day', timeZone: 'Europe/Berlin' })
      const now = NOON + off * 24 * HOUR
      let admitted = 0
      for (let i = 0; i < 20; i++) {
        const counted = bound(rule, consumerStateKey(`off-${off}`), 1, NOON / 1e3)
        const { status } = await engine.evaluate(evaluationOf([counted], now + i * 1e6 + 1))
        if (status === 'admitted') admitted += 1
      }
      expect(admitted, `${off} days`).toBe(5)
    }
  })
})

function withoutCalendar(random: Random, algorithm: AlgorithmName): NumbersInput {
  for (;;) {
    const numbers = randomNumbers(random, algorithm)
    // A step of 100 µs makes no difference here, and its lots do.
    if (numbers.limit < 100 && !['day', 'week', 'month'].includes(numbers.period)) return numbers
  }
}

/** Where it is remembered what was spent, what came before the clock was set back and what came after go together. */
function expectNoMoreThanBefore(rule: Rule, before: Admitted[], after: Admitted[], where: string): void {
  // A log forgets what had passed when its newest entry came.
  const logged = (before.at(-1)?.at ?? 0) - rule.period
  const remembered = before.filter(({ at }) => rule.algorithm !== 'sliding-log' || at > logged)
  const all = [...remembered, ...after].toSorted((a, b) => a.at - b.at)
  if (rule.algorithm !== 'fixed-window' && rule.algorithm !== 'sliding-window') {
    // Departures are told by two clocks.
    const promised: Rule = rule.algorithm === 'leaky-bucket' ? { ...rule, algorithm: 'gcra' } : rule
    expect(violationOf(promised, all), where).toBeUndefined()
    return
  }
  // What is spent in the old window again counts in the one that had begun: two in a row have the limit of two.
  const perWindow = Map.groupBy(all, ({ at }) => windowOf(rule, at))
  for (const [window, spent] of perWindow) {
    const next = unitsOf(perWindow.get(window + 1) ?? [])
    expect(unitsOf(spent) + next, where).toBeLessThanOrEqual(2 * rule.limit)
  }
}
