/**
 * Overrides of limits by name: the model predicts every reply for random rules, overrides and calls, whose rules count by different
 * identities, and some of which have their numbers from the call.
 */
import * as fc from 'fast-check'
import { expect, it, onTestFinished } from 'vitest'
import { ALL_ALGORITHMS } from '../../src/algorithms/all.ts'
import type { LimitRuleInput } from '../../src/config/check/schema.ts'
import { compileLimitRule } from '../../src/config/compile-rule.ts'
import { withUniqueTags } from '../../src/config/tags.ts'
import { bindRule } from '../../src/limiter/bind.ts'
import { prepareDecide, prepareRefund, prepareReset } from '../../src/limiter/prepared-call.ts'
import { AdminError } from '../../src/ops/admin-error.ts'
import { limitOverrideRules } from '../../src/ops/overrides.ts'
import type { BoundRule, Verdict } from '../../src/script/evaluation.ts'
import { ScriptModel } from '../../src/script/model.ts'
import { createLimitRuleSet } from '../../src/script/rule-set.ts'
import { compileScripts } from '../../src/script/scripts.ts'
import { writtenNumbers } from '../../src/script/wire.ts'
import { limitStateKey, overridesKey } from '../../src/store/keys.ts'
import { formatConsumer, type Override } from '../../src/store/records.ts'
import type { ScriptCall } from '../../src/store/store.ts'
import { randomCases } from '../selection.ts'
import { numbersFor } from '../support/configs.ts'
import { describeOnRedisEngine, RedisEngine } from '../support/engines.ts'
import { anyNumbers } from '../support/numbers.ts'
import { forEvery } from '../support/property.ts'
import { SEED } from '../support/random.ts'
import { startRedis } from '../support/redis.ts'
import { listOf, NOON } from '../support/traffic.ts'

const override = fc.record({
  limit: fc.integer({ min: 1, max: 12 }),
  atOnce: fc.option(fc.integer({ min: 1, max: 9 }), { nil: undefined }),
  hasNumbers: fc.constantFrom(true, true, true, false),
  mode: fc.constantFrom(undefined, undefined, 'enforce', 'shadow', 'off'),
  endsInMs: fc.constantFrom(undefined, undefined, 50, 5000),
})

const rule = fc.record({
  numbers: anyNumbers,
  by: fc.constantFrom<string[] | undefined>(['account'], ['account'], ['account', 'user'], undefined),
  overridable: fc.constantFrom(true, true, false),
})

const step = fc.record({
  verb: fc.constantFrom('decide', 'decide', 'decide', 'decide', 'peek', 'refund', 'reset', 'set', 'remove'),
  pauseMs: fc.constantFrom(0, 0, 1, 100, 1000, 61_000),
  account: fc.constantFrom('a', 'b'),
  rule: fc.nat(4),
  override,
  cost: fc.constantFrom(1, 1, 2, 5),
  admission: fc.integer({ min: -4, max: -1 }),
})

const scenario = fc.record({ rules: listOf(rule, 5), steps: listOf(step, 40, 10) })

describeOnRedisEngine('overrides of limits by name', (fresh, kind) => {
  const runs = randomCases(150, kind)

  it(`are applied as the model predicts (SEED=${SEED})`, { timeout: 120_000 }, async () => {
    const redis = await fresh()
    const other = await startRedis(kind)
    onTestFinished(() => other.close())
    const engines = [redis, new RedisEngine(other.connection, undefined, kind)] as const
    const seen = { refused: 0, overridden: 0, refund: 0, reset: 0, set: 0 }
    await forEvery(scenario, runs, async ({ rules, steps }) => {
      for (const engine of engines) await engine.send(['FLUSHALL'])
      const inputs = rules.map(
        ({ numbers, by, overridable }, i) =>
          ({ name: `rule-${i}`, ...(by && { by }), overridable, ...numbers }) as LimitRuleInput,
      )
      const compiled = withUniqueTags(inputs.map(input => compileLimitRule(input, ALL_ALGORITHMS)))
      const overrideRules = limitOverrideRules(
        { limits: new Map([['limit', compiled]]), input: { limits: { limit: inputs } } },
        'limit',
      )
      const [ruleSet, loops] = [Number.POSITIVE_INFINITY, 1].map(loopsFrom =>
        createLimitRuleSet(compiled, shape => compileScripts(shape, loopsFrom)),
      )
      const model = new ScriptModel()
      const records = new Map<string, readonly Override[]>()
      const admitted: { rules: BoundRule[]; verdicts: readonly Verdict[]; at: number }[] = []
      let now = NOON
      for (const { verb, pauseMs, account, rule, override, cost, admission } of steps) {
        now += pauseMs * 1e3
        const keyOf = (by: readonly string[]) =>
          limitStateKey(
            'limit',
            by.map(part => [part, account]),
          )
        const run = async (
          prepare: (set: typeof ruleSet) => { call: unknown; decode(reply: unknown): unknown },
        ) => {
          const { call, decode } = prepare(ruleSet)
          const reply = await engines[0].run(call as ScriptCall)
          expect(await engines[1].run(prepare(loops).call as ScriptCall)).toEqual(reply)
          return decode(reply)
        }
        if (verb === 'set' || verb === 'remove') {
          const chosen = compiled[rule % compiled.length]!
          if (!chosen.isOverridable) continue
          const key = overridesKey(keyOf(chosen.by))
          const others = (records.get(key) ?? []).filter(each => each.rule !== chosen.name)
          try {
            const { limit, atOnce, hasNumbers, mode, endsInMs } = override
            const { period: _, ...units } = {
              period: undefined,
              ...numbersFor(rules[rule % compiled.length]!.numbers, { limit, ...(atOnce && { atOnce }) }),
            }
            const set = overrideRules.compile({
              rule: chosen.name,
              ...((hasNumbers || !mode) && units),
              ...(mode && { mode }),
              ...(endsInMs && { until: new Date(now / 1e3 + endsInMs) }),
            })
            records.set(key, verb === 'set' ? [...others, set] : others)
          } catch (error) {
            if (error instanceof AdminError) continue
            throw error
          }
          const text = formatConsumer({ overrides: records.get(key)! })
          for (const engine of [...engines, model]) await engine.setRecord(key, text)
          seen.set += 1
          continue
        }
        const earlier = admitted.at(admission)
        if (verb === 'refund' || verb === 'reset') {
          if (!earlier) continue
          seen[verb] += 1
          if (verb === 'reset') {
            const reset = { rules: earlier.rules, now }
            expect(await run(() => prepareReset(reset))).toEqual(model.reset(reset))
            continue
          }
          const units = earlier.rules.map(({ cost, ...bound }, i) => {
            const shown = earlier.verdicts.find(({ rule }) => rule.name === bound.rule.name)?.rule
            const isSpent = shown && bound.rule.counting.state !== 'held'
            return {
              ...{ ...bound, ...(shown && { written: writtenNumbers(shown, bound.rule) }) },
              ...{ units: isSpent && i !== rule ? cost : 0, spent: isSpent ? cost : 0 },
            }
          })
          const refund = { rules: units, spentAt: earlier.at, now }
          expect(await run(set => prepareRefund({ ...refund, ruleSet: set! }))).toEqual(model.refund(refund))
          continue
        }
        const counted = compiled.map(each => bindRule(each, keyOf(each.by), cost, now / 1e3))
        const evaluation = { rules: counted, now }
        const outcome = await run(set => prepareDecide({ ...evaluation, ruleSet: set! }, verb as 'decide'))
        const expected = model.decide({ ...evaluation, ruleSet: ruleSet! }, verb as 'decide')
        expect(outcome).toEqual(expected)
        if (expected.status === 'refused') seen.refused += 1
        if (expected.verdicts.some(({ rule }) => !compiled.includes(rule as never))) seen.overridden += 1
        if (verb === 'decide' && expected.status === 'admitted')
          admitted.push({ rules: counted, verdicts: expected.verdicts, at: now })
      }
    })
    for (const [what, count] of Object.entries(seen)) expect(count, what).toBeGreaterThan(runs / 3)
  })
})
