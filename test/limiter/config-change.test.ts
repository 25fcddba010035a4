/**
 * A config that changes while states of the old one live. What a record means is said by its tag (compile-rule.ts): with
 * the same tag a rule goes on counting, with another it starts afresh, and nobody reads a number that is not meant for
 * them. The reference keeps a list for each tag, and so foretells every reply.
 */
import { describe, expect, it } from 'vitest'
import { ALGORITHM_NAMES, type AlgorithmName, descriptionOf } from '../../src/algorithms/index.ts'
import type { NumbersInput, RuleInput } from '../../src/config/check/rule-schema.ts'
import type { Rule } from '../../src/config/compile.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import { type Admitted, violationOf } from '../algorithms/guarantees.ts'
import { ALGORITHMS, once, play, type Script, scriptOf } from '../algorithms/scripts.ts'
import { bound } from '../support/bound.ts'
import { describeOnEngines, rulesOf } from '../support/engines.ts'
import { randomFrom, SEED } from '../support/random.ts'
import { evaluationOf, NOON } from '../support/traffic.ts'

/** Fewer units at once than the limit, where the algorithm has such a parameter. */
function numbersOf(algorithm: AlgorithmName): NumbersInput {
  const { parameters } = descriptionOf({ algorithm })
  const atOnce = { ...('burst' in parameters && { burst: 5 }), ...('queue' in parameters && { queue: 4 }) }
  return { algorithm, limit: 6, period: '1s', ...atOnce } as NumbersInput
}

const NUMBERS = Object.fromEntries(
  ALGORITHM_NAMES.map(algorithm => [algorithm, numbersOf(algorithm)]),
) as Record<AlgorithmName, NumbersInput>

const ruleOf = (input: object): Rule => rulesOf({ name: 'a', by: 'consumer', ...input } as RuleInput)[0]!

/** A rule and what it becomes. */
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

/** Those that go on counting, and those that start afresh. */
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
  ...changes('a calendar', { 'fixed-window': { period: 'day', timeZone: 'Asia/Tokyo' } }),
]
const ALGORITHM_CHANGES: Change[] = ALGORITHMS.flatMap(before =>
  ALGORITHMS.filter(after => after !== before).map(after => ({
    title: `from ${before} to ${after}`,
    from: ruleOf(NUMBERS[before]),
    to: ruleOf(NUMBERS[after]),
  })),
)

describe('the tag of a rule', () => {
  it.each(KEPT)('stays with $title: it goes on counting', ({ from, to }) => {
    expect(to.tag).toBe(from.tag)
  })

  it.each([...AFRESH, ...ALGORITHM_CHANGES])('changes with $title: it starts afresh', ({ from, to }) => {
    expect(to.tag).not.toBe(from.tag)
  })

  it('changes with the zone and the kind of a calendar', () => {
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

const REQUESTS = 14

/** Half of the requests before the change, half after it; and a last one under the old rule, as after a rollback. */
const scriptOfChange = ({ from, to }: Change, seed: number): Script =>
  scriptOf({
    random: randomFrom(seed),
    requests: REQUESTS + 1,
    rules: i => [i < REQUESTS / 2 || i === REQUESTS ? from : to],
  })

/** What a rule admitted, in order. */
const admittedUnder = (rule: Rule, script: Script): Admitted[] =>
  script.flatMap(({ evaluation, expected }) => {
    const [verdict] = expected.verdicts
    const { cost } = evaluation.rules[0]!
    return verdict!.rule === rule && verdict!.allowed && cost > 0
      ? [{ at: evaluation.now, cost, delay: verdict!.delay }]
      : []
  })

const scripts = new Map(
  [...KEPT, ...AFRESH, ...ALGORITHM_CHANGES].map((change, i) => [
    change,
    once(() => scriptOfChange(change, SEED + i)),
  ]),
)

/** For each algorithm two configs that are live at once, as in a gradual deployment. */
const PAIRS: Change[] = [
  ...changes('two limits', only(COUNTING, { limit: 2 })),
  ...changes('two limits and bursts', only(['token-bucket', 'gcra'], { limit: 3, burst: 2 })),
  ...changes('two limits and queues', { 'leaky-bucket': { limit: 3, queue: 1 } }),
  ...changes('two periods', ofAll({ period: '3s' })),
]

const alternating = new Map(
  PAIRS.map((pair, i) => [
    pair,
    once(() => {
      const random = randomFrom(SEED + i)
      const rules = () => [random.pick([pair.from, pair.to])]
      return Array.from({ length: 3 }, () => scriptOf({ random, requests: REQUESTS, rules }))
    }),
  ]),
)

/** Rules come, go and are named otherwise, in one state. */
const ofSets = once(() => {
  const random = randomFrom(SEED)
  const names = ['a', 'b', 'c', 'd']
  const setOf = () => {
    const chosen = names.filter(() => random.chance(0.6))
    return rulesOf(
      ...(chosen.length > 0 ? chosen : names).map(
        name => ({ ...NUMBERS[random.pick(ALGORITHMS)], name, by: 'consumer' }) as RuleInput,
      ),
    )
  }
  return Array.from({ length: 4 }, () => {
    const sets = Array.from({ length: 3 }, setOf)
    let set = sets[0]!
    return scriptOf({
      random,
      requests: 2 * REQUESTS,
      rules: () => {
        if (random.chance(0.3)) set = random.pick(sets)
        return set
      },
    })
  })
})

describeOnEngines('a rule that is changed', fresh => {
  it.each([...KEPT, ...AFRESH, ...ALGORITHM_CHANGES])(
    `$title counts at once, and reads no number of the old rule as its own (SEED=${SEED})`,
    async change => {
      const script = scripts.get(change)!()
      await play(await fresh(), [script])
      expect(violationOf(change.to, admittedUnder(change.to, script)), `SEED=${SEED}`).toBeUndefined()
    },
  )
})

describeOnEngines('two configs that are live at once', fresh => {
  it.each(PAIRS)(`with $title never undo what the other has counted (SEED=${SEED})`, async pair => {
    const scripts = alternating.get(pair)!()
    await play(await fresh(), scripts)
    for (const rule of [pair.from, pair.to]) {
      for (const script of scripts) {
        expect(violationOf(rule, admittedUnder(rule, script)), `SEED=${SEED}`).toBeUndefined()
      }
    }
  })

  it('with two limits of sliding-window: the lower one cuts nothing of what the higher one has counted', async () => {
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

describeOnEngines('rules that come and go', fresh => {
  it(`leave each other alone in the state they share (SEED=${SEED})`, async () => {
    await play(await fresh(), ofSets())
  })
})
