/** Model and script agree on everything: thousands of random requests over rule sets that change under way. */
import { expect, it } from 'vitest'
import { describeOnRedisEngine, ModelEngine, type TimedEvaluation } from '../support/engines.ts'
import { type Random, randomFrom, SEED } from '../support/random.ts'
import { evaluationOf, NOON, randomCount, randomRules, randomStep } from '../support/traffic.ts'

/** `npm run test:soak` asks for many more. */
const REQUESTS = Number(process.env.PARITY_REQUESTS ?? 4000)
/** The embedded Redis takes 1 to 2 ms a decision, and more beside other work. */
const TIMED = { timeout: 30_000 + 10 * REQUESTS }

/** Gives back instead: what was spent lately, or a part of it, or all that there is. */
function asRefund(
  random: Random,
  evaluation: TimedEvaluation,
  admittedAt: readonly number[],
): TimedEvaluation {
  const rules = evaluation.rules.map(counted => {
    const units = random.pick([1, 1, 2, 5, 2 ** 52])
    return { ...counted, cost: -units, spent: units + random.pick([0, 0, 1, 3]) }
  })
  const spentAt = random.pick([undefined, evaluation.now, ...admittedAt.slice(-6)])
  return { ...evaluation, rules, ...(spentAt !== undefined && { spentAt }) }
}

describeOnRedisEngine('parity', fresh => {
  it(`the model foretells each of ${REQUESTS} random decisions (SEED=${SEED})`, TIMED, async () => {
    const random = randomFrom(SEED)
    const redis = await fresh()
    const model = new ModelEngine()
    const admittedAt: number[] = []
    let rules = randomRules(random)
    let now = NOON
    let refused = 0
    for (let i = 0; i < REQUESTS; i++) {
      if (random.chance(0.01)) rules = randomRules(random)
      now += randomStep(random)
      // Records end on whole milliseconds.
      if (random.chance(0.1)) now = Math.ceil(now / 1e3) * 1e3
      const asked = evaluationOf(randomCount(random, rules, now), now)
      const evaluation = random.chance(0.1) ? asRefund(random, asked, admittedAt) : asked
      const [expected, actual] = await Promise.all([model.evaluate(evaluation), redis.evaluate(evaluation)])
      expect(actual, `request ${i}, SEED=${SEED}`).toEqual(expected)
      if (expected.status === 'refused') refused += 1
      else admittedAt.push(now)
    }
    // Neither outcome is rare, or the run says little.
    expect(refused / REQUESTS).toBeGreaterThan(0.2)
    expect(refused / REQUESTS).toBeLessThan(0.8)
  })
})
