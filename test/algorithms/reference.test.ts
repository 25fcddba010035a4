/** Compares every reply with the independent definition of the algorithm (reference.ts). */
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import type { Rule } from '../../src/config/compile.ts'
import type { Verdict } from '../../src/script/evaluation.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import { bound } from '../support/bound.ts'
import { describeOnEngines, type Engine, ModelEngine, rulesOf } from '../support/engines.ts'
import { ALGORITHMS, numbersOf } from '../support/numbers.ts'
import { expectShare, forEvery } from '../support/property.ts'
import { SEED } from '../support/random.ts'
import { evaluationOf, listOf, NOON, namedRules, newCaller, ruleOf } from '../support/traffic.ts'
import { after } from '../support/waits.ts'
import { expectReference, refusedOf, starts, steps } from './following.ts'
import { hasDefinition } from './reference.ts'

/** SOAK=1 runs longer. */
const MORE = process.env.SOAK ? 40 : 1
const TIMED = { timeout: 30_000 * Math.ceil(MORE / 5) }

/** Few runs suffice on Redis: the model is faster, and parity.test.ts compares the scripts with it. */
const runsOn = (engine: Engine) => (engine instanceof ModelEngine ? 24 : 6) * MORE

const requests = listOf(steps, 60)

const DEFINED = ALGORITHMS.filter(hasDefinition)
const definedNumbers = fc.oneof(...DEFINED.map(numbersOf))

describeOnEngines('a reply', fresh => {
  for (const algorithm of ALGORITHMS.filter(name => !hasDefinition(name))) {
    it.todo(`of ${algorithm} follows its definition: this file has no reference for it yet`)
  }

  it.each(DEFINED)(`of %s follows its definition (SEED=${SEED})`, TIMED, async algorithm => {
    const engine = await fresh()
    let [total, refused] = [0, 0]
    const scenario = fc.record({ numbers: numbersOf(algorithm), start: starts, steps: requests })
    await forEvery(scenario, runsOn(engine), async ({ numbers, start, steps }) => {
      const rules = [ruleOf(numbers)]
      const answered = await expectReference(engine, steps, () => rules, start)
      total += answered.length
      refused += refusedOf(answered)
    })
    // If one of the outcomes were rare, the runs would prove little.
    expectShare('refusals', refused, total, 0.1, 0.9)
  })

  it(
    `for several rules is a refusal if any enforced rule refuses, and then charges none of them (SEED=${SEED})`,
    TIMED,
    async () => {
      const engine = await fresh()
      let [total, refused] = [0, 0]
      const scenario = fc.record({
        numbers: listOf(definedNumbers, 5, 2),
        /** Which of the rules are shadows. */
        shadows: fc.subarray([1, 2, 3, 4], { maxLength: 2 }),
        start: starts,
        steps: requests,
      })
      await forEvery(scenario, runsOn(engine), async ({ numbers, shadows, start, steps }) => {
        const rules = namedRules(numbers).map(
          (rule, i): Rule => (shadows.includes(i) ? { ...rule, mode: 'shadow' } : rule),
        )
        const answered = await expectReference(engine, steps, () => rules, start)
        total += answered.length
        refused += refusedOf(answered)
      })
      expectShare('refusals', refused, total, 0.1, 0.9)
    },
  )

  it(`of token-bucket equals that of gcra with the same numbers (SEED=${SEED})`, TIMED, async () => {
    const engine = await fresh()
    const scenario = fc.record({ numbers: numbersOf('gcra'), steps: requests })
    await forEvery(scenario, runsOn(engine), async ({ numbers, steps }) => {
      const [name, by] = ['b', 'consumer'] as const
      const rules = [
        ruleOf(numbers),
        ...rulesOf({ ...numbers, algorithm: 'token-bucket', name, by } as never),
      ]
      const key = consumerStateKey(newCaller())
      let now = NOON
      let verdicts: readonly Verdict[] = []
      for (const { pause, cost } of steps) {
        now = after(pause, now, rules, verdicts)
        const boundRules = rules.map(rule => bound(rule, key, Number(cost)))
        ;({ verdicts } = await engine.evaluate(evaluationOf(boundRules, now)))
        const [gcra, tokenBucket] = verdicts.map(({ rule: _, ...result }) => result)
        expect(tokenBucket).toEqual(gcra)
      }
    })
  })
})
