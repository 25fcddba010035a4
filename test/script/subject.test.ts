/** The data that the store looks up for a subject in the same trip: plans, blocks, overrides, bad credentials. */
import { expect, it } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import { toDecision } from '../../src/limiter/decision.ts'
import type { Subject } from '../../src/script/evaluation.ts'
import type { RefundedRule } from '../../src/script/refund.ts'
import { writtenNumbers } from '../../src/script/wire.ts'
import { consumerKey, credentialKey, pointerKey, UNKNOWN_CONSUMER } from '../../src/store/keys.ts'
import { type ConsumerRecord, formatConsumer, parseConsumer } from '../../src/store/records.ts'
import { credentialOf, describeOnEngines, type Engine } from '../support/engines.ts'
import { overrideOf } from '../support/overrides.ts'
import { NOON } from '../support/traffic.ts'
import { evaluationFor, GUESSES, MINUTE, RULES } from './subject-rules.ts'

const KEY: Subject = {
  kind: 'key',
  consumerKey: consumerKey('acme'),
  credentialKey: credentialKey('acme', 'ff'),
}
const POINTER: Subject = {
  kind: 'pointer',
  consumerKey: consumerKey(UNKNOWN_CONSUMER),
  credentialKey: credentialKey(UNKNOWN_CONSUMER, 'ff'),
  pointerKey: pointerKey('ff'),
}
const TOKEN: Subject = { kind: 'token', consumerKey: consumerKey('acme') }

describeOnEngines('the plan', fresh => {
  const planOf = async (
    own: string | undefined,
    consumers: ConsumerRecord | undefined,
    subject: Subject = KEY,
  ) => {
    const engine = await fresh()
    await engine.setRecord(credentialKey('acme', 'ff'), credentialOf(own))
    if (consumers) await engine.setRecord(consumerKey('acme'), formatConsumer(consumers))
    const { plan, verdicts } = await engine.evaluate(evaluationFor([MINUTE], subject))
    return [plan, ...verdicts.map(({ rule, remaining }) => `${rule.limit}: ${remaining}`)]
  }

  it('is that of the credential, else that of the consumer, else the default plan', async () => {
    expect(await planOf('pro', { plan: 'max', overrides: [] })).toEqual(['pro', '100: 99'])
    expect(await planOf(undefined, { plan: 'pro', overrides: [] })).toEqual(['pro', '100: 99'])
    expect(await planOf(undefined, { plan: 'max', overrides: [] })).toEqual(['max'])
    expect(await planOf(undefined, undefined)).toEqual(['free', '10: 9'])
    expect(await planOf(undefined, { overrides: [] })).toEqual(['free', '10: 9'])
  })

  it('is the default plan if the config does not have the stored plan', async () => {
    expect(await planOf('gone', { plan: 'pro', overrides: [] })).toEqual(['free', '10: 9'])
    expect(await planOf(undefined, { plan: 'gone', overrides: [] })).toEqual(['free', '10: 9'])
  })

  it('of a token is that of its claim, else that of the consumer', async () => {
    const claims: Subject = { kind: 'token', consumerKey: consumerKey('acme'), plan: 'pro' }
    expect(await planOf(undefined, { plan: 'max', overrides: [] }, claims)).toEqual(['pro', '100: 99'])
    expect(await planOf(undefined, { plan: 'max', overrides: [] }, TOKEN)).toEqual(['max'])
    expect(await planOf(undefined, undefined, TOKEN)).toEqual(['free', '10: 9'])
  })

  it('changes the budget at once, and spent units stay spent', async () => {
    const engine = await fresh()
    const { setRecord } = recordsOf(engine)
    await setRecord(credentialKey('acme', 'ff'), credentialOf())
    const left = async () => (await engine.evaluate(evaluationFor([MINUTE], KEY))).verdicts[0]!.remaining
    expect(await left()).toBe(9)
    await setRecord(consumerKey('acme'), formatConsumer({ plan: 'pro', overrides: [] }))
    expect(await left()).toBe(98)
    await setRecord(consumerKey('acme'), formatConsumer({ overrides: [] }))
    expect(await left()).toBe(7)
  })
})

describeOnEngines('a consumer', fresh => {
  it.each([KEY, TOKEN])(
    'that is blocked gets the status blocked, and spends nothing: $kind',
    async subject => {
      const engine = await fresh()
      await engine.setRecord(credentialKey('acme', 'ff'), credentialOf())
      const blocked: ConsumerRecord = { blockedAt: new Date(0), reason: 'abuse blocked=no', overrides: [] }
      await engine.setRecord(consumerKey('acme'), formatConsumer(blocked))
      const before = await engine.snapshot()
      const outcome = await engine.evaluate(evaluationFor([MINUTE], subject))
      expect(outcome).toEqual({ status: 'blocked', plan: '', at: NOON, verdicts: [] })
      expect(toDecision(outcome)).toEqual({ kind: 'blocked' })
      expect(await engine.snapshot()).toEqual(before)
    },
  )

  it.each([KEY, TOKEN, POINTER])(
    'is blocked until the block ends, by the clock of the store: $kind',
    async subject => {
      const engine = await fresh()
      await engine.setRecord(pointerKey('ff'), 'acme')
      await engine.setRecord(credentialKey('acme', 'ff'), credentialOf())
      const blocked: ConsumerRecord = {
        ...{ blockedAt: new Date(0), blockedUntil: NOON, blockedBy: 'until=1', reason: 'no until=2 by=x' },
        overrides: [],
      }
      await engine.setRecord(consumerKey('acme'), formatConsumer(blocked))
      expect(parseConsumer(formatConsumer(blocked))).toEqual(blocked)
      const at = async (now: number) => await engine.evaluate(evaluationFor([MINUTE], subject, now))
      expect(await at(NOON - 1)).toMatchObject({ status: 'blocked', blockedUntil: NOON })
      expect((await at(NOON)).status).toBe('admitted')
    },
  )

  it.each(['', 'soon', '-1', ' 1'])(
    'stays blocked if the end of the block cannot be read: %j',
    async until => {
      const engine = await fresh()
      const text = `plan= blocked=1970-01-01T00:00:00.000Z until=${until}`
      await engine.setRecord(consumerKey('acme'), text)
      expect((await engine.evaluate(evaluationFor([MINUTE], TOKEN))).status).toBe('blocked')
    },
  )

  it('is not blocked by a text field of its record', async () => {
    const engine = await fresh()
    await engine.setRecord(credentialKey('acme', 'ff'), credentialOf())
    const record: ConsumerRecord = { reason: 'once blocked=2020 override=abc', overrides: [] }
    await engine.setRecord(consumerKey('acme'), formatConsumer(record))
    expect((await engine.evaluate(evaluationFor([MINUTE], KEY))).status).toBe('admitted')
  })

  it('is not looked up if the credential is unknown', async () => {
    const engine = await fresh()
    await engine.setRecord(consumerKey('acme'), formatConsumer({ blockedAt: new Date(0), overrides: [] }))
    expect((await engine.evaluate(evaluationFor([MINUTE], KEY))).status).toBe('unknown-credential')
  })
})

describeOnEngines('an override', fresh => {
  const overriding = async (...overrides: ConsumerRecord['overrides']) => {
    const engine = await fresh()
    await engine.setRecord(credentialKey('acme', 'ff'), credentialOf())
    await engine.setRecord(consumerKey('acme'), formatConsumer({ overrides }))
    return engine
  }

  it.each(RULES)('of $name applies, and is shown in headers', async rule => {
    const numbers =
      rule.algorithm === 'leaky-bucket'
        ? { queue: 6 }
        : { limit: 7, ...(rule.algorithm === 'token-bucket' && { burst: 7 }) }
    const engine = await overriding(overrideOf(rule, numbers))
    const outcomes = []
    for (let i = 0; i < 8; i++) outcomes.push(await engine.evaluate(evaluationFor([rule], KEY)))
    expect(outcomes.map(({ status }) => status)).toEqual([...Array(7).fill('admitted'), 'refused'])
    const { limit, quota } = outcomes[0]!.verdicts[0]!.rule
    expect([limit, quota.burst]).toEqual(rule.algorithm === 'leaky-bucket' ? [300, 7] : [7, 7])
  })

  it('of one rule does not affect other rules and other consumers', async () => {
    const engine = await overriding(overrideOf(RULES[0]!, { limit: 7 }))
    const { verdicts } = await engine.evaluate(evaluationFor(RULES, KEY))
    expect(verdicts.map(({ rule }) => rule.limit)).toEqual([7, 3, 300, 3, 3, 3, 3])
    const other: Subject = { ...KEY, consumerKey: consumerKey('other') }
    const outcome = await engine.evaluate(evaluationFor(RULES, other))
    expect(outcome.verdicts.map(({ rule }) => rule.limit)).toEqual([3, 3, 300, 3, 3, 3, 3])
  })

  it('is found among any number of others, and in no other field of the record', async () => {
    const [first, second] = RULES as [RuleInput, RuleInput]
    const engine = await fresh()
    await engine.setRecord(credentialKey('acme', 'ff'), credentialOf())
    const others = Array.from({ length: 2000 }, (_, i) => {
      return overrideOf({ ...first, name: `other-${i}` }, { limit: 5 })
    })
    const { family } = overrideOf(first, { limit: 5 })
    const reason = `${family},,-1,,,,,,,first`
    const overrides = [...others, overrideOf(second, { limit: 7 })]
    await engine.setRecord(consumerKey('acme'), formatConsumer({ reason, overrides }))
    const { verdicts } = await engine.evaluate(evaluationFor([first, second], KEY))
    expect(verdicts.map(({ rule, mode }) => [rule.limit, mode])).toEqual([
      [3, 'enforce'],
      [7, 'enforce'],
    ])
    const blocked = { blockedAt: new Date(0), blockedUntil: NOON + 1, overrides }
    await engine.setRecord(consumerKey('acme'), formatConsumer(blocked))
    const statusAt = async (now: number) =>
      (await engine.evaluate(evaluationFor([second], KEY, now, 0))).status
    expect([await statusAt(NOON), await statusAt(NOON + 1)]).toEqual(['blocked', 'admitted'])
  })

  it('applies until it expires', async () => {
    const [rule] = RULES
    const engine = await overriding(overrideOf(rule!, { limit: 7 }, { until: NOON + 1e6 }))
    const limitAt = async (now: number) =>
      (await engine.evaluate(evaluationFor([rule!], KEY, now, 0))).verdicts[0]!.rule.limit
    expect(await limitAt(NOON + 999_999)).toBe(7)
    expect(await limitAt(NOON + 1e6)).toBe(3)
  })

  it('can make a rule a shadow, turn it off, or enforce it', async () => {
    const rule = RULES[3]!
    const modeOf = async (mode: 'enforce' | 'shadow' | 'off', input = rule) => {
      const engine = await overriding(overrideOf(input, undefined, { mode }))
      const outcomes = []
      for (let i = 0; i < 4; i++) outcomes.push(await engine.evaluate(evaluationFor([input], KEY)))
      return [
        outcomes.at(-1)!.status,
        ...outcomes.at(-1)!.verdicts.map(({ mode, allowed }) => [mode, allowed]),
      ]
    }
    expect(await modeOf('enforce')).toEqual(['refused', ['enforce', false]])
    expect(await modeOf('shadow')).toEqual(['admitted', ['shadow', false]])
    expect(await modeOf('off')).toEqual(['admitted'])
    expect(await modeOf('enforce', { ...rule, mode: 'shadow' })).toEqual(['refused', ['enforce', false]])
  })

  it('does not enforce a rule that was switched to shadow, but the numbers of the override apply', async () => {
    const rule = RULES[3]!
    const engine = await overriding(overrideOf(rule, { limit: 1 }, { mode: 'enforce' }))
    const evaluation = evaluationFor([rule, MINUTE], KEY)
    const [first, ...others] = evaluation.rules
    const switched = {
      ...evaluation,
      rules: [{ ...first!, mode: 'shadow' as const, staysShadow: true }, ...others],
    }
    await engine.evaluate(switched)
    const { status, verdicts } = await engine.evaluate(switched)
    expect(status).toBe('admitted')
    expect(
      verdicts.map(({ rule, mode, allowed, remaining }) => [rule.limit, mode, allowed, remaining]),
    ).toEqual([
      [1, 'shadow', false, 0],
      // All other rules count the request.
      [MINUTE.limit, 'enforce', true, MINUTE.limit - 2],
    ])
  })

  it('applies only to the rule with the same name, algorithm and period, whatever the limit and plan of that rule', async () => {
    const override = overrideOf(RULES[0]!, { limit: 7 })
    const limitOf = async (rule: RuleInput, subject: Subject = KEY) => {
      const engine = await overriding(override)
      return (await engine.evaluate(evaluationFor([rule], subject))).verdicts[0]!.rule.limit
    }
    expect(await limitOf({ ...RULES[0]!, limit: 5 } as RuleInput)).toBe(7)
    expect(
      await limitOf({ ...RULES[0]!, plans: { pro: { limit: 4 } } }, { ...TOKEN, plan: 'pro' } as Subject),
    ).toBe(7)
    expect(await limitOf({ ...RULES[0]!, period: '2h' } as RuleInput)).toBe(3)
    expect(await limitOf({ ...RULES[0]!, name: 'renamed' })).toBe(3)
    // Rules that count addresses are not affected by overrides of a consumer.
    expect(await limitOf({ ...RULES[0]!, by: 'address' })).toBe(3)
  })

  it('also applies to refunds', async () => {
    const [rule] = RULES
    const engine = await overriding(overrideOf(rule!, { limit: 7 }))
    for (let i = 0; i < 6; i++) await engine.evaluate(evaluationFor([rule!], KEY))
    const rules = await spendUnderOverride(engine, rule!)
    const back = await engine.refund({ rules, spentAt: NOON, consumerKey: consumerKey('acme'), now: NOON })
    expect(back.verdicts[0]).toMatchObject({ allowed: true, remaining: 1 })
    expect((await engine.evaluate(evaluationFor([rule!], KEY))).status).toBe('admitted')
    expect((await engine.evaluate(evaluationFor([rule!], KEY))).status).toBe('refused')
  })

  it.each([
    { name: 'gcra', limits: [3, 7], remaining: 6 },
    { name: 'gcra', limits: [7, 3], remaining: 2 },
    { name: 'gcra', limits: [7, 5], remaining: 4 },
    // A window has one record for all limits, in which both requests were counted.
    { name: 'fixed-window', limits: [3, 7], remaining: 6 },
    { name: 'fixed-window', limits: [7, 3], remaining: 2 },
  ])(
    'that has changed since ($limits): a refund under $name gives nothing to a record that has not spent it',
    async ({ name, limits: [before, after], remaining }) => {
      const rule = RULES.find(each => each.name === name)!
      const recordOf = (limit: number) => formatConsumer({ overrides: [overrideOf(rule, { limit })] })
      const engine = await overriding()
      // A limit of 3 is that of the config.
      await engine.setRecord(consumerKey('acme'), before === 3 ? '' : recordOf(before!))
      const rules = await spendUnderOverride(engine, rule)
      await engine.setRecord(consumerKey('acme'), after === 3 ? '' : recordOf(after!))
      await engine.evaluate(evaluationFor([rule], KEY))
      const back = await engine.refund({ rules, spentAt: NOON, consumerKey: consumerKey('acme'), now: NOON })
      expect(back.verdicts[0]!.remaining).toBe(remaining)
    },
  )

  it('that has turned the rule off since does not prevent a refund', async () => {
    const engine = await overriding()
    const rule = RULES.find(({ name }) => name === 'gcra')!
    const spent = evaluationFor([rule], KEY)
    await engine.evaluate(spent)
    const off = formatConsumer({ overrides: [overrideOf(rule, undefined, { mode: 'off' })] })
    await engine.setRecord(consumerKey('acme'), off)
    const rules = spent.rules.map(bound => ({ ...bound, units: 1, spent: 1 }))
    const back = await engine.refund({ rules, spentAt: NOON, consumerKey: consumerKey('acme'), now: NOON })
    expect(back.verdicts[0]).toMatchObject({ allowed: true, remaining: 3, resetAfter: 0 })
  })
})

/** Spends one unit. @returns what gives it back */
async function spendUnderOverride(engine: Engine, rule: RuleInput): Promise<RefundedRule[]> {
  const evaluation = evaluationFor([rule], KEY)
  const { verdicts } = await engine.evaluate(evaluation)
  return evaluation.rules.map((bound, i) => {
    const written = writtenNumbers(verdicts[i]!.rule, bound.rule)
    return { ...bound, units: 1, spent: 1, written }
  })
}

describeOnEngines('a rule on auth-failure', fresh => {
  const prepared = async () => {
    const engine = await fresh()
    await engine.setRecord(credentialKey('acme', 'ff'), credentialOf())
    const bad: Subject = { ...KEY, credentialKey: credentialKey('acme', 'ee') }
    const ask = async (subject: Subject | undefined) =>
      await engine.evaluate(evaluationFor([GUESSES, MINUTE], subject))
    return { engine, bad, ask }
  }

  it('counts bad credentials, and nothing else', async () => {
    const { bad, ask } = await prepared()
    for (let i = 0; i < 3; i++) expect((await ask(KEY)).verdicts[0]!.remaining).toBe(2)
    const outcome = await ask(bad)
    expect(outcome.status).toBe('unknown-credential')
    expect(outcome.verdicts.map(({ rule, remaining }) => [rule.name, remaining])).toEqual([['guesses', 1]])
    expect((await ask(KEY)).verdicts.map(({ remaining }) => remaining)).toEqual([1, 6])
  })

  it('after too many guesses also refuses valid credentials, and does not show which are valid', async () => {
    const { engine, bad, ask } = await prepared()
    for (let i = 0; i < 2; i++) expect((await ask(bad)).status).toBe('unknown-credential')
    const before = await engine.snapshot()
    const [good, guess] = [toDecision(await ask(KEY)), toDecision(await ask(bad))]
    expect(good).toEqual(guess)
    expect(good).toMatchObject({
      kind: 'denied',
      violated: [{ rule: { name: 'guesses' } }],
      retryAfter: 3600e6,
    })
    expect(await engine.snapshot()).toEqual(before)
  })

  it('gives a blocked consumer the status blocked, but after too many guesses the reply of a bad credential', async () => {
    const { engine, bad, ask } = await prepared()
    await engine.setRecord(consumerKey('acme'), formatConsumer({ blockedAt: new Date(0), overrides: [] }))
    expect((await ask(KEY)).status).toBe('blocked')
    for (let i = 0; i < 2; i++) await ask(bad)
    const before = await engine.snapshot()
    expect(toDecision(await ask(KEY))).toEqual(toDecision(await ask(bad)))
    expect(await engine.snapshot()).toEqual(before)
  })

  it.each([
    ['key', KEY],
    ['pointer', POINTER],
  ])(
    'after too many guesses refuses a %s of another mode at once, like a bad credential',
    async (_, subject) => {
      const { engine, bad, ask } = await prepared()
      await engine.setRecord(pointerKey('ff'), 'acme')
      await engine.setRecord(credentialKey('acme', 'ff'), credentialOf('pro', 'test'))
      const taken = { ...subject, mode: 'live' } as Subject
      expect((await ask(taken)).status).toBe('other-mode')
      for (let i = 0; i < 2; i++) await ask(bad)
      const before = await engine.snapshot()
      expect(toDecision(await ask(taken))).toEqual(toDecision(await ask(bad)))
      expect(await engine.snapshot()).toEqual(before)
    },
  )

  it('never refuses as a shadow', async () => {
    const { engine, bad } = await prepared()
    const rules = [{ ...GUESSES, mode: 'shadow' as const }, MINUTE]
    for (let i = 0; i < 4; i++) {
      expect((await engine.evaluate(evaluationFor(rules, bad))).status).toBe('unknown-credential')
    }
    const { status, verdicts } = await engine.evaluate(evaluationFor(rules, KEY))
    expect([status, verdicts[0]!.allowed]).toEqual(['admitted', false])
  })
})

describeOnEngines('an opaque key', fresh => {
  it('is looked up and counted in one call, which returns its consumer', async () => {
    const engine = await fresh()
    await engine.setRecord(pointerKey('ff'), 'acme')
    await engine.setRecord(credentialKey('acme', 'ff'), credentialOf('pro'))
    await engine.setRecord(
      consumerKey('acme'),
      formatConsumer({ overrides: [overrideOf(MINUTE, { limit: 50 })] }),
    )
    const log: RuleInput = { name: 'log', by: 'consumer', algorithm: 'sliding-log', limit: 3, period: '1h' }
    const cold = await engine.evaluate(evaluationFor([MINUTE, GUESSES, log], POINTER))
    expect(cold).toMatchObject({ status: 'admitted', plan: 'pro', consumer: 'acme' })
    expect(cold.verdicts.map(({ remaining }) => remaining)).toEqual([49, 2, 2])
    // The isolate now knows the consumer, and the budget is the same.
    const warm = await engine.evaluate(evaluationFor([MINUTE, GUESSES, log], KEY))
    expect(warm.verdicts.map(({ remaining }) => remaining)).toEqual([48, 2, 1])
    expect(warm).not.toHaveProperty('consumer')
  })

  it('that is unknown or was revoked is a bad credential', async () => {
    const engine = await fresh()
    const unknown = await engine.evaluate(evaluationFor([MINUTE, GUESSES], POINTER))
    expect([unknown.status, unknown.verdicts.map(({ remaining }) => remaining)]).toEqual([
      'unknown-credential',
      [1],
    ])
    await engine.setRecord(pointerKey('ff'), 'acme')
    const revoked = await engine.evaluate(evaluationFor([MINUTE, GUESSES], POINTER))
    expect([revoked.status, revoked.verdicts.map(({ remaining }) => remaining)]).toEqual([
      'unknown-credential',
      [0],
    ])
  })
})

function recordsOf(engine: Engine): Pick<Engine, 'setRecord'> {
  return { setRecord: (key, text) => engine.setRecord(key, text) }
}
