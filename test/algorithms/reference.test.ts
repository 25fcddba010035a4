/** Every reply, against what the definition of the algorithm says of the plain list of admitted requests. */
import { expect, it } from 'vitest'
import type { Outcome } from '../../src/script/evaluation.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import { bound } from '../support/bound.ts'
import { describeOnEngines, rulesOf } from '../support/engines.ts'
import { randomFrom, SEED } from '../support/random.ts'
import { evaluationOf, NOON } from '../support/traffic.ts'
import { ALGORITHMS, once, play, randomNumbers, randomPause, scriptOf } from './scripts.ts'

/** SOAK=1 runs longer. */
const MORE = process.env.SOAK ? 40 : 1
const TIMED = { timeout: 30_000 * Math.ceil(MORE / 5) }
/** Of one rule set, for one caller; each starts afresh. */
const REQUESTS = 40

/** Neither outcome is rare, or the run says little. */
function expectBoth(refused: number): void {
  expect(refused).toBeGreaterThan(0.15)
  expect(refused).toBeLessThan(0.85)
}

const ofOneRule = new Map(
  ALGORITHMS.map(algorithm => [
    algorithm,
    once(() => {
      const random = randomFrom(SEED)
      return Array.from({ length: 8 * MORE }, () => {
        const numbers = randomNumbers(random, algorithm)
        const rules = rulesOf({ ...numbers, name: 'a', by: 'consumer' })
        return scriptOf({ random, requests: REQUESTS, rules: () => rules })
      })
    }),
  ]),
)

const ofMixtures = once(() => {
  const random = randomFrom(SEED)
  return Array.from({ length: 8 * MORE }, () => {
    const inputs = Array.from({ length: random.int(2, 5) }, (_, i) => ({
      ...randomNumbers(random, random.pick(ALGORITHMS)),
      name: `rule-${i}`,
      by: 'consumer' as const,
      mode: i > 0 && random.chance(0.2) ? ('shadow' as const) : ('enforce' as const),
    }))
    const rules = rulesOf(...inputs)
    return scriptOf({ random, requests: REQUESTS, rules: () => rules })
  })
})

describeOnEngines('a reply', fresh => {
  it.each(ALGORITHMS)(`of %s is what its definition says (SEED=${SEED})`, TIMED, async algorithm => {
    expectBoth(await play(await fresh(), ofOneRule.get(algorithm)!()))
  })

  it(
    `over several rules is all or nothing, as each that is enforced says (SEED=${SEED})`,
    TIMED,
    async () => {
      expectBoth(await play(await fresh(), ofMixtures()))
    },
  )

  it(`of token-bucket is that of gcra with the same numbers (SEED=${SEED})`, TIMED, async () => {
    const random = randomFrom(SEED)
    const engine = await fresh()
    for (let set = 0; set < 5 * MORE; set++) {
      const numbers = randomNumbers(random, 'gcra')
      const rules = rulesOf({ ...numbers, name: 'a', by: 'consumer' }, {
        ...numbers,
        algorithm: 'token-bucket',
        name: 'b',
        by: 'consumer',
      } as never)
      const key = consumerStateKey(`twins-${set}`)
      let now = NOON
      let outcome: Outcome = { status: 'admitted', plan: '', at: now, verdicts: [] }
      for (let i = 0; i < 30; i++) {
        now += randomPause(random, rules, now, outcome)
        const cost = random.pick([0, 1, 1, 1, 2, 3, 11])
        outcome = await engine.evaluate(
          evaluationOf(
            rules.map(rule => bound(rule, key, cost)),
            now,
          ),
        )
        const [gcra, tokenBucket] = outcome.verdicts.map(({ rule: _, ...said }) => said)
        expect(tokenBucket, `set ${set}, request ${i}, SEED=${SEED}`).toEqual(gcra)
      }
    }
  })
})
