/**
 * A config changes while the store has states of the old one. The tag of a rule (compile-rule.ts) says what its record means: with the
 * same tag a rule keeps its counts, with another tag it starts with a whole budget. No rule reads the numbers of another one.
 * The reference keeps a list for each tag, so it predicts every reply.
 */
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type AlgorithmName, descriptionOf } from '../../src/algorithms/index.ts'
import type { NumbersInput, RuleInput } from '../../src/config/check/rule-schema.ts'
import type { Rule } from '../../src/config/compile.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import { type Answered, expectReference, steps } from '../algorithms/following.ts'
import { type Admitted, violationOf } from '../algorithms/guarantees.ts'
import { hasDefinition } from '../algorithms/reference.ts'
import { bound } from '../support/bound.ts'
import { describeOnEngines, type Engine, ModelEngine, rulesOf, runsFor } from '../support/engines.ts'
import { ALGORITHMS_OVER_TIME as ALGORITHMS } from '../support/numbers.ts'
import { forEvery } from '../support/property.ts'
import { SEED } from '../support/random.ts'
import { costs, evaluationOf, listOf, NOON } from '../support/traffic.ts'
import { pauses } from '../support/waits.ts'

/** The numbers of a rule. Its burst or queue, if it has one, is smaller than its limit. */
function numbersOf(algorithm: AlgorithmName): NumbersInput {
  const { parameters } = descriptionOf({ algorithm })
  const atOnce = { ...('burst' in parameters && { burst: 5 }), ...('queue' in parameters && { queue: 4 }) }
  return { algorithm, limit: 6, period: '1s', ...atOnce } as NumbersInput
}

const NUMBERS = Object.fromEntries(ALGORITHMS.map(algorithm => [algorithm, numbersOf(algorithm)])) as Record<
  AlgorithmName,
  NumbersInput
>

const ruleOf = (input: object): Rule => rulesOf({ name: 'a', by: 'consumer', ...input } as RuleInput)[0]!

/** A rule before and after a change. */
interface Change {
  title: string
  from: Rule
  to: Rule
}

const changes = (title: string, changed: Partial<Record<AlgorithmName, object>>): Change[] =>
  Object.entries(changed).map(([algorithm, change]) => {
    const numbers = NUMBERS[algorithm as AlgorithmName]
    return { title: `${title} of ${algorithm}`, from: ruleOf(numbers), to: ruleOf({ ...numbers, ...change }) }
  })

const ofAll = (change: object) => Object.fromEntries(ALGORITHMS.map(algorithm => [algorithm, change]))

const COUNTING = ['fixed-window', 'sliding-window', 'sliding-log'] as const
const TIMING = ['token-bucket', 'leaky-bucket', 'gcra'] as const
const only = (algorithms: readonly AlgorithmName[], change: object) =>
  Object.fromEntries(algorithms.map(algorithm => [algorithm, change]))

/** Changes after which the rule keeps its counts, and changes after which it starts with a whole budget. */
const KEPT = [
  ...changes('a higher limit', only(COUNTING, { limit: 13 })),
  ...changes('a lower limit', only(COUNTING, { limit: 2 })),
  ...changes('another cost', ofAll({ cost: 2 })),
]
const AFRESH = [
  ...changes('a higher limit', only(TIMING, { limit: 13 })),
  ...changes('a lower limit', only(TIMING, { limit: 2 })),
  ...changes('a larger burst', only(['token-bucket', 'gcra'], { burst: 9 })),
  ...changes('a smaller burst', only(['token-bucket', 'gcra'], { burst: 2 })),
  ...changes('a longer queue', { 'leaky-bucket': { queue: 8 } }),
  ...changes('no queue', { 'leaky-bucket': { queue: 0 } }),
  ...changes('a longer period', ofAll({ period: '3s' })),
  ...changes('a shorter period', ofAll({ period: '100ms' })),
  ...changes('another name', ofAll({ name: 'b' })),
  ...changes('windows from the first request', { 'fixed-window': { start: 'first-request' } }),
  ...changes('a calendar', { 'fixed-window': { period: 'day', timeZone: 'Asia/Tokyo' } }),
]
const ALGORITHM_CHANGES: Change[] = ALGORITHMS.flatMap(before =>
  ALGORITHMS.filter(after => after !== before).map(after => ({
    title: `from ${before} to ${after}`,
    from: ruleOf(NUMBERS[before]),
    to: ruleOf(NUMBERS[after]),
  })),
)

/** Whether there is a definition to compare with. A new algorithm may have none yet. */
const isDefined = ({ from, to }: Change) => hasDefinition(from.algorithm) && hasDefinition(to.algorithm)

describe('the tag of a rule', () => {
  it.each(KEPT)('stays the same with $title: the rule keeps its counts', ({ from, to }) => {
    expect(to.tag).toBe(from.tag)
  })

  it.each([...AFRESH, ...ALGORITHM_CHANGES])(
    'changes with $title: the rule starts with a whole budget',
    ({ from, to }) => {
      expect(to.tag).not.toBe(from.tag)
    },
  )

  it('changes with the time zone and the kind of calendar period', () => {
    const tags = [
      { period: 'day' },
      { period: 'day', timeZone: 'Asia/Tokyo' },
      { period: 'week' },
      { period: 'month' },
      { period: '1d' },
    ].map(calendar => ruleOf({ ...NUMBERS['fixed-window'], ...calendar }).tag)
    expect(new Set(tags).size).toBe(tags.length)
  })
})

/** Requests before the change, requests after it, and a last one under the old rule, as after a rollback. */
const aroundAChange = fc.record({
  before: listOf(steps, 10, 5),
  afterwards: listOf(steps, 10, 5),
  rollback: steps,
})

/** More runs on the model, which is fast and predicts the scripts (parity.test.ts). */
const runsOn = (engine: Engine) => (engine instanceof ModelEngine ? 4 : 1)

/** The requests that a rule has admitted, in order. */
const admittedUnder = (rule: Rule, answered: Answered): Admitted[] =>
  answered.flatMap(({ evaluation, outcome }) => {
    const [verdict] = outcome.verdicts
    const { cost } = evaluation.rules[0]!
    return verdict!.rule === rule && verdict!.allowed && cost > 0
      ? [{ at: evaluation.now, cost, delay: verdict!.delay }]
      : []
  })

/** For each algorithm, two configs that are in use at the same time, as in a gradual deployment. */
const PAIRS: Change[] = [
  ...changes('two limits', only(COUNTING, { limit: 2 })),
  ...changes('two limits and bursts', only(['token-bucket', 'gcra'], { limit: 3, burst: 2 })),
  ...changes('two limits and queues', { 'leaky-bucket': { limit: 3, queue: 1 } }),
  ...changes('two periods', ofAll({ period: '3s' })),
  ...changes('two starts of windows', { 'fixed-window': { start: 'first-request' } }),
]

/** Sets of rules that share one state. Rules are added, removed and renamed. */
const ruleSet = fc.uniqueArray(
  fc.record({
    name: fc.constantFrom('a', 'b', 'c', 'd'),
    algorithm: fc.constantFrom(...ALGORITHMS.filter(hasDefinition)),
  }),
  { selector: ({ name }) => name, minLength: 1, maxLength: 4, size: 'max' },
)

describeOnEngines('a rule that is changed', fresh => {
  it.each([...KEPT, ...AFRESH, ...ALGORITHM_CHANGES].filter(isDefined))(
    `$title: the new rule counts from the first request on, and never misreads numbers of the old one (SEED=${SEED})`,
    async ({ from, to }) => {
      const engine = await fresh()
      await forEvery(aroundAChange, runsOn(engine), async ({ before, afterwards, rollback }) => {
        const all = [...before, ...afterwards, rollback]
        const isNew = (i: number) => i >= before.length && i < all.length - 1
        const answered = await expectReference(engine, all, (_, i) => [isNew(i) ? to : from])
        expect(violationOf(to, admittedUnder(to, answered))).toBeUndefined()
      })
    },
  )
})

describeOnEngines('two configs in use at the same time', fresh => {
  it.each(PAIRS.filter(isDefined))(
    `with $title never undo the counts of each other (SEED=${SEED})`,
    async ({ from, to }) => {
      const engine = await fresh()
      const byEither = fc.record({ pause: pauses, cost: costs, config: fc.constantFrom('from', 'to') })
      await forEvery(
        fc.record({ steps: listOf(byEither, 20) }),
        runsFor(engine, 3 * runsOn(engine)),
        async ({ steps }) => {
          const answered = await expectReference(engine, steps, ({ config }) => [
            config === 'from' ? from : to,
          ])
          for (const rule of [from, to]) {
            expect(violationOf(rule, admittedUnder(rule, answered))).toBeUndefined()
          }
        },
      )
    },
  )

  it('with two limits of sliding-window: the lower limit does not cut the counts of the higher one', async () => {
    const engine = await fresh()
    const [wide, narrow] = [100, 4].map(limit => ruleOf({ algorithm: 'sliding-window', limit, period: '1s' }))
    const spend = async (rule: Rule, cost: number, at: number) => {
      const counted = bound(rule, consumerStateKey('acme'), cost)
      return (await engine.evaluate(evaluationOf([counted], NOON + at))).verdicts[0]!.remaining
    }
    await spend(wide!, 100, 999_999)
    expect(await spend(narrow!, 1, 1_500_000)).toBe(1)
    // Half of the 100 still count.
    expect(await spend(wide!, 0, 1_500_000)).toBe(49)
  })
})

describeOnEngines('rules that are added and removed', fresh => {
  it(`do not affect each other in their common state (SEED=${SEED})`, async () => {
    const engine = await fresh()
    const underASet = fc.record({ pause: pauses, cost: costs, set: fc.constantFrom(0, 0, 0, 1, 2) })
    const scenario = fc.record({ sets: listOf(ruleSet, 3), steps: listOf(underASet, 50) })
    await forEvery(scenario, runsFor(engine, 4 * runsOn(engine)), async ({ sets, steps }) => {
      const ruleSets = sets.map(set =>
        rulesOf(
          ...set.map(({ name, algorithm }) => ({ ...NUMBERS[algorithm], name, by: 'consumer' }) as RuleInput),
        ),
      )
      await expectReference(engine, steps, ({ set }) => ruleSets[set % ruleSets.length]!)
    })
  })
})
