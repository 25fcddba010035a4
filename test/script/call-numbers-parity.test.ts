/**
 * Numbers at the call: the model predicts every reply for random numbers, which change from call to call. And what a change does to the state
 * is what an override of a consumer does in the gateway, to the byte.
 */
import * as fc from 'fast-check'
import { expect, it, onTestFinished } from 'vitest'

import { ALL_ALGORITHMS, countings } from '../../src/algorithms/all.ts'
import type { CallLimitRuleInput, LimitRuleInput, RuleInput } from '../../src/config/check/schema.ts'
import type { LimitRule } from '../../src/config/compile.ts'
import { compileLimitRule } from '../../src/config/compile-rule.ts'
import { withUniqueTags } from '../../src/config/tags.ts'
import { bindRule } from '../../src/limiter/bind.ts'
import { prepareDecide, prepareRefund, prepareReset } from '../../src/limiter/prepared-call.ts'
import { AdminError } from '../../src/ops/admin-error.ts'
import { compileOverride } from '../../src/ops/overrides.ts'
import type { BoundRule } from '../../src/script/evaluation.ts'
import { ScriptModel } from '../../src/script/model.ts'
import { createGatewayRuleSet, createLimitRuleSet } from '../../src/script/rule-set.ts'
import { compileScripts } from '../../src/script/scripts.ts'
import { ALL_NUMBERS } from '../../src/set-ups/limits/all-numbers.ts'
import type { NumbersOfCall } from '../../src/set-ups/limits/arguments.ts'
import { createGiveNumbers } from '../../src/set-ups/limits/numbers.ts'
import { consumerKey, limitStateKey } from '../../src/store/keys.ts'
import { formatConsumer } from '../../src/store/records.ts'
import type { ScriptCall } from '../../src/store/store.ts'
import { randomCases } from '../selection.ts'
import { numbersFor } from '../support/configs.ts'
import { configOf, describeOnRedisEngine, RedisEngine } from '../support/engines.ts'
import { anyNumbers } from '../support/numbers.ts'
import { forEvery } from '../support/property.ts'
import { SEED } from '../support/random.ts'
import { startRedis } from '../support/redis.ts'
import { listOf, NOON } from '../support/traffic.ts'

const giveNumbers = createGiveNumbers({ ruleNumbers: ALL_NUMBERS, mistakesOfSettlement: () => [] })

const upTo12 = fc.integer({ min: 1, max: 12 })
const given = fc.record({
  limit: upTo12,
  period: fc.constantFrom(undefined, undefined, '1s', '1m'),
  atOnce: fc.option(fc.integer({ min: 1, max: 9 }), { nil: undefined }),
})
type Given = typeof given extends fc.Arbitrary<infer T> ? T : never

const rule = fc.record({
  numbers: anyNumbers.filter(({ algorithm }) => countings[algorithm].state !== 'held'),
  isOfCall: fc.constantFrom(true, true, true, false),
  by: fc.constantFrom<string[] | undefined>(['account'], ['account'], undefined),
  /** Few, so that calls come back to numbers that they have had before. */
  pool: fc.array(given, { minLength: 2, maxLength: 3 }),
})
type AnyRule = typeof rule extends fc.Arbitrary<infer T> ? T : never

const step = fc.record({
  verb: fc.constantFrom('decide', 'decide', 'decide', 'decide', 'peek', 'refund', 'reset'),
  pauseMs: fc.constantFrom(0, 0, 1, 100, 1000, 61_000),
  account: fc.constantFrom('a', 'b'),
  of: fc.array(fc.nat(2), { minLength: 5, maxLength: 5 }),
  cost: fc.constantFrom(1, 1, 2, 5),
  admission: fc.integer({ min: -4, max: -1 }),
})

const scenario = (rules: fc.Arbitrary<AnyRule[]>) => fc.record({ rules, steps: listOf(step, 40, 10) })

/** The rule as it is written: with `numbers: 'call'`, and its numbers as the most that a call may ask for. */
function inputOf({ numbers, isOfCall, by }: AnyRule, i: number): LimitRuleInput | CallLimitRuleInput {
  const common = { name: `rule-${i}`, ...(by && { by }) }
  if (!isOfCall) return { ...common, ...numbers } as LimitRuleInput
  const { limit, period, burst, queue, ...others } = {
    period: undefined,
    burst: undefined,
    queue: undefined,
    ...numbers,
  }
  const max = { limit, period, ...(burst && { burst }), ...(queue !== undefined && { queue }) }
  return { ...common, ...others, numbers: 'call', max } as CallLimitRuleInput
}

function numbersOf({ numbers }: AnyRule, { limit, period, atOnce }: Given, mayChangePeriod: boolean) {
  const units = numbersFor(numbers, { limit, ...(atOnce !== undefined && { atOnce }) }) as NumbersOfCall
  const isCalendar = 'period' in numbers && ['day', 'week', 'month'].includes(numbers.period)
  return { ...units, ...(period && mayChangePeriod && !isCalendar && { period }) }
}

/** An override that leaves the burst out keeps that of its rule. */
const withAtOnce = (given: Given): Given => ({ ...given, atOnce: given.atOnce ?? 3 })

describeOnRedisEngine('numbers at the call', (fresh, kind) => {
  const runs = randomCases(120, kind)

  it(`are counted as the model predicts (SEED=${SEED})`, { timeout: 120_000 }, async () => {
    const redis = await fresh()
    const other = await startRedis(kind)
    onTestFinished(() => other.close())
    const engines = [redis, new RedisEngine(other.connection, undefined, kind)] as const
    const seen = { refused: 0, changed: 0, refund: 0 }
    await forEvery(scenario(listOf(rule, 5)), runs, async ({ rules, steps }) => {
      for (const engine of engines) await engine.send(['FLUSHALL'])
      const compiled = withUniqueTags(
        rules.map((each, i) => compileLimitRule(inputOf(each, i), ALL_ALGORITHMS)),
      )
      const [ruleSet, loops] = [Number.POSITIVE_INFINITY, 1].map(loopsFrom =>
        createLimitRuleSet(compiled, shape => compileScripts(shape, loopsFrom)),
      )
      const model = new ScriptModel()
      const admitted: { rules: BoundRule[]; at: number }[] = []
      let now = NOON
      let last = ''
      for (const { verb, pauseMs, account, of, cost, admission } of steps) {
        now += pauseMs * 1e3
        const run = async (
          prepare: (set: typeof ruleSet) => { call: unknown; decode(reply: unknown): unknown },
        ) => {
          const { call, decode } = prepare(ruleSet)
          const reply = await engines[0].run(call as ScriptCall)
          expect(await engines[1].run(prepare(loops).call as ScriptCall)).toEqual(reply)
          return decode(reply)
        }
        const earlier = admitted.at(admission)
        if (verb === 'refund' || verb === 'reset') {
          if (!earlier) continue
          seen.refund += 1
          if (verb === 'reset') {
            const reset = { rules: earlier.rules, now }
            expect(await run(() => prepareReset(reset))).toEqual(model.reset(reset))
            continue
          }
          const units = earlier.rules.map(({ cost, ...bound }) => ({ ...bound, units: cost, spent: cost }))
          const refund = { rules: units, spentAt: earlier.at, now }
          expect(await run(set => prepareRefund({ ...refund, ruleSet: set! }))).toEqual(model.refund(refund))
          continue
        }
        const chosen = rules.map((each, i) => numbersOf(each, each.pool[of[i]! % each.pool.length]!, true))
        const named = Object.fromEntries(chosen.map((numbers, i) => [`rule-${i}`, numbers]))
        let bound: readonly LimitRule[]
        try {
          bound = giveNumbers('limit', compiled, named, true)
        } catch (error) {
          if (error instanceof TypeError) continue
          throw error
        }
        const counted = bound.map(each => {
          const identity = each.by.map(part => [part, account] as const)
          return bindRule(each, limitStateKey('limit', identity), cost, now / 1e3)
        })
        const evaluation = { rules: counted, now }
        const outcome = await run(set => prepareDecide({ ...evaluation, ruleSet: set! }, verb as 'decide'))
        const expected = model.decide({ ...evaluation, ruleSet: ruleSet! }, verb as 'decide')
        expect(outcome).toEqual(expected)
        if (expected.status === 'refused') seen.refused += 1
        if (JSON.stringify(chosen) !== last) seen.changed += 1
        last = JSON.stringify(chosen)
        if (verb === 'decide' && expected.status === 'admitted') admitted.push({ rules: counted, at: now })
      }
    })
    for (const [what, count] of Object.entries(seen)) expect(count, what).toBeGreaterThan(runs)
  })

  it(`do to the state what an override does (SEED=${SEED})`, { timeout: 120_000 }, async () => {
    const redis = await fresh()
    let compared = 0
    const ofConsumer = rule.map(each => ({ ...each, isOfCall: true, by: ['account'] }))
    await forEvery(scenario(listOf(ofConsumer, 4)), runs, async ({ rules, steps }) => {
      await redis.send(['FLUSHALL'])
      const inputs = rules.map(
        ({ numbers }, i): RuleInput => ({ ...numbers, name: `rule-${i}`, by: 'consumer' }) as RuleInput,
      )
      let config: ReturnType<typeof configOf>
      try {
        config = configOf({ rules: inputs })
      } catch {
        return
      }
      const gateway = createGatewayRuleSet(config, compileScripts)
      const compiled = withUniqueTags(
        rules.map((each, i) => compileLimitRule(inputOf(each, i), ALL_ALGORITHMS)),
      )
      const limit = createLimitRuleSet(compiled, compileScripts)
      const key = limitStateKey('limit', [['account', 'a']])
      const subject = { kind: 'token', consumerKey: consumerKey('a') } as const
      const stateKey = `${consumerKey('a')}:state`
      let now = NOON
      for (const { verb, pauseMs, of, cost } of steps) {
        now += pauseMs * 1e3
        const chosen = rules.map((each, i) =>
          numbersOf(each, withAtOnce(each.pool[of[i]! % each.pool.length]!), false),
        )
        let bound: readonly LimitRule[]
        let overrides: ReturnType<typeof compileOverride>[]
        try {
          overrides = chosen.map(({ period: _, ...numbers }, i) =>
            compileOverride({ rules: inputs }, { rule: `rule-${i}`, ...numbers }),
          )
          bound = giveNumbers(
            'limit',
            compiled,
            Object.fromEntries(chosen.map((numbers, i) => [`rule-${i}`, numbers])),
            true,
          )
        } catch (error) {
          if (error instanceof AdminError || error instanceof TypeError) continue
          throw error
        }
        await redis.setRecord(consumerKey('a'), formatConsumer({ overrides }))
        const isPeek = verb === 'peek' ? 'peek' : 'decide'
        const byCall = prepareDecide(
          { ruleSet: limit, rules: bound.map(each => bindRule(each, key, cost, now / 1e3)), now },
          isPeek,
        )
        const byOverride = prepareDecide(
          {
            ruleSet: gateway,
            rules: config.rules.map(each => bindRule(each, stateKey, cost, now / 1e3)),
            subject,
            now,
          },
          isPeek,
        )
        const [one, two] = [
          byCall.decode(await redis.run(byCall.call as ScriptCall)),
          byOverride.decode(await redis.run(byOverride.call as ScriptCall)),
        ]
        const shown = ({ status, verdicts }: typeof one) => ({
          status,
          verdicts: verdicts.map(({ rule, ...each }) => ({
            ...each,
            limit: rule.limit,
            burst: rule.quota.burst,
          })),
        })
        expect(shown(one)).toEqual(shown(two))
        expect(await redis.send(['GET', key])).toEqual(await redis.send(['GET', stateKey]))
        compared += 1
      }
    })
    expect(compared).toBeGreaterThan(runs)
  })
})
