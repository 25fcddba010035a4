/** Model and script agree on everything: thousands of random requests over rule sets that change under way. */
import { expect, it } from 'vitest'
import { describeOnRedisEngine, ModelEngine } from '../support/engines.ts'
import { randomFrom, SEED } from '../support/random.ts'
import { evaluationOf, NOON, randomCount, randomRules, randomStep } from '../support/traffic.ts'

const REQUESTS = Number(process.env.PARITY_REQUESTS ?? 4000)

describeOnRedisEngine('parity', fresh => {
  it(`the model foretells each of ${REQUESTS} random decisions (SEED=${SEED})`, async () => {
    const random = randomFrom(SEED)
    const redis = await fresh()
    const model = new ModelEngine()
    let rules = randomRules(random)
    let now = NOON
    let refused = 0
    for (let i = 0; i < REQUESTS; i++) {
      if (random.chance(0.01)) rules = randomRules(random)
      now += randomStep(random)
      const evaluation = evaluationOf(randomCount(random, rules, now), now)
      const [expected, actual] = await Promise.all([model.evaluate(evaluation), redis.evaluate(evaluation)])
      expect(actual, `request ${i}, SEED=${SEED}`).toEqual(expected)
      if (expected.status === 'refused') refused += 1
    }
    // Neither outcome is rare, or the run says little.
    expect(refused / REQUESTS).toBeGreaterThan(0.2)
    expect(refused / REQUESTS).toBeLessThan(0.8)
  })
})
