/** Compares a rule whose leases give units back with the same rule without leases. Both run on the model of the script. */
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import { refundOfGrant, unitsSpentAhead } from '../../../src/limiter/answers/lease-units.ts'
import { refundOfPart } from '../../../src/limiter/cluster.ts'
import { ScriptModel } from '../../../src/script/model.ts'
import type { RuleSet } from '../../../src/script/rule-set-shape.ts'
import { consumerStateKey } from '../../../src/store/keys.ts'
import { bound } from '../../support/bound.ts'
import { rulesOf } from '../../support/engines.ts'
import { forEvery } from '../../support/property.ts'
import { SEED } from '../../support/random.ts'
import { NOON } from '../../support/traffic.ts'

const KEY = consumerStateKey('acme')
const RULE_SET = { plans: ['free'] } as unknown as RuleSet

/** Units that are spent in advance. The unused ones are given back after `heldMs`. */
interface Lease {
  pauseMs: number
  units: number
  unused: number
  heldMs: number
}

const lease: fc.Arbitrary<Lease> = fc
  .record({
    pauseMs: fc.nat(300),
    units: fc.integer({ min: 1, max: 12 }),
    unused: fc.nat(12),
    heldMs: fc.nat(600),
  })
  .map(each => ({ ...each, unused: Math.min(each.unused, each.units) }))

it.each(['gcra', 'token-bucket', 'fixed-window', 'sliding-window'] as const)(
  `%s never has more units left than without the lease (SEED=${SEED})`,
  async algorithm => {
    const [rule] = rulesOf({ name: 'a', by: 'consumer', algorithm, limit: 40, period: '1s' })
    await forEvery(fc.array(lease, { minLength: 2, maxLength: 30 }), 300, async leases => {
      const [leased, plain] = [new ScriptModel(), new ScriptModel()]
      const evaluation = (cost: number, now: number) => ({
        ruleSet: RULE_SET,
        rules: [bound(rule!, KEY, cost, now / 1e3)],
        now,
      })
      const events: { at: number; run(now: number): void }[] = []
      let at = NOON
      for (const { pauseMs, units, unused, heldMs } of leases) {
        at += pauseMs * 1e3
        const spentAt = at
        let isSpent = false
        events.push({
          at,
          run(now) {
            isSpent = leased.decide(evaluation(units, now)).status === 'admitted'
            // If there was room for all units, there is room for a part of them.
            if (isSpent && units > unused)
              expect(plain.decide(evaluation(units - unused, now)).status).toBe('admitted')
          },
        })
        events.push({
          at: at + heldMs * 1e3,
          run(now) {
            if (!isSpent || unused === 0) return
            const rules = [{ ...bound(rule!, KEY, unused, now / 1e3), units: unused, spent: units }]
            leased.refund({ rules, spentAt, now })
          },
        })
      }
      const remaining = (model: ScriptModel, now: number) =>
        model.decide(evaluation(1, now), 'peek').verdicts[0]!.remaining
      for (const { at: now, run } of events.sort((a, b) => a.at - b.at)) {
        run(now)
        expect(remaining(leased, now)).toBeLessThanOrEqual(remaining(plain, now))
      }
    })
  },
)

it('a lease and a slot of a cluster give back under the override that they were spent under', () => {
  const [rule] = rulesOf({ name: 'a', by: 'consumer', algorithm: 'gcra', limit: 40, period: '1s' })
  const shown = { ...rule!, limit: 100, quota: { ...rule!.quota, burst: 90 } }
  const rules = [bound(rule!, KEY, 1, NOON / 1e3)]
  const standing = { remaining: 9, resetAfter: 0, retryAfter: 0, delay: 0 }
  for (const [of, written] of [[shown, '100,90'] as const, [rule!, undefined] as const]) {
    const verdicts = [{ rule: of, mode: 'enforce' as const, allowed: true, ...standing }]
    const outcome = { status: 'admitted' as const, plan: 'free', at: NOON, verdicts, granted: 4 }
    const evaluation = { ruleSet: RULE_SET, rules }
    const grant = { evaluation, outcome, units: unitsSpentAhead(rules, outcome), answeredAt: 0 }
    expect(refundOfGrant(grant, NOON).rules).toMatchObject([{ units: 3, spent: 4, written }])
    expect(refundOfPart(evaluation, outcome)[0]!.rules).toMatchObject([{ units: 1, spent: 1, written }])
  }
})
