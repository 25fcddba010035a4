/**
 * Contenders for callers without a credential: rules of Sluice in one decision, and as many calls of
 * @upstash/ratelimit.
 */

import { Ratelimit } from '@upstash/ratelimit'
import { ALL_ALGORITHMS } from '../src/algorithms/all.ts'
import type { LimitRuleInput } from '../src/config/check/schema.ts'
import { compileLimitRule } from '../src/config/compile-rule.ts'
import { toDecision } from '../src/limiter/decision.ts'
import type { Policy } from '../src/script/policy-shape.ts'
import { addressStateKey, consumerStateKey } from '../src/store/keys.ts'
import { bound } from '../test/support/bound.ts'
import { policyOf } from '../test/support/policy.ts'
import { type Contender, inTurn, outcomeOf } from './contenders.ts'
import { evaluated } from './evaluated.ts'
import type { Identity } from './test-bed.ts'
import type { Transport } from './transport.ts'

/** By which of a caller's two names something is counted. */
export type By = keyof Identity

export interface CountedBy {
  by: By
  rule: LimitRuleInput
}

/** All rules in one decision. */
export function inOneDecision({ store }: Transport, counted: readonly CountedBy[]): Contender<Identity> {
  const rules = counted.map(({ by, rule }) => ({ by, rule: compileLimitRule(rule, ALL_ALGORITHMS) }))
  let policy: Policy | undefined
  return async ({ consumer, address }) => {
    const keys = { consumer: consumerStateKey(consumer), address: addressStateKey(address) }
    const asked = rules.map(({ by, rule }) => bound(rule, keys[by]))
    policy ??= policyOf(asked)
    const decision = toDecision(await evaluated(store, { policy, rules: asked }))
    if (decision.kind === 'denied') return 'refused'
    if (decision.kind !== 'allowed' || decision.verdicts.length !== rules.length) {
      throw new Error(`Sluice did not evaluate all rules: ${JSON.stringify(decision)}`)
    }
    return 'allowed'
  }
}

export interface Call {
  by: By
  limiter: ConstructorParameters<typeof Ratelimit>[0]['limiter']
}

/** One call of @upstash/ratelimit after the other; its memory of refusals would keep them away from Redis. */
export function inCalls({ redis }: Transport, calls: readonly Call[]): Contender<Identity> {
  const limits = calls.map(({ by, limiter }, i) => ({
    by,
    limit: new Ratelimit({ redis, limiter, prefix: `rl:${i}`, ephemeralCache: false }),
  }))
  return async caller =>
    outcomeOf(
      await inTurn(
        limits.map(
          ({ by, limit }) =>
            () =>
              limit.limit(caller[by]),
        ),
      ),
    )
}
