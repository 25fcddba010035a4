/** Model and scripts agree on everything: thousands of random requests over rule sets that change under way. */
import { expect, it } from 'vitest'
import { describeOnRedisEngine, type Engine, ModelEngine, type TimedEvaluation } from '../support/engines.ts'
import { type Random, randomFrom, SEED } from '../support/random.ts'
import { evaluationOf, NOON, randomCount, randomRules, randomStep } from '../support/traffic.ts'

/** `npm run test:soak` asks for many more. */
const REQUESTS = Number(process.env.PARITY_REQUESTS ?? 4000)
/** The embedded Redis takes 1 to 2 ms a decision, and more beside other work. */
const TIMED = { timeout: 60_000 + 10 * REQUESTS }

type Verb = 'decide' | 'peek' | 'refund' | 'reset'

/** One verb with random arguments, to be carried out by each engine. */
function randomVerb(random: Random, evaluation: TimedEvaluation, admittedAt: readonly number[]) {
  const { rules, now } = evaluation
  const verb: Verb = random.chance(0.8) ? 'decide' : random.pick<Verb>(['peek', 'refund', 'refund', 'reset'])
  switch (verb) {
    case 'decide':
      return { verb, on: (engine: Engine) => engine.evaluate(evaluation) }
    case 'peek':
      return { verb, on: (engine: Engine) => engine.peek(evaluation) }
    case 'reset':
      return { verb, on: (engine: Engine) => engine.reset({ rules, now }) }
    case 'refund': {
      const refunded = rules.map(rule => {
        const units = random.pick([0, 1, 1, 2, 5, 1e9])
        return { ...rule, units, spent: units + random.pick([0, 0, 1, 3]) }
      })
      const spentAt = random.pick([now, now - 1, now + 1, ...admittedAt.slice(-6)])
      return { verb, on: (engine: Engine) => engine.refund({ rules: refunded, spentAt, now }) }
    }
  }
}

describeOnRedisEngine('parity', fresh => {
  it(`the model foretells each of ${REQUESTS} random verbs (SEED=${SEED})`, TIMED, async () => {
    const random = randomFrom(SEED)
    const redis = await fresh()
    const model = new ModelEngine()
    const admittedAt: number[] = []
    const counts = { decide: 0, peek: 0, refund: 0, reset: 0, refused: 0 }
    let rules = randomRules(random)
    let now = NOON
    for (let i = 0; i < REQUESTS; i++) {
      if (random.chance(0.01)) rules = randomRules(random)
      now += randomStep(random)
      // Records end on whole milliseconds.
      if (random.chance(0.1)) now = Math.ceil(now / 1e3) * 1e3
      const asked = evaluationOf(randomCount(random, rules, now), now)
      const { verb, on } = randomVerb(random, asked, admittedAt)
      const [expected, actual] = await Promise.all([on(model), on(redis)])
      expect(actual, `request ${i}, ${verb}, SEED=${SEED}`).toEqual(expected)
      counts[verb] += 1
      if (verb !== 'decide' || !('status' in expected)) continue
      if (expected.status === 'refused') counts.refused += 1
      else admittedAt.push(now)
    }
    // No verb and neither outcome is rare, or the run says little.
    for (const verb of ['peek', 'refund', 'reset'] as const)
      expect(counts[verb] / REQUESTS, verb).toBeGreaterThan(0.02)
    expect(counts.refused / counts.decide).toBeGreaterThan(0.15)
    expect(counts.refused / counts.decide).toBeLessThan(0.8)
  })
})
