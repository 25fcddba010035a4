/** Leases: the units that a decision spends in advance, and their guarantees. The model is the specification of the script. */
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import type { Rule } from '../../src/config/compile.ts'
import { gatewayRuleSet } from '../../src/script/compiled.ts'
import type { Outcome, Subject } from '../../src/script/evaluation.ts'
import { LEASE_DIVISOR } from '../../src/script/lease.ts'
import { ScriptModel } from '../../src/script/model.ts'
import { decideText, refundText } from '../../src/script/rule-set-text.ts'
import { consumerKey, consumerStateKey, credentialKey } from '../../src/store/keys.ts'
import { formatConsumer } from '../../src/store/records.ts'
import { type Admitted, violationOf } from '../algorithms/guarantees.ts'
import { sized } from '../selection.ts'
import { bound } from '../support/bound.ts'
import {
  configOf,
  credentialOf,
  describeOnEngines,
  type Engine,
  ModelEngine,
  rulesOf,
  type TimedEvaluation,
} from '../support/engines.ts'
import { ALGORITHMS_OVER_TIME, numbersOf } from '../support/numbers.ts'
import { overrideOf } from '../support/overrides.ts'
import { expectShare, forEvery } from '../support/property.ts'
import { SEED } from '../support/random.ts'
import { evaluationOf, listOf, NOON, newCaller, unitsFor } from '../support/traffic.ts'
import { after, pauses } from '../support/waits.ts'

const lease = { for: '250ms' } as const
const KEY = consumerStateKey('acme')
const WHO: Subject = {
  kind: 'key',
  consumerKey: consumerKey('acme'),
  credentialKey: credentialKey('acme', 'ff'),
}

const HOUR: RuleInput = {
  ...{ name: 'hour', by: 'consumer', lease },
  ...{ algorithm: 'fixed-window', limit: 1600, period: '1h' },
}
const DAY: RuleInput = { ...HOUR, name: 'day', limit: 16_000, period: '1d' }

interface EvaluationChanges extends Partial<TimedEvaluation> {
  wantedRequests?: number
  /** By name of the rule. */
  costs?: Record<string, number>
  modes?: Record<string, 'enforce' | 'shadow'>
}

/** One request at noon that all rules count. */
function evaluationWith(
  rules: readonly Rule[],
  { costs = {}, modes = {}, ...changes }: EvaluationChanges,
): TimedEvaluation {
  const boundRules = rules.map(rule => {
    const mode = modes[rule.name]
    return { ...bound(rule, KEY, costs[rule.name] ?? rule.cost, NOON / 1e3), ...(mode && { mode }) }
  })
  return { ...evaluationOf(boundRules, NOON), ...changes }
}

const leftIn = ({ verdicts }: Outcome) => verdicts.map(({ remaining }) => remaining)

describeOnEngines('a lease', fresh => {
  const answers = async (engine: Engine, rules: readonly Rule[], ...changes: EvaluationChanges[]) => {
    const outcomes: Outcome[] = []
    for (const change of changes) outcomes.push(await engine.evaluate(evaluationWith(rules, change)))
    return outcomes
  }

  it('has the wanted size if every rule has sixteen times as much left', async () => {
    const [first, second] = await answers(await fresh(), rulesOf(HOUR, DAY), { wantedRequests: 60 }, {})
    expect([first!.granted, leftIn(first!)]).toEqual([60, [1540, 15_940]])
    expect([second!.granted, leftIn(second!)]).toEqual([undefined, [1539, 15_939]])
  })

  it('gets a sixteenth of the units that the scarcest rule has left, so each lease is smaller than the last', async () => {
    const changes = Array.from({ length: 3 }, () => ({ wantedRequests: 5000 }))
    const outcomes = await answers(await fresh(), rulesOf(HOUR, DAY), ...changes)
    expect(outcomes.map(({ granted }) => granted)).toEqual([100, 93, 87])
    expect(outcomes.map(leftIn)).toEqual([
      ...[
        [1500, 15_900],
        [1407, 15_807],
        [1320, 15_720],
      ],
    ])
  })

  it('takes the cost of a request into account', async () => {
    const costs = { hour: 3, day: 50 }
    const [outcome] = await answers(await fresh(), rulesOf(HOUR, DAY), { wantedRequests: 5000, costs })
    expect([outcome!.granted, leftIn(outcome!)]).toEqual([20, [1600 - 60, 16_000 - 1000]])
  })

  it('is not limited by a rule at cost 0, and spends nothing under it', async () => {
    const rules = rulesOf({ ...HOUR, limit: 2 }, DAY)
    const [outcome] = await answers(await fresh(), rules, { wantedRequests: 5000, costs: { hour: 0 } })
    expect([outcome!.granted, leftIn(outcome!)]).toEqual([1000, [2, 15_000]])
  })

  it('is limited by a shadow that admits, and not by one that would refuse', async () => {
    const rules = rulesOf({ ...HOUR, limit: 40 }, DAY)
    const modes = { hour: 'shadow' } as const
    const cost = { hour: 41 }
    const [allowing, refusing] = await answers(
      await fresh(),
      rules,
      { wantedRequests: 5000, modes },
      { wantedRequests: 5000, modes, costs: cost },
    )
    expect([allowing!.granted, leftIn(allowing!)]).toEqual([2, [38, 15_998]])
    expect([refusing!.granted, leftIn(refusing!)]).toEqual([999, [38, 14_999]])
  })

  it('is not granted if too little is left, and does not change refusals', async () => {
    const rules = rulesOf({ ...HOUR, limit: 31 }, DAY)
    const [outcome] = await answers(await fresh(), rules, { wantedRequests: 5000 })
    expect([outcome!.granted, leftIn(outcome!)]).toEqual([undefined, [30, 15_999]])
    const costs = { hour: 32 }
    const [plain, wanting] = await answers(await fresh(), rules, { costs }, { costs, wantedRequests: 5000 })
    expect(plain!.status).toBe('refused')
    expect(wanting).toEqual(plain)
  })

  it('of a queue has the delay of its first request', async () => {
    const queue: RuleInput = {
      ...{ name: 'queue', by: 'consumer', lease },
      ...{ algorithm: 'leaky-bucket', limit: 100, period: '1s', queue: 319 },
    }
    const outcomes = await answers(
      await fresh(),
      rulesOf(queue),
      { wantedRequests: 8 },
      { wantedRequests: 2 },
      {},
    )
    expect(outcomes.map(({ granted, verdicts: [verdict] }) => [granted, verdict!.delay])).toEqual([
      ...[
        [8, 0],
        [2, 80_000],
        [undefined, 100_000],
      ],
    ])
  })

  it('is not granted to a peek', async () => {
    const engine = await fresh()
    const rules = rulesOf(HOUR, DAY)
    const peek = await engine.peek(evaluationWith(rules, { wantedRequests: 60 }))
    expect([peek.granted, leftIn(peek)]).toEqual([undefined, [1600, 16_000]])
  })

  it('is limited by the overridden numbers of the consumer', async () => {
    const engine = await fresh()
    await engine.setRecord(WHO.credentialKey, credentialOf())
    const config = configOf({ rules: [HOUR, DAY] })
    const override = overrideOf(HOUR, { limit: 320 })
    await engine.setRecord(WHO.consumerKey, formatConsumer({ overrides: [override] }))
    const [outcome] = await answers(engine, config.rules, { wantedRequests: 5000, subject: WHO })
    expect([outcome!.granted, leftIn(outcome!)]).toEqual([20, [300, 15_980]])
    expect(outcome!.verdicts[0]!.rule.limit).toBe(320)
  })

  it('is not granted to bad credentials, which are counted one by one', async () => {
    const engine = await fresh()
    const guesses: RuleInput = {
      ...{ name: 'guesses', by: 'address', on: 'auth-failure' },
      ...{ algorithm: 'fixed-window', limit: 20, period: '1h' },
    }
    const rules = rulesOf(HOUR, guesses)
    const evaluation = {
      ...evaluationWith(rules, { subject: WHO, wantedRequests: 60 }),
      rules: rules.map(rule => bound(rule, `${KEY}:${rule.name}`, 1, NOON / 1e3)),
    }
    const unknown = await engine.evaluate(evaluation)
    expect([unknown.status, unknown.granted, leftIn(unknown)]).toEqual([
      'unknown-credential',
      undefined,
      [19],
    ])
    await engine.setRecord(WHO.credentialKey, credentialOf())
    const known = await engine.evaluate(evaluation)
    expect([known.status, known.granted, leftIn(known)]).toEqual(['admitted', 60, [1540, 19]])
    const blocked = formatConsumer({ blockedAt: new Date(0), overrides: [] })
    await engine.setRecord(WHO.consumerKey, blocked)
    expect((await engine.evaluate(evaluation)).granted).toBeUndefined()
  })

  it('can be given back in part', async () => {
    const engine = await fresh()
    const rules = rulesOf(HOUR, DAY)
    await answers(engine, rules, { wantedRequests: 60 })
    const refunded = evaluationWith(rules, {}).rules.map(rule => ({ ...rule, units: 50, spent: 60 }))
    const { verdicts } = await engine.refund({ rules: refunded, spentAt: NOON, now: NOON })
    expect(verdicts.map(({ remaining }) => remaining)).toEqual([1590, 15_990])
  })
})

/** Rules with up to several thousand units: usually enough for leases, and sometimes too few. */
const leasedRule = fc
  .record({
    numbers: fc.oneof(...ALGORITHMS_OVER_TIME.map(numbersOf)),
    lot: fc.constantFrom(1, 10, 100, 500),
    cost: fc.constantFrom<number | 'a third'>(1, 1, 1, 1, 2, 3, 0, 'a third'),
    isShadow: fc.constantFrom(false, false, false, true),
  })
  .map(({ numbers, lot, ...others }) => {
    const { limit } = numbers
    const burst = 'burst' in numbers && numbers.burst !== undefined ? { burst: lot * numbers.burst } : {}
    const isLarge = limit > 1000
    return { ...others, numbers: isLarge ? numbers : { ...numbers, limit: lot * limit, ...burst } }
  })

const scenario = fc.record({
  set: listOf(leasedRule, 4),
  steps: listOf(
    fc.record({
      pause: pauses,
      verb: fc.constantFrom<'decide' | 'peek'>(...new Array<'decide'>(9).fill('decide'), 'peek'),
      wantedRequests: fc.oneof(fc.integer({ min: 1, max: 5000 }), fc.integer({ min: 1, max: 20 })),
    }),
    60,
  ),
})
type Scenario = typeof scenario extends fc.Arbitrary<infer T> ? T : never

/** All rules count the same caller, so each request counts under all of them. */
function* requestsOf({ set, steps }: Scenario) {
  const caller = consumerStateKey(newCaller())
  const rules = rulesOf(
    ...set.map(({ numbers, isShadow }, i): RuleInput => {
      const own = numbers.algorithm === 'sliding-log' ? {} : { lease }
      return { ...numbers, ...own, name: `r-${i}`, by: 'consumer', ...(isShadow && { mode: 'shadow' }) }
    }),
  )
  let now = NOON
  let verdicts: Outcome['verdicts'] = []
  for (const { pause, verb, wantedRequests } of steps) {
    now = after(pause, now, rules, verdicts)
    const boundRules = rules.map((rule, i) => bound(rule, caller, unitsFor(rule, set[i]!.cost), now / 1e3))
    const request = { ...evaluationOf(boundRules, now), wantedRequests }
    const outcome: Outcome = yield { rules, request, verb }
    verdicts = outcome.verdicts
  }
}

describe('a lease, whatever the rules and the requests', () => {
  const totals = { decisions: 0, leases: 0, refusals: 0 }

  it(`is within every limit, and at most a sixteenth of what was left (SEED=${SEED})`, async () => {
    await forEvery(scenario, sized(300, 100), async plan => {
      const engine = new ModelEngine()
      const spent = new Map<Rule, Admitted[]>()
      const requests = requestsOf(plan)
      let next = requests.next(undefined as never)
      while (!next.done) {
        const { request, verb } = next.value
        const before = await engine.peek(request)
        const outcome = verb === 'peek' ? before : await engine.evaluate(request)
        const { granted = 1 } = outcome
        totals.decisions += 1
        if (granted > 1) totals.leases += 1
        if (outcome.status === 'refused') totals.refusals += 1
        expect(granted).toBeLessThanOrEqual(request.wantedRequests!)
        for (const [i, { rule, allowed, remaining, delay }] of outcome.verdicts.entries()) {
          const { cost } = request.rules[i]!
          const left = before.verdicts[i]!.remaining
          const isSpent = verb === 'decide' && outcome.status === 'admitted' && allowed && cost > 0
          expect(remaining).toBe(isSpent ? left - granted * cost : left)
          if (!isSpent) continue
          if (granted > 1) expect(granted * LEASE_DIVISOR * cost).toBeLessThanOrEqual(left)
          spent.set(rule, [...(spent.get(rule) ?? []), { at: request.now, cost: granted * cost, delay }])
        }
        if (verb === 'peek') expect(outcome.granted).toBeUndefined()
        next = requests.next(outcome)
      }
      for (const [rule, admitted] of spent) expect(violationOf(rule, admitted)).toBeUndefined()
    })
    expectShare('leases', totals.leases, totals.decisions, 0.05, 0.9)
    expectShare('refusals', totals.refusals, totals.decisions, 0.02, 0.9)
  })

  it(`does not change which requests are admitted, and for one request is an ordinary decision (SEED=${SEED})`, async () => {
    await forEvery(scenario, sized(150, 50), async plan => {
      const [one, none] = [new ModelEngine(), new ModelEngine()]
      const requests = requestsOf(plan)
      let next = requests.next(undefined as never)
      while (!next.done) {
        const { request } = next.value
        const { wantedRequests: _, ...ordinary } = request
        const expected = await none.peek(ordinary)
        // Whether the request is admitted does not depend on the size of the lease.
        const wanting = await one.peek(request)
        expect(wanting).toEqual(expected)
        const outcome = await none.evaluate(ordinary)
        expect(await one.evaluate({ ...request, wantedRequests: 1 })).toEqual(outcome)
        next = requests.next(outcome)
      }
    })
  })
})

describe('the script of a rule set', () => {
  const rules = (own: object) => [HOUR, DAY].map(rule => ({ ...rule, lease: undefined, ...own }))
  const shapeOf = (own: object) => gatewayRuleSet(configOf({ rules: rules(own) as RuleInput[] }))

  it('has the text for leases only if a rule has a lease', () => {
    const [plain, leased] = [shapeOf({}), shapeOf({ lease })]
    expect(plain).not.toHaveProperty('leases')
    expect(decideText(plain)).not.toContain('grant')
    expect(decideText(leased)).toContain('grant')
    const { leases: _, ...without } = leased
    expect(decideText(without)).toBe(decideText(plain))
    expect(refundText(leased)).toBe(refundText(plain))
    expect(leased.entries).toEqual(plain.entries)
  })

  it('differs from that of the same rules without leases', () => {
    expect(shapeOf({ lease }).decide.plain.sha1).not.toBe(shapeOf({}).decide.plain.sha1)
    expect(shapeOf({ lease: { for: '1s' } }).decide.plain.sha1).toBe(shapeOf({ lease }).decide.plain.sha1)
  })

  it('ignores the wanted number of requests if the rule set has no leases', () => {
    const { ruleSet, rules } = { ruleSet: shapeOf({}), rules: rulesOf(HOUR, DAY) }
    const evaluation = { ...evaluationWith(rules, {}), ruleSet }
    const [one, other] = [new ScriptModel(), new ScriptModel()]
    expect(one.decide({ ...evaluation, wantedRequests: 60 })).toEqual(other.decide(evaluation))
  })
})
