/** Tests all implementations against the same tables: the model, and the script on each Redis. */
import { describe, expect, it } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import { bound } from '../support/bound.ts'
import { describeOnEngines, type Engine, rulesOf } from '../support/engines.ts'
import { type Back, type Patient, type Row, type VectorTable, vectors } from './vectors.ts'

/** Not the epoch, so that no test depends on small numbers. It is a multiple of every period in the tables that is a duration. */
const START = 1_700_000_000 * 1e6
const KEY = 'sluice:{c:a}:state'

const microseconds = (seconds: number) => Math.round(seconds * 1e6)

const waitOf = ({ wait }: Partial<Patient>) => (wait === undefined ? {} : { wait: microseconds(wait) })

/** Runs the row: an evaluation, a reset or a refund. */
async function runRow(engine: Engine, shape: VectorTable['rule'], at: number, cost: Row[1]) {
  const [rule] = rulesOf({ ...shape, name: 'a', by: 'consumer' } as RuleInput)
  const now = START + microseconds(at)
  const request: (Partial<Patient> & { cost: number }) | false =
    typeof cost === 'number' ? { cost } : typeof cost === 'object' && 'cost' in cost && cost
  if (request) {
    const rules = [{ ...bound(rule!, KEY, request.cost, now / 1e3), ...waitOf(request) }]
    return await engine.evaluate({ rules, plans: ['free'], now })
  }
  const boundRule = bound(rule!, KEY, 1, now / 1e3)
  if (cost === 'reset') return await engine.reset({ rules: [boundRule], now })
  const [units, spent, spentAt, wait] = cost as Back
  return await engine.refund({
    ...{ rules: [{ ...boundRule, ...waitOf(wait === undefined ? {} : { wait }), units, spent }], now },
    spentAt: START + microseconds(spentAt),
  })
}

for (const [algorithm, tables] of Object.entries(vectors)) {
  describe(algorithm, () => {
    describeOnEngines('vectors', fresh => {
      it.each(tables)('$title', async ({ rule, rows }) => {
        const engine = await fresh()
        for (const [at, cost, allowed, remaining, resetAfter, retryAfter, delay = 0] of rows) {
          const { verdicts } = await runRow(engine, rule, at, cost)
          const { rule: _rule, mode: _mode, ...answer } = verdicts[0]!
          expect(answer, `at ${at} s, cost ${cost}`).toEqual({
            allowed,
            remaining,
            resetAfter: microseconds(resetAfter),
            retryAfter: retryAfter < 0 ? -1 : microseconds(retryAfter),
            delay: microseconds(delay),
          })
        }
      })
    })
  })
}
