/** A random program in which everything meets that changes what a rule has spent (test/script/everything-parity.test.ts). */
import * as fc from 'fast-check'
import { expect } from 'vitest'
import { ALL_ALGORITHMS } from '../../src/algorithms/all.ts'
import type { NumbersInput } from '../../src/config/check/rule-schema.ts'
import type { LimitRuleInput, RuleInput } from '../../src/config/check/schema.ts'
import type { Rule } from '../../src/config/compile.ts'
import { compileLimitRule, countsInFlight } from '../../src/config/compile-rule.ts'
import { withUniqueTags } from '../../src/config/tags.ts'
import { bindRule } from '../../src/limiter/bind.ts'
import {
  type PreparedCall,
  prepareDecide,
  preparePause,
  prepareRefund,
  prepareReset,
  prepareSettle,
} from '../../src/limiter/prepared-call.ts'
import {
  lostReservationOf,
  type Reservation,
  reservationOf,
  settlementFor,
} from '../../src/limiter/reservations/reservation.ts'
import { AdminError } from '../../src/ops/admin-error.ts'
import { compileOverride, limitOverrideRules } from '../../src/ops/overrides.ts'
import type { BoundRule, Outcome, Subject } from '../../src/script/evaluation.ts'
import { ScriptModel } from '../../src/script/model.ts'
import { createLimitRuleSet, createRuleSet } from '../../src/script/rule-set.ts'
import type { RuleSet } from '../../src/script/rule-set-shape.ts'
import { compileScripts } from '../../src/script/scripts.ts'
import { writtenNumbers } from '../../src/script/wire.ts'
import {
  auditKeyOf,
  consumerKey,
  consumerStateKey,
  limitStateKey,
  overridesKey,
} from '../../src/store/keys.ts'
import { formatConsumer, type Override } from '../../src/store/records.ts'
import type { ScriptCall } from '../../src/store/store.ts'
import { numbersFor } from './configs.ts'
import { ENTRY, type RedisEngine, rulesOf } from './engines.ts'
import { forEvery } from './property.ts'
import { listOf, NOON, newCaller } from './traffic.ts'

const settled = fc.constantFrom<NumbersInput>(
  { algorithm: 'fixed-window', limit: 40, period: '10s' },
  { algorithm: 'fixed-window', limit: 40, period: '10s', start: 'first-request' },
  { algorithm: 'fixed-window', limit: 90, period: 'day' },
  { algorithm: 'sliding-window', limit: 40, period: '10s' },
  { algorithm: 'gcra', limit: 40, period: '10s' },
  { algorithm: 'gcra', limit: 7, period: '3s', burst: 40 },
  { algorithm: 'token-bucket', limit: 40, period: '10s', burst: 50 },
)
const others = fc.constantFrom<NumbersInput>(
  { algorithm: 'concurrency', limit: 30, ttl: '10s' },
  { algorithm: 'sliding-log', limit: 40, period: '10s' },
  { algorithm: 'leaky-bucket', limit: 40, period: '5s', queue: 60 },
  { algorithm: 'gcra', limit: 400, period: '1h' },
)
const rule = fc.record({
  kind: fc.constantFrom('settled', 'settled', 'leased', 'leased', 'other'),
  ...{ settled, others },
  identity: fc.constantFrom(0, 0, 1),
  ttlMs: fc.constantFrom(2000, 5000),
  onUnsettled: fc.constantFrom('keep' as const, 'keep' as const, 'release' as const),
  aboveLimit: fc.constantFrom('clamp' as const, 'clamp' as const, 'refuse' as const),
})

/** µs. Some are longer than everything lasts, and some set the clock back. */
const pause = fc.oneof(
  { weight: 6, arbitrary: fc.constant(0) },
  { weight: 6, arbitrary: fc.integer({ min: 1, max: 1_500_000 }) },
  { weight: 2, arbitrary: fc.integer({ min: 2_000_000, max: 12_000_000 }) },
  { weight: 1, arbitrary: fc.constantFrom(60e6, 3600e6, 90_000e6) },
  { weight: 1, arbitrary: fc.integer({ min: -3_000_000, max: -1 }) },
  { weight: 1, arbitrary: fc.constantFrom(-10e6, -60e6, -3600e6) },
)
const step = fc.record({
  verb: fc.constantFrom(
    ...Array<'decide'>(8).fill('decide'),
    ...(['peek', 'refund', 'reset', 'pause', 'renew', 'lost'] as const),
    ...Array<'settle'>(4).fill('settle'),
    ...Array<'override'>(2).fill('override'),
  ),
  pause,
  /** Whether something happens beside this step. */
  moves: fc.constantFrom(false, false, false, true),
  /** Which of the rules are part of the call; a limit by name has all. */
  parts: fc.integer({ min: 1, max: 31 }),
  cost: fc.constantFrom(0, 1, 1, 2, 5, 12, 45),
  reserves: fc.constantFrom(true, true, true, false),
  wantedRequests: fc.constantFrom(1, 1, 3, 40),
  held: fc.option(fc.integer({ min: 0, max: 9 }), { nil: undefined }),
  /** From the latest. */
  admission: fc.integer({ min: 1, max: 5 }),
  actual: fc.constantFrom(0, 1, 3, 9, 60, 2000, 1e9),
  /** How much too long ago a request was made whose reply was lost, as far as the isolate knows (ms). */
  lostFor: fc.constantFrom(0, 900, 5000, -900),
  units: fc.constantFrom<'all' | number>('all', 'all', 1, 4),
  /** µs */
  length: fc.constantFrom(0, 0, 1, 3e6, 9e6, 86400e6),
  override: fc.record({
    rule: fc.nat(4),
    limit: fc.constantFrom(undefined, 3, 20, 60, 60, 4000),
    atOnce: fc.constantFrom(undefined, undefined, 10),
    mode: fc.constantFrom(undefined, undefined, undefined, 'shadow' as const, 'off' as const),
    endsInMs: fc.constantFrom(undefined, undefined, undefined, 3000, 60_000),
  }),
})
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never
type RulePlan = typeof rule extends fc.Arbitrary<infer T> ? T : never

const scenario = fc.record({
  setUp: fc.constantFrom('gateway' as const, 'limit' as const),
  rules: listOf(rule, 5),
  steps: listOf(step, 80),
})

interface Admission {
  rules: readonly BoundRule[]
  outcome: Outcome
  reservation: Reservation | undefined
  lost: Reservation | undefined
}

/** The rules of one deployment, with the keys of their identities and the records of overrides. */
interface Deployment {
  rules: readonly { rule: Rule; key: string }[]
  ruleSets: readonly [straight: RuleSet, loops: RuleSet]
  subject: Subject | undefined
  recordKeyOf(rule: number): string
  /** @throws AdminError if the rule does not accept it */
  overrideOf(rule: number, step: Step['override'], now: number): Override
}

const isSettled = ({ kind }: RulePlan) => kind === 'settled'
const numbersOf = (plan: RulePlan) => (plan.kind === 'other' ? plan.others : plan.settled)
const leaseOf = ({ kind }: RulePlan) => kind === 'leased' && { lease: { for: '1s' as const } }

function withTerms<R extends Rule>(rules: readonly R[], plans: readonly RulePlan[]): R[] {
  return rules.map((rule, i) => {
    const { ttlMs, onUnsettled, aboveLimit } = plans[i]!
    return isSettled(plans[i]!) ? { ...rule, settlement: { ttlMs, onUnsettled, aboveLimit } } : rule
  })
}

function unitsOf(plan: RulePlan, { limit, atOnce, mode }: Step['override']) {
  const units =
    limit === undefined
      ? undefined
      : numbersFor(numbersOf(plan), { limit, ...(atOnce !== undefined && { atOnce }) })
  return { ...units, ...((mode || !units) && { mode: mode ?? ('enforce' as const) }) }
}

function gatewayOf(plans: readonly RulePlan[]): Deployment {
  const caller = newCaller()
  const inputs = plans.map(
    (plan, i): RuleInput => ({
      ...({ name: `rule-${i}`, by: 'consumer', ...numbersOf(plan), ...leaseOf(plan) } as RuleInput),
    }),
  )
  const keys = [consumerStateKey(caller), `${consumerStateKey(caller)}:part=b`]
  const rules = withTerms(rulesOf(...inputs), plans).map((rule, i) => ({
    ...{ rule, key: keys[plans[i]!.identity]! },
  }))
  const counted = rules.map(({ rule, key }) => ({ rule, identity: key }))
  const compile = (loopsFrom?: number) =>
    createRuleSet(counted, { plans: ['free'], hasSubject: true }, shape => compileScripts(shape, loopsFrom))
  return {
    ...{ rules, ruleSets: [compile(), compile(1)] },
    subject: { kind: 'token', consumerKey: consumerKey(caller), plan: 'free' },
    recordKeyOf: () => consumerKey(caller),
    overrideOf(i, step, now) {
      const compiled = compileOverride({ rules: inputs } as never, {
        rule: inputs[i]!.name,
        ...unitsOf(plans[i]!, step),
      })
      const { endsInMs } = step
      return endsInMs === undefined ? compiled : { ...compiled, until: now + 1000 * endsInMs }
    },
  }
}

function limitOf(plans: readonly RulePlan[]): Deployment {
  const name = newCaller()
  const inputs = plans.map(
    (plan, i) =>
      ({
        ...{ name: `rule-${i}`, by: [['account'], ['account', 'user']][plan.identity]!, overridable: true },
        ...{ ...numbersOf(plan), ...leaseOf(plan) },
      }) as LimitRuleInput,
  )
  const compiled = withUniqueTags(inputs.map(input => compileLimitRule(input, ALL_ALGORITHMS)))
  const overrideRules = limitOverrideRules(
    { limits: new Map([[name, compiled]]), input: { limits: { [name]: inputs } } },
    name,
  )
  const own = withTerms(compiled, plans)
  const rules = own.map(rule => ({
    rule,
    key: limitStateKey(
      name,
      rule.by.map(part => [part, 'a']),
    ),
  }))
  const compile = (loopsFrom?: number) => createLimitRuleSet(own, shape => compileScripts(shape, loopsFrom))
  return {
    ...{ rules, ruleSets: [compile(), compile(1)] },
    subject: undefined,
    recordKeyOf: i => overridesKey(rules[i]!.key),
    overrideOf: (i, step, now) =>
      overrideRules.compile({
        rule: inputs[i]!.name,
        ...unitsOf(plans[i]!, step),
        ...(step.endsInMs !== undefined && { until: new Date(now / 1e3 + step.endsInMs) }),
      }),
  }
}

/**
 * Runs the program again and again, and compares every reply with the model.
 * @param engines the first one has scripts of straight-line code; a second one has loops, and a Redis of its own
 * @param beside done beside some steps, with a key of the rules
 * @returns how often everything has occurred
 */
export async function runEverything(
  runs: number,
  engines: readonly RedisEngine[],
  beside?: (key: string) => Promise<void>,
): Promise<ReadonlyMap<string, number>> {
  const tally = new Map<string, number>()
  const count = (what: string, by = 1) => tally.set(what, (tally.get(what) ?? 0) + by)

  await forEvery(scenario, runs, async ({ setUp, rules: plans, steps }) => {
    const { rules, ruleSets, subject, recordKeyOf, overrideOf } = (setUp === 'gateway' ? gatewayOf : limitOf)(
      plans,
    )
    const [ruleSet] = ruleSets
    const model = new ScriptModel()
    const records = new Map<string, readonly Override[]>()
    const admitted: Admission[] = []
    let now = NOON
    let latest = NOON

    async function run<T>(prepare: (ruleSet: RuleSet) => PreparedCall<T>): Promise<T> {
      const prepared = ruleSets.slice(0, engines.length).map(prepare)
      const [reply, ...others] = await Promise.all(
        prepared.map(({ call }, i) => engines[i]!.run(call as ScriptCall)),
      )
      for (const other of others) expect(other).toEqual(reply)
      return prepared[0]!.decode(reply)
    }

    async function decide(each: Step, i: number, verb: 'decide' | 'peek') {
      const chosen = rules.filter((_, j) => setUp === 'limit' || (each.parts >> j) % 2 === 1)
      const bound = (chosen.length > 0 ? chosen : rules).map(({ rule, key }): BoundRule => {
        const own = bindRule(rule, key, each.cost, now / 1e3)
        const holding = {
          ...{ holder: 'isolateA', epoch: 0, ended: i, started: i + (each.held ?? 0) },
        }
        return each.held !== undefined && countsInFlight(rule) ? { ...own, holding } : own
      })
      const reservationId = each.reserves ? `request${String(i).padStart(5, '0')}` : undefined
      const evaluation = {
        ...{ ruleSet, rules: bound, now, reservationId },
        ...(subject && { subject }),
        // A request has a lease only if all its rules have one.
        ...(bound.every(({ rule }) => rule.lease) && { wantedRequests: each.wantedRequests }),
      }
      const outcome = await run(set => prepareDecide({ ...evaluation, ruleSet: set }, verb))
      expect(outcome).toEqual(model.decide(evaluation, verb))
      count(outcome.status)
      if (outcome.granted) count('leases')
      if (outcome.pausedUntil) count('refused in a pause')
      if (outcome.verdicts.some(({ rule }) => !rules.some(own => own.rule === rule))) count('overridden')
      if (verb === 'peek' || outcome.status !== 'admitted') return
      admitted.push({
        ...{ rules: bound, outcome, reservation: reservationOf(evaluation, outcome) },
        lost: lostReservationOf(evaluation, { plan: 'free' }),
      })
    }

    async function settle(each: Step) {
      const found = admitted.at(-each.admission)
      const reservation = each.verb === 'lost' ? found?.lost : found?.reservation
      if (!found || !reservation) return
      const { at } = found.outcome
      const settlement = {
        ...{ ...settlementFor(reservation, now / 1e3), now },
        requests: [
          {
            ...{ id: reservation.id, spentAt: reservation.spentAt, isRenewal: each.verb === 'renew' },
            ...(each.verb === 'lost' && { lostForMs: Math.max(0, (now - at) / 1e3 + each.lostFor) }),
            amounts: reservation.rules.map(({ reserved }) => ({ reserved, actual: each.actual })),
          },
        ],
      }
      const result = await run(set => prepareSettle({ ...settlement, ruleSet: set }))
      expect(result).toEqual(model.settle(settlement))
      count(`${each.verb}, ${result.applied > 0 ? 'applied' : 'too late'}`)
    }

    async function refund(each: Step) {
      const found = admitted.at(-each.admission)
      const spent = found?.rules.filter(({ rule }) => rule.counting.state !== 'held' && !rule.settlement)
      if (!found || !spent?.length) return
      const { outcome } = found
      const units = spent.flatMap(({ cost, ...bound }) => {
        const shown = outcome.verdicts.find(({ rule }) => rule.name === bound.rule.name)?.rule
        if (!shown) return []
        const all = cost * (outcome.granted ?? 1)
        const given = each.units === 'all' ? all : Math.min(all, each.units)
        return [{ ...bound, units: given, spent: all, written: writtenNumbers(shown, bound.rule) }]
      })
      if (units.length === 0) return
      const known = subject && 'consumerKey' in subject ? subject.consumerKey : undefined
      const refunded = { rules: units, spentAt: outcome.at, consumerKey: known, plan: outcome.plan, now }
      const result = await run(set => prepareRefund({ ...refunded, ruleSet: set }))
      expect(result).toEqual(model.refund(refunded))
      count('refund')
    }

    for (const [i, each] of steps.entries()) {
      now += each.pause
      if (now < latest - 3e6) count('clock far back')
      if (each.pause >= 5e6) count('long pause')
      latest = Math.max(latest, now)
      const moved = each.moves ? beside?.(rules[0]!.key) : undefined
      switch (each.verb) {
        case 'decide':
        case 'peek':
          await decide(each, i, each.verb)
          break
        case 'settle':
        case 'renew':
        case 'lost':
          await settle(each)
          break
        case 'refund':
          await refund(each)
          break
        case 'reset': {
          const reset = { rules: admitted.at(-each.admission)?.rules ?? [], now }
          if (reset.rules.length === 0 || setUp === 'gateway') break
          expect(await run(() => prepareReset(reset))).toEqual(model.reset(reset))
          count('reset')
          break
        }
        case 'pause': {
          if (setUp === 'gateway') break
          const asked = { key: rules[each.override.rule % rules.length]!.key, length: each.length, now }
          const entry = { ...ENTRY, stream: auditKeyOf(asked.key) }
          const result = await run(() => preparePause({ ...asked, entry }))
          expect(result).toEqual(model.pause(asked))
          break
        }
        case 'override': {
          const place = each.override.rule % rules.length
          const key = recordKeyOf(place)
          const { name } = rules[place]!.rule
          const rest = (records.get(key) ?? []).filter(({ rule }) => rule !== name)
          const isSet = each.length !== 1
          try {
            records.set(key, isSet ? [...rest, overrideOf(place, each.override, now)] : rest)
          } catch (error) {
            if (error instanceof AdminError) break
            throw error
          }
          const text = formatConsumer({ overrides: records.get(key)! })
          for (const engine of [...engines, model]) await engine.setRecord(key, text)
          count('override')
        }
      }
      await moved
    }
  })
  return tally
}

/** Cases that have to occur often. If one of them were rare, the runs would prove little. */
export const OF_EVERYTHING = [
  ...['admitted', 'refused', 'leases', 'overridden', 'override', 'refund', 'reset', 'refused in a pause'],
  ...['settle, applied', 'settle, too late', 'renew, applied', 'lost, applied'],
  ...['clock far back', 'long pause'],
]
