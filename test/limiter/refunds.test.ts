/** Refunds: never more than was spent, never above the budget, and within the guarantee of the algorithm. */
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import { countings } from '../../src/algorithms/all.ts'
import type { Rule } from '../../src/config/compile.ts'
import type { Verdict } from '../../src/script/evaluation.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import { starts } from '../algorithms/following.ts'
import { type Admitted, violationOf } from '../algorithms/guarantees.ts'
import { type Admission, ReferenceLimiter } from '../algorithms/reference.ts'
import { sized } from '../selection.ts'
import { bound } from '../support/bound.ts'
import { describeOnEngines, type Engine, ModelEngine, runsFor } from '../support/engines.ts'
import { ALGORITHMS, ALGORITHMS_OVER_TIME, numbersOf } from '../support/numbers.ts'
import { forEvery } from '../support/property.ts'
import { FC_PATH, SEED } from '../support/random.ts'
import { evaluationOf, listOf, NOON, newCaller, ruleOf } from '../support/traffic.ts'
import { after, pauses } from '../support/waits.ts'

/** One caller under one rule. */
class Caller {
  readonly #engine: Engine
  readonly #key = consumerStateKey(newCaller())
  readonly rule: Rule

  constructor(engine: Engine, rule: Rule) {
    this.#engine = engine
    this.rule = rule
  }

  counted(cost: number, gatewayClock: number) {
    return bound(this.rule, this.#key, cost, gatewayClock / 1e3)
  }

  async ask(cost: number, now: number): Promise<Verdict> {
    const { verdicts } = await this.#engine.evaluate(evaluationOf([this.counted(cost, now)], now))
    return verdicts[0]!
  }

  /** Gives back units that a request has spent. */
  async giveBack(units: number, now: number, spent: Admission, gatewayClock = now): Promise<Verdict> {
    const rule = { ...this.counted(units, gatewayClock), units, spent: spent.cost }
    const { verdicts } = await this.#engine.refund({ rules: [rule], spentAt: spent.at, now })
    return verdicts[0]!
  }

  async reset(now: number): Promise<Verdict> {
    const { verdicts } = await this.#engine.reset({ rules: [this.counted(1, now)], now })
    return verdicts[0]!
  }
}

/** More runs on the model, which is fast and predicts the scripts (parity.test.ts). */
const runsOn = (engine: Engine) => (engine instanceof ModelEngine ? sized(50, 20) : runsFor(engine, 3))

/** A part, from 0 to 1. */
const part = fc.nat(100).map(hundredths => hundredths / 100)

/** A whole number from 1 to `most`. */
const upTo = (most: number, part: number) => Math.max(1, Math.round(part * most))

/** Spends a part of the units left, or gives back a part of what one of the latest requests has spent. */
const step = fc.oneof(
  fc.record({ verb: fc.constant('spend' as const), pause: pauses, part }),
  fc.record({
    verb: fc.constant('give back' as const),
    pause: pauses,
    part,
    admission: fc.integer({ min: -4, max: -1 }),
  }),
)

describeOnEngines('a refund', fresh => {
  it.each(ALGORITHMS_OVER_TIME)(
    `of %s, even a late one, keeps its guarantee for the units that were not given back (SEED=${SEED})`,
    async algorithm => {
      const engine = await fresh()
      let refunds = 0
      const scenario = fc.record({ numbers: numbersOf(algorithm), start: starts, steps: listOf(step, 50) })
      await forEvery(scenario, runsOn(engine), async ({ numbers, start, steps }) => {
        const caller = new Caller(engine, ruleOf(numbers))
        const { rule } = caller
        // Windows and logs store exact counts, so the reference predicts them to the unit.
        const reference = countings[algorithm].state === 'time' ? undefined : new ReferenceLimiter()
        const admitted: Admitted[] = []
        let now = start
        let latest = await caller.ask(0, now)
        let afterRefund = false
        for (const [i, step] of steps.entries()) {
          now = after(step.pause, now, [rule], [latest])
          const spent = step.verb === 'give back' && !afterRefund ? admitted.at(step.admission) : undefined
          if (step.verb === 'give back' && spent && spent.cost > 0) {
            const units = upTo(spent.cost, step.part)
            latest = await caller.giveBack(units, now, spent)
            spent.cost -= units
            // A window that starts with its first request is over if all of its units were given back.
            while (admitted.at(-1)?.cost === 0) admitted.pop()
            reference?.giveBack(caller.counted(0, now), spent.at, units)
            refunds += 1
            afterRefund = true
          } else {
            // After a refund, all units that are left are spent.
            const { remaining } = await caller.ask(0, now)
            const cost = afterRefund ? Math.max(1, remaining) : upTo(remaining, step.part)
            latest = await caller.ask(cost, now)
            if (latest.allowed) admitted.push({ at: now, cost, delay: latest.delay })
            reference?.evaluate({ rules: [caller.counted(cost, now)], now })
            afterRefund = false
          }
          expect(violationOf(rule, admitted), `step ${i}`).toBeUndefined()
          if (!reference) continue
          const [expected] = reference.evaluate({ rules: [caller.counted(0, now)], now }).verdicts
          expect(await caller.ask(0, now), `step ${i}`).toEqual(expected)
        }
      })
      // With too few refunds the runs would prove little.
      if (engine instanceof ModelEngine && !FC_PATH) expect(refunds).toBeGreaterThan(sized(100, 30))
    },
  )

  it.each(ALGORITHMS)(
    `of %s raises remaining by at most its units, and never above the budget (SEED=${SEED})`,
    async algorithm => {
      const engine = await fresh()
      const refund = fc.record({
        // Negative: the clock is set back, so the units may have been spent in the future.
        partsOfPeriod: fc.oneof(
          part,
          part,
          part,
          part.map(parts => -parts),
        ),
        spend: part,
        units: fc.integer({ min: 1, max: 4 }),
        kept: fc.nat(2),
        spentAfter: fc.oneof(
          fc.constant(0),
          part.map(parts => -parts),
          part,
        ),
      })
      const scenario = fc.record({ numbers: numbersOf(algorithm), steps: listOf(refund, 30) })
      await forEvery(scenario, runsOn(engine), async ({ numbers, steps }) => {
        const caller = new Caller(engine, ruleOf(numbers))
        const { period, quota } = caller.rule
        let now = NOON
        for (const { partsOfPeriod, spend, units, kept, spentAfter } of steps) {
          now += Math.round(partsOfPeriod * (partsOfPeriod < 0 ? period : period / 4))
          await caller.ask(upTo(quota.burst, spend), now)
          const { remaining: before } = await caller.ask(0, now)
          const spent = { at: now + Math.round(spentAfter * period), cost: units + kept }
          const given = await caller.giveBack(units, now, spent)
          expect(given).toMatchObject({ allowed: true, retryAfter: 0, delay: 0 })
          expect(given.remaining).toBeGreaterThanOrEqual(before)
          expect(given.remaining).toBeLessThanOrEqual(Math.min(quota.burst, before + units))
        }
      })
    },
  )

  it.each(ALGORITHMS)(
    `of all units, by a reset of %s, makes the whole budget available, and leaves no trace of the past (SEED=${SEED})`,
    async algorithm => {
      const engine = await fresh()
      const scenario = fc.record({ numbers: numbersOf(algorithm), now: starts })
      await forEvery(scenario, runsOn(engine), async ({ numbers, now }) => {
        const caller = new Caller(engine, ruleOf(numbers))
        const { burst } = caller.rule.quota
        const whole = { allowed: true, remaining: burst, resetAfter: 0 }
        expect(await caller.reset(now)).toMatchObject(whole)
        await caller.ask(burst, now)
        expect(await caller.reset(now + 1)).toMatchObject(whole)
        expect(await caller.ask(0, now + 1)).toMatchObject(whole)
        expect(await caller.ask(burst, now + 1)).toMatchObject({ allowed: true, remaining: 0, delay: 0 })
        expect((await caller.ask(1, now + 1)).allowed).toBe(false)
      })
    },
  )

  it.each(ALGORITHMS_OVER_TIME)(
    'of %s gives nothing back if the clock was set back so far that the units no longer count',
    async algorithm => {
      const engine = await fresh()
      const caller = new Caller(engine, ruleOf({ algorithm, limit: 5, period: '1s' }))
      const { burst } = caller.rule.quota
      await caller.ask(burst, NOON)
      // So far back that the record counts as idle.
      const now = NOON - 60e6
      expect((await caller.ask(burst, now)).allowed).toBe(true)
      expect((await caller.giveBack(1, now, { at: NOON, cost: burst })).remaining).toBe(0)
    },
  )

  it('under a rule per day gives nothing back to the next day, even if the clock of the gateway is already past midnight', async () => {
    const engine = await fresh()
    const caller = new Caller(engine, ruleOf({ algorithm: 'fixed-window', limit: 5, period: 'day' }))
    const midnight = Date.UTC(2026, 10, 21) * 1e3
    await caller.ask(3, midnight - 86400e6 - 1)
    await caller.ask(5, midnight - 1e6)
    const late = await caller.giveBack(
      3,
      midnight - 1,
      { at: midnight - 86400e6 - 1, cost: 3 },
      midnight + 5e6,
    )
    expect(late.remaining).toBe(0)
  })
})
