/** The model predicts what the script replies for each kind of subject (evaluation.ts), while the records of the subject change. */
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import type { Subject, Verdict } from '../../src/script/evaluation.ts'
import { consumerKey, credentialKey, pointerKey, UNKNOWN_CONSUMER } from '../../src/store/keys.ts'
import { formatConsumer } from '../../src/store/records.ts'
import { credentialOf, describeOnRedisEngine, ModelEngine, runsFor } from '../support/engines.ts'
import { overrideOf } from '../support/overrides.ts'
import { forEvery } from '../support/property.ts'
import { FC_PATH, SEED } from '../support/random.ts'
import { listOf, NOON, newCaller } from '../support/traffic.ts'
import { after, pausesToAndFro } from '../support/waits.ts'
import { config, evaluationFor, GUESSES, MINUTE, RULES } from './subject-rules.ts'

/** The keys of one run. Different runs share no key. */
function callerOf(consumer: string) {
  const digest = `${consumer}-digest`
  const keyed = { consumerKey: consumerKey(consumer), credentialKey: credentialKey(consumer, digest) }
  const pointer = {
    kind: 'pointer' as const,
    consumerKey: consumerKey(UNKNOWN_CONSUMER),
    credentialKey: credentialKey(UNKNOWN_CONSUMER, digest),
    pointerKey: pointerKey(digest),
  }
  const subjects = {
    key: { kind: 'key', ...keyed },
    'live key': { kind: 'key', ...keyed, mode: 'live' },
    'test key': { kind: 'key', ...keyed, mode: 'test' },
    'wrong key': { kind: 'key', ...keyed, credentialKey: credentialKey(consumer, 'wrong') },
    token: { kind: 'token', consumerKey: consumerKey(consumer) },
    'token of a plan': { kind: 'token', consumerKey: consumerKey(consumer), plan: 'pro' },
    pointer,
    'live pointer': { ...pointer, mode: 'live' },
    'test pointer': { ...pointer, mode: 'test' },
    none: undefined,
  } satisfies Record<string, Subject | undefined>
  return { consumer, pointerKey: pointerKey(digest), ...keyed, subjects }
}
type Caller = ReturnType<typeof callerOf>

const ALL_RULES = [...RULES, MINUTE, GUESSES]
const plan = fc.constantFrom(undefined, 'free', 'pro', 'max', 'gone')
/** When something ends, in µs from now. Negative: it has ended. Undefined: it has no end. */
const end = fc.option(fc.integer({ min: -1e5, max: 1e6 }), { nil: undefined })

const askStep = fc.record({
  pause: pausesToAndFro,
  subject: fc.constantFrom<keyof Caller['subjects']>(
    ...(['key', 'key', 'key', 'live key', 'test key', 'token', 'token'] as const),
    ...(['pointer', 'live pointer', 'test pointer'] as const),
    ...(['wrong key', 'token of a plan', 'none'] as const),
  ),
  rules: fc.subarray(
    ALL_RULES.map(({ name }) => name),
    { minLength: 1 },
  ),
  cost: fc.constantFrom(1, 1, 0, 2),
  hasLoops: fc.boolean(),
})
const overrideStep = fc.record({
  of: fc.constantFrom(...[...RULES, MINUTE].map(({ name }) => name)),
  number: fc.option(fc.integer({ min: 1, max: 9 }), { nil: undefined }),
  mode: fc.constantFrom(undefined, undefined, 'enforce' as const, 'shadow' as const, 'off' as const),
  end,
})
/** A change of a record: of the consumer, of its key, or of the pointer to the consumer. */
const recordStep = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({ credential: plan, mode: fc.constantFrom(undefined, 'test' as const) }),
  },
  { weight: 1, arbitrary: fc.constant({ credential: 'nonsense' as const, mode: undefined }) },
  { weight: 2, arbitrary: fc.record({ pointsTo: fc.constantFrom('itself', 'another') }) },
  {
    weight: 8,
    arbitrary: fc.record({
      plan,
      overrides: fc.uniqueArray(overrideStep, { selector: ({ of }) => of, maxLength: 4, size: 'max' }),
    }),
  },
  { weight: 5, arbitrary: fc.record({ blockEnds: end }) },
)
type RecordStep = typeof recordStep extends fc.Arbitrary<infer T> ? T : never

function recordOf(step: RecordStep, caller: Caller, now: number): [key: string, text: string] {
  if ('credential' in step) {
    const text = step.credential === 'nonsense' ? 'nonsense' : credentialOf(step.credential, step.mode)
    return [caller.credentialKey, text]
  }
  if ('pointsTo' in step) {
    const owner = step.pointsTo === 'itself' ? caller.consumer : `${caller.consumer}-other`
    return [caller.pointerKey, owner]
  }
  if ('blockEnds' in step) {
    const until = step.blockEnds === undefined ? {} : { blockedUntil: now + step.blockEnds }
    return [caller.consumerKey, formatConsumer({ blockedAt: new Date(0), ...until, overrides: [] })]
  }
  const overrides = step.overrides.map(({ of, number, mode, end }) => {
    const rule = ALL_RULES.find(({ name }) => name === of)!
    const numbers = rule.algorithm === 'leaky-bucket' ? { queue: number! } : { limit: number! }
    const until = end === undefined ? {} : { until: now + end }
    return overrideOf(rule, number === undefined ? undefined : numbers, { ...(mode && { mode }), ...until })
  })
  return [caller.consumerKey, formatConsumer({ ...(step.plan && { plan: step.plan }), overrides })]
}

const run = fc.record({
  guesses: fc.nat(2),
  steps: listOf(fc.oneof({ weight: 4, arbitrary: askStep }, { weight: 1, arbitrary: recordStep }), 80),
})

describeOnRedisEngine('a decision about a subject', fresh => {
  it(`is what the model predicts, whatever the records (SEED=${SEED})`, async () => {
    const redis = await fresh()
    const withLoops = redis.withLoops()
    const statuses = new Map<string, number>()
    await forEvery(run, runsFor(redis, 25), async ({ guesses, steps }) => {
      const model = new ModelEngine()
      const caller = callerOf(newCaller())
      let now = NOON
      let verdicts: readonly Verdict[] = []
      // The credential is valid until a step changes its records.
      const records: [string, string][] = [
        [caller.credentialKey, credentialOf()],
        [caller.pointerKey, caller.consumer],
      ]
      for (const engine of [redis, model]) for (const record of records) await engine.setRecord(...record)
      // Often there were enough guesses before that a key of another mode is refused too.
      const guess = evaluationFor([GUESSES], caller.subjects['wrong key'], now, 1, caller.consumer)
      for (const engine of [redis, model]) for (let i = 0; i < guesses; i++) await engine.evaluate(guess)
      for (const [i, step] of steps.entries()) {
        if (!('subject' in step)) {
          const record = recordOf(step, caller, now)
          for (const engine of [redis, model]) await engine.setRecord(...record)
          continue
        }
        const inputs = ALL_RULES.filter(({ name }) => step.rules.includes(name))
        now = after(step.pause, now, config(...inputs).rules, verdicts)
        const evaluation = evaluationFor(
          inputs,
          caller.subjects[step.subject],
          now,
          step.cost,
          caller.consumer,
        )
        if (evaluation.rules.length === 0 && !evaluation.subject) continue
        const engine = step.hasLoops ? withLoops : redis
        const [expected, actual] = [await model.evaluate(evaluation), await engine.evaluate(evaluation)]
        expect(actual, `step ${i}`).toEqual(expected)
        verdicts = expected.verdicts
        statuses.set(expected.status, (statuses.get(expected.status) ?? 0) + 1)
      }
    })
    if (FC_PATH) return
    for (const status of ['admitted', 'refused', 'unknown-credential', 'blocked', 'other-mode']) {
      expect(statuses.get(status), status).toBeGreaterThan(0)
    }
  })
})
