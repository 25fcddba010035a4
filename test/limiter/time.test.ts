/**
 * Extreme clocks and numbers: a clock that jumps or is set back (a failover to a Redis whose clock is behind), and the smallest and
 * largest limits, periods and costs of a config.
 */
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import { countings } from '../../src/algorithms/all.ts'
import { MAX_LOG_LIMIT } from '../../src/algorithms/sliding-log.ts'
import { MAX_WINDOW_COUNT } from '../../src/algorithms/window.ts'
import type { NumbersInput } from '../../src/config/check/rule-schema.ts'
import type { Rule } from '../../src/config/compile.ts'
import { ConfigError } from '../../src/config/config-error.ts'
import type { BoundRule, Verdict } from '../../src/script/evaluation.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import { expectReference } from '../algorithms/following.ts'
import { type Admitted, unitsOf, violationOf } from '../algorithms/guarantees.ts'
import { windowOf, windowsFromRequests } from '../algorithms/windows.ts'
import { sized } from '../selection.ts'
import { bound } from '../support/bound.ts'
import {
  describeOnEngines,
  describeOnRedisEngine,
  type Engine,
  ModelEngine,
  rulesOf,
  runsFor,
} from '../support/engines.ts'
import { ALGORITHMS, ALGORITHMS_OVER_TIME, numbersOf, plainNumbersOf } from '../support/numbers.ts'
import { forEvery } from '../support/property.ts'
import { SEED } from '../support/random.ts'
import {
  costs,
  costsOfAnySize,
  evaluationOf,
  listOf,
  NOON,
  namedRules,
  newCaller,
  ruleOf,
  unitsFor,
} from '../support/traffic.ts'
import { after, type Pause, pauses } from '../support/waits.ts'

const HOUR = 3600e6
const YEAR = 365 * 24 * HOUR

/** The smallest and largest numbers that the config check allows. The third limit is a prime. */
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
    { algorithm: 'fixed-window' as const, ...numbers, start: 'first-request' as const },
  ]),
  { algorithm: 'gcra', limit: 1e9, period: '366d' },
  { algorithm: 'gcra', limit: 999_999_937, period: '366d', burst: 71 },
  { algorithm: 'gcra', limit: 1, period: '366d', burst: 2 },
  { algorithm: 'token-bucket', limit: 1, period: '1ms', burst: 1e9 },
  { algorithm: 'fixed-window', limit: 1e9, period: '366d' },
  { algorithm: 'fixed-window', limit: 1e9, period: '366d', start: 'first-request' },
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

const JUMPS = [1, HOUR, 13 * HOUR, YEAR, 366 * 24 * HOUR] as const

/** Pauses up to the events of rules, and sometimes a jump of the clock. */
const withJumps = (...jumps: number[]) =>
  fc.oneof({ weight: 4, arbitrary: pauses }, { weight: 1, arbitrary: fc.constantFrom(...jumps) })

/** More runs on the model, which is fast and predicts the scripts (parity.test.ts). */
const runsOn = (engine: Engine) => (engine instanceof ModelEngine ? 5 : 1)

describeOnEngines('a reply', fresh => {
  it.each(EXTREMES)(
    `is exact for $algorithm, $limit per $period, over jumps of hours and a year (SEED=${SEED})`,
    async numbers => {
      const engine = await fresh()
      const rules = [ruleOf(numbers)]
      const jumping = fc.record({ pause: withJumps(...JUMPS), cost: costsOfAnySize })
      await forEvery(fc.record({ steps: listOf(jumping, 16, 8) }), runsOn(engine), async ({ steps }) => {
        await expectReference(engine, steps, () => rules)
      })
    },
  )

  it.each(['day', 'week', 'month'] as const)(
    `is exact over a leap day for windows of a %s (SEED=${SEED})`,
    async period => {
      const engine = await fresh()
      const rules = [ruleOf({ algorithm: 'fixed-window', limit: 3, period, timeZone: 'Asia/Tokyo' })]
      // The steps lead up to March 1, and past it.
      const walking = fc.record({ pause: withJumps(5 * HOUR, 11 * HOUR), cost: costs })
      await forEvery(fc.record({ steps: listOf(walking, 40, 20) }), runsOn(engine), async ({ steps }) => {
        await expectReference(engine, steps, () => rules, Date.UTC(2028, 1, 26) * 1e3)
      })
    },
  )
})

/** Whole numbers whose logarithms are evenly distributed, so small and large ones are equally frequent. */
const upTo = (most: number, least = 1) =>
  fc.nat(1e6).map(n => Math.max(least, Math.floor(Math.exp((n / 1e6) * Math.log(most + 1)))))

/** Any valid rule: each number between its minimum and its maximum. */
const legalNumbers: fc.Arbitrary<NumbersInput> = fc
  .record({
    algorithm: fc.constantFrom(...ALGORITHMS),
    limit: upTo(1e9),
    period: upTo(366 * 86400e3).map(ms => `${ms}ms`),
    more: upTo(1e9),
  })
  .map(({ more, ...numbers }) => {
    const { algorithm } = numbers
    if (algorithm === 'leaky-bucket') return { ...numbers, queue: more - 1 }
    if (algorithm === 'fixed-window' && more % 2 === 0) return { ...numbers, start: 'first-request' }
    return ['gcra', 'token-bucket'].includes(algorithm) ? { ...numbers, burst: more } : numbers
  })
  .map(numbers => numbers as NumbersInput)
  .filter(isLegal)

function isLegal(numbers: NumbersInput): boolean {
  try {
    ruleOf(numbers)
    return true
  } catch (error) {
    if (error instanceof ConfigError) return false
    throw error
  }
}

function expectSane(verdicts: readonly Verdict[], where: string): void {
  for (const { remaining, resetAfter, retryAfter, delay } of verdicts) {
    for (const field of [remaining, resetAfter, retryAfter === -1 ? 0 : retryAfter, delay]) {
      expect(Number.isInteger(field) && field >= 0 && field <= 2 ** 52, `${field}, ${where}`).toBe(true)
    }
  }
}

/** Requests and refunds of one caller. `admission` -1 refunds the latest admitted request. */
const verbs = (pause: fc.Arbitrary<Pause>) =>
  fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({ verb: fc.constant('decide' as const), pause, cost: costsOfAnySize }),
    },
    {
      weight: 2,
      arbitrary: fc.record({
        verb: fc.constant('refund' as const),
        pause,
        cost: costsOfAnySize,
        kept: fc.constantFrom(0, 0, 3),
        admission: fc.integer({ min: -3, max: -1 }),
      }),
    },
  )
type Verb = ReturnType<typeof verbs> extends fc.Arbitrary<infer T> ? T : never

/** Fails at the first step in which model and script differ, or return impossible values. */
async function expectModelAndScriptAgree(
  redis: Engine,
  rules: readonly Rule[],
  steps: readonly Verb[],
): Promise<void> {
  const model = new ModelEngine()
  const key = consumerStateKey(newCaller())
  const admittedAt: number[] = []
  let now = NOON
  let verdicts: readonly Verdict[] = []
  for (const [i, step] of steps.entries()) {
    now = after(step.pause, now, rules, verdicts)
    const boundRules = rules.map(rule => bound(rule, key, unitsFor(rule, step.cost), now / 1e3))
    const act = (engine: Engine) => {
      if (step.verb === 'decide') return engine.evaluate(evaluationOf(boundRules, now))
      const refunded = boundRules.map(rule => ({ ...rule, units: rule.cost, spent: rule.cost + step.kept }))
      return engine.refund({ rules: refunded, spentAt: admittedAt.at(step.admission) ?? now, now })
    }
    const [expected, actual] = await Promise.all([act(model), act(redis)])
    expect(actual, `step ${i}`).toEqual(expected)
    verdicts = expected.verdicts
    expectSane(verdicts, `step ${i}`)
    if ('status' in expected && expected.status === 'admitted') admittedAt.push(now)
  }
}

describeOnRedisEngine('numbers of any size', fresh => {
  it(`have the same results in model and script, with refunds, and over jumps back and forth (SEED=${SEED})`, async () => {
    const redis = await fresh()
    const pause = withJumps(...JUMPS, -1, -999, -HOUR, -13 * HOUR, -YEAR)
    const scenario = fc.record({ numbers: listOf(legalNumbers, 3), steps: listOf(verbs(pause), 30) })
    await forEvery(scenario, runsFor(redis, 25), async ({ numbers, steps }) => {
      await expectModelAndScriptAgree(redis, namedRules(numbers), steps)
    })
  })
})

describeOnRedisEngine('a clock that jumps back and forth', fresh => {
  it.each(ALGORITHMS)(`has the same results for %s in model and script (SEED=${SEED})`, async algorithm => {
    const redis = await fresh()
    const scenario = fc.record({
      numbers: numbersOf(algorithm),
      steps: listOf(
        fc.record({
          step: verbs(pauses),
          backByPeriods: fc.oneof(fc.constant(0), fc.constant(0), fc.nat(100)),
        }),
        50,
      ),
    })
    await forEvery(scenario, runsFor(redis, 6), async ({ numbers, steps }) => {
      const rule = ruleOf(numbers)
      const toAndFro = steps.map(
        ({ step, backByPeriods }): Verb =>
          backByPeriods === 0 ? step : { ...step, pause: -Math.ceil((backByPeriods * rule.period) / 100) },
      )
      await expectModelAndScriptAgree(redis, [rule], toAndFro)
    })
  })
})

/** The time until the whole budget is available again, and so the time for which anything is stored (µs). */
const spanOf = ({ algorithm, period, limit, quota }: Rule) =>
  countings[algorithm].state === 'time' ? Math.floor((quota.burst * period) / limit) : period

/** The longest time for which this cost can be refused while the clock only moves forward (µs). */
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

/** A caller that can also look at a verdict without spending, at any instant: a second rule then refuses the request. */
class Caller {
  readonly #engine: Engine
  readonly #key = consumerStateKey(newCaller())
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

/** A part, from 0 to 1. */
const part = fc.nat(1000).map(thousandths => thousandths / 1000)

/** A whole number from 1 to `most`. */
const partOf = (most: number, part: number) => Math.max(1, Math.round(part * most))

/** How far the clock is set back: in µs, or as a multiple of `spanOf(rule)`. */
const setBack = fc.oneof(
  fc.record({ µs: fc.constantFrom(1, 1000, YEAR) }),
  fc.record({ spans: part }),
  fc.record({ spans: fc.constantFrom(1, 3) }),
)

describeOnEngines('a clock that is set back', fresh => {
  it.each(ALGORITHMS_OVER_TIME)(
    `never gives a caller the limit of %s again, and never locks it out (SEED=${SEED})`,
    async algorithm => {
      const engine = await fresh()
      const scenario = fc.record({
        numbers: plainNumbersOf(algorithm),
        start: fc.nat(1e6),
        spent: listOf(fc.record({ pause: part, cost: part }), 8),
        pause: fc.oneof(fc.constant(0), part),
        cost: part,
        back: setBack,
      })
      const runs = engine instanceof ModelEngine ? sized(100, 30) : runsFor(engine, 6)
      await forEvery(scenario, runs, async ({ numbers, start, spent, pause, cost: costPart, back: by }) => {
        const caller = new Caller(engine, ruleOf(numbers))
        const { rule } = caller
        const { burst } = rule.quota
        const span = spanOf(rule)
        const [before, afterwards]: [Admitted[], Admitted[]] = [[], []]
        const spend = async (cost: number, now: number, list: Admitted[]) => {
          const verdict = await caller.spend(cost, now)
          if (verdict.allowed) list.push({ at: now, cost, delay: verdict.delay })
          return verdict
        }

        let now = NOON + start
        for (const { pause, cost } of spent) {
          now += Math.round((pause * span) / 3)
          await spend(partOf(burst, cost), now, before)
        }
        now += Math.round(pause * span)
        const cost = partOf(burst, costPart)
        const then = await caller.look(cost, now)

        const back = 'µs' in by ? by.µs : Math.ceil(by.spans * span) + (by.spans > 1 ? 1 : 0)
        now -= back
        const setBackTo = now
        const since = await caller.look(cost, now)
        expect(since.retryAfter).toBeLessThanOrEqual(longestWait(rule, cost) + span + 1)
        if (back <= span) {
          expect(since.remaining).toBeLessThanOrEqual(then.remaining)
          expect(since.retryAfter).toBeLessThanOrEqual(then.retryAfter + back)
          expect(since.retryAfter).toBeGreaterThanOrEqual(then.retryAfter)
        }

        // From then on the caller spends greedily: all units that are left, and one more as soon as it is allowed.
        let left = since.remaining
        for (let i = 0; i < 6; i++) {
          if (left > 0) await spend(left, now, afterwards)
          const { retryAfter } = await caller.look(1, now)
          now += retryAfter
          const fits = await spend(1, now, afterwards)
          expect(fits.allowed).toBe(true)
          left = fits.remaining
        }
        // A window that starts with its first request may have been started before.
        const begun = rule.quota.startsWithRequest ? setBackTo + since.resetAfter : setBackTo
        expect(
          violationOf(
            rule,
            afterwards.filter(({ at }) => at >= begun),
          ),
        ).toBeUndefined()
        if (back <= span) expectNoMoreThanBefore(rule, before, afterwards, setBackTo)
      })
    },
  )

  it('by a year and a half keeps the counts of a slow rule, even if other records are written', async () => {
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

  it('or forward by days keeps the limits of calendar windows, although the clock of the gateway stays', async () => {
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

/** Expects that what was spent before and after the clock was set back is within one limit, if the store still has the counts. */
function expectNoMoreThanBefore(rule: Rule, before: Admitted[], after: Admitted[], setBackTo: number): void {
  // A log drops the entries that had expired when its newest entry was added.
  const logged = (before.at(-1)?.at ?? 0) - rule.period
  const remembered = before.filter(({ at }) => rule.algorithm !== 'sliding-log' || at > logged)
  const all = [...remembered, ...after].toSorted((a, b) => a.at - b.at)
  if (rule.algorithm !== 'fixed-window' && rule.algorithm !== 'sliding-window') {
    // Departures before and after the change follow different clocks, so only the admissions are compared.
    const promised: Rule = rule.algorithm === 'leaky-bucket' ? { ...rule, algorithm: 'gcra' } : rule
    expect(violationOf(promised, all)).toBeUndefined()
    return
  }
  if (rule.quota.startsWithRequest) {
    const open = windowsFromRequests(rule.period, before).at(-1) ?? []
    const end = Math.floor((open[0]?.at ?? 0) / 1e3) * 1e3 + rule.period
    const units = unitsOf([...open, ...after.filter(({ at }) => at < end)])
    expect(units).toBeLessThanOrEqual(rule.limit)
    return
  }
  // When the clock is back in an earlier window, the store may still count units in the window that had begun after it. So only
  // the sum of the two windows is bounded, by twice the limit.
  const perWindow = Map.groupBy(all, ({ at }) => windowOf(rule, at))
  const again = windowOf(rule, setBackTo)
  for (const [window, spent] of perWindow) {
    const units = unitsOf(spent)
    if (window !== again) expect(units).toBeLessThanOrEqual(rule.limit)
    else expect(units + unitsOf(perWindow.get(window + 1) ?? [])).toBeLessThanOrEqual(2 * rule.limit)
  }
}
