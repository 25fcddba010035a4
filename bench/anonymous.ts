/**
 * Contenders for callers without a credential: rules of Sluice in one decision, and the same number of calls of
 * @upstash/ratelimit.
 */

import { Ratelimit } from '@upstash/ratelimit'
import { ALL_ALGORITHMS } from '../src/algorithms/all.ts'
import type { LimitRuleInput } from '../src/config/check/schema.ts'
import { compileLimitRule } from '../src/config/compile-rule.ts'
import { withUniqueTags } from '../src/config/tags.ts'
import { toDecision } from '../src/limiter/decision.ts'
import type { RuleSet } from '../src/script/rule-set-shape.ts'
import { addressStateKey, consumerStateKey } from '../src/store/keys.ts'
import { bound } from '../test/support/bound.ts'
import { ruleSetOf } from '../test/support/rule-set.ts'
import { type Contender, inTurn, outcomeOf } from './contenders.ts'
import { evaluateInStore } from './evaluate.ts'
import type { Identity } from './test-bed.ts'
import type { Transport } from './transport.ts'

/** The part of a caller's identity that a rule counts by. */
export type By = keyof Identity

export interface CountedBy {
  by: By
  rule: LimitRuleInput
}

/** All rules in one decision. */
export function inOneDecision({ store }: Transport, counted: readonly CountedBy[]): Contender<Identity> {
  // As in a config: two rules with the same tag would be one rule, and the other one would be missing from every request.
  const compiled = withUniqueTags(counted.map(({ rule }) => compileLimitRule(rule, ALL_ALGORITHMS)))
  const rules = compiled.map((rule, i) => ({ by: counted[i]!.by, rule }))
  let ruleSet: RuleSet | undefined
  return async ({ consumer, address }) => {
    const keys = { consumer: consumerStateKey(consumer), address: addressStateKey(address) }
    const asked = rules.map(({ by, rule }) => bound(rule, keys[by]))
    ruleSet ??= ruleSetOf(asked)
    const decision = toDecision(await evaluateInStore(store, { ruleSet, rules: asked }))
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

/** Calls of @upstash/ratelimit, one after the other. Its cache of refusals is off, because cached calls would not reach Redis. */
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
