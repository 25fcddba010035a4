/** What is given back: never more than was taken, never above the budget, and within the guarantee when told since when. */
import { expect, it } from 'vitest'
import type { NumbersInput } from '../../src/config/check/rule-schema.ts'
import type { Rule } from '../../src/config/compile.ts'
import type { Verdict } from '../../src/script/evaluation.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import { type Admitted, violationOf } from '../algorithms/guarantees.ts'
import { type Admission, ReferenceLimiter } from '../algorithms/reference.ts'
import { ALGORITHMS, randomNumbers, randomPause } from '../algorithms/scripts.ts'
import { bound } from '../support/bound.ts'
import { describeOnEngines, type Engine, ModelEngine, rulesOf } from '../support/engines.ts'
import { randomFrom, SEED } from '../support/random.ts'
import { evaluationOf, NOON } from '../support/traffic.ts'

const ruleOf = (numbers: NumbersInput): Rule => rulesOf({ ...numbers, name: 'a', by: 'consumer' })[0]!

let callers = 0

/** One caller of one rule. */
class Caller {
  readonly #engine: Engine
  readonly #key = consumerStateKey(`caller-${callers++}`)
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

  /** Gives back units of what a request has spent. */
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

/** The model is quick; that the script does the same is seen in a few. */
const setsFor = (engine: Engine) => (engine instanceof ModelEngine ? 40 : 2)

describeOnEngines('what is given back', fresh => {
  it.each(ALGORITHMS)(
    `late to %s lets nobody have more than its guarantee, what is given back not counted (SEED=${SEED})`,
    async algorithm => {
      const random = randomFrom(SEED)
      const engine = await fresh()
      for (let set = 0; set < setsFor(engine); set++) {
        const caller = new Caller(engine, ruleOf(randomNumbers(random, algorithm)))
        const { rule } = caller
        // Windows and logs know what they have counted, to the unit.
        const reference = ['gcra', 'token-bucket', 'leaky-bucket'].includes(algorithm)
          ? undefined
          : new ReferenceLimiter()
        const admitted: Admitted[] = []
        let now = NOON + random.int(0, 86400) * 1e6
        let said = await caller.ask(0, now)
        let given = false
        for (let i = 0; i < 30; i++) {
          const pause = randomPause(random, [rule], now, { verdicts: [said] })
          now += random.pick([0, random.int(0, Math.ceil(rule.period / rule.limit)), pause])
          const spent = random.pick([...admitted.slice(-3), ...admitted].filter(({ cost }) => cost > 0))
          const afterRefund: boolean = given
          given = spent !== undefined && !afterRefund && random.chance(0.5)
          if (spent && given) {
            const units = random.pick([spent.cost, random.int(1, spent.cost)])
            said = await caller.giveBack(units, now, spent)
            spent.cost -= units
            reference?.giveBack(caller.counted(0, now), spent.at, units)
          } else {
            // Greedily, most of all after a refund.
            const { remaining } = await caller.ask(0, now)
            const cost = Math.max(1, afterRefund ? remaining : random.int(1, remaining))
            said = await caller.ask(cost, now)
            if (said.allowed) admitted.push({ at: now, cost, delay: said.delay })
            reference?.evaluate({ rules: [caller.counted(cost, now)], now })
          }
          const where = `set ${set}, step ${i}, SEED=${SEED}`
          expect(violationOf(rule, admitted), where).toBeUndefined()
          if (!reference) continue
          const [expected] = reference.evaluate({ rules: [caller.counted(0, now)], now }).verdicts
          expect(await caller.ask(0, now), where).toEqual(expected)
        }
      }
    },
  )

  it.each(ALGORITHMS)(
    `to %s lifts what is left by as much at most, and never above the budget (SEED=${SEED})`,
    async algorithm => {
      const random = randomFrom(SEED)
      const engine = await fresh()
      for (let set = 0; set < setsFor(engine); set++) {
        const caller = new Caller(engine, ruleOf(randomNumbers(random, algorithm)))
        const { period, quota } = caller.rule
        let now = NOON
        for (let i = 0; i < 15; i++) {
          // A clock that is set back too, so that what was spent may lie ahead.
          now += random.chance(0.2) ? -random.int(0, period) : random.int(0, Math.ceil(period / 4))
          await caller.ask(random.int(1, quota.burst), now)
          const { remaining: before } = await caller.ask(0, now)
          const units = random.int(1, 4)
          const at = random.pick([now, now - random.int(0, period), now + random.int(1, period)])
          const given = await caller.giveBack(units, now, { at, cost: units + random.int(0, 2) })
          expect(given).toMatchObject({ allowed: true, retryAfter: 0, delay: 0 })
          expect(given.remaining, `set ${set}, step ${i}, SEED=${SEED}`).toBeGreaterThanOrEqual(before)
          expect(given.remaining, `set ${set}, step ${i}, SEED=${SEED}`).toBeLessThanOrEqual(
            Math.min(quota.burst, before + units),
          )
        }
      }
    },
  )

  it.each(ALGORITHMS)(
    'by a reset of %s is the whole budget, and nothing of the past is left',
    async algorithm => {
      const random = randomFrom(SEED)
      const engine = await fresh()
      for (const now of [NOON, NOON + 123_457]) {
        const caller = new Caller(engine, ruleOf(randomNumbers(random, algorithm)))
        const { burst } = caller.rule.quota
        const whole = { allowed: true, remaining: burst, resetAfter: 0 }
        expect(await caller.reset(now)).toMatchObject(whole)
        await caller.ask(burst, now)
        expect(await caller.reset(now + 1)).toMatchObject(whole)
        expect(await caller.ask(0, now + 1)).toMatchObject(whole)
        expect(await caller.ask(burst, now + 1)).toMatchObject({ allowed: true, remaining: 0, delay: 0 })
        expect((await caller.ask(1, now + 1)).allowed).toBe(false)
      }
    },
  )

  it.each(ALGORITHMS)(
    'to %s is not taken from others: what was spent by a clock that has since been set back far',
    async algorithm => {
      const engine = await fresh()
      const caller = new Caller(engine, ruleOf({ algorithm, limit: 5, period: '1s' }))
      const { burst } = caller.rule.quota
      await caller.ask(burst, NOON)
      // So far that it reads as idle.
      const now = NOON - 60e6
      expect((await caller.ask(burst, now)).allowed).toBe(true)
      expect((await caller.giveBack(1, now, { at: NOON, cost: burst })).remaining).toBe(0)
    },
  )

  it('to a day is nothing of the day before, also where the clock of the gateway is ahead of midnight', async () => {
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
