/** One specification, three implementations: the model, and the script on each Redis. */
import { describe, expect, it } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import { count } from '../../src/limiter/count.ts'
import { describeOnEngines, rulesOf } from '../support/engines.ts'
import { vectors } from './vectors.ts'

/** Not the epoch, so that nothing rests on small numbers; a multiple of every period in the tables. */
const START = 1_700_000_000 * 1e6

const microseconds = (seconds: number) => Math.round(seconds * 1e6)

for (const [algorithm, tables] of Object.entries(vectors)) {
  describe(algorithm, () => {
    describeOnEngines('vectors', fresh => {
      it.each(tables)('$title', async ({ rule, rows }) => {
        const engine = await fresh()
        for (const [at, cost, allowed, remaining, resetAfter, retryAfter, delay = 0] of rows) {
          const [compiled] = rulesOf({ ...rule, name: 'a', by: 'consumer' } as RuleInput)
          const now = START + microseconds(at)
          const counted = count(compiled!, 'sluice:{c:a}:state', cost, now / 1e3)
          const { verdicts } = await engine.evaluate({ rules: [counted], plans: ['free'], now })
          const { rule: _rule, mode: _mode, ...said } = verdicts[0]!
          expect(said, `at ${at} s, cost ${cost}`).toEqual({
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
