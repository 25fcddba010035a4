/** Probes whether the store can decide, by a decision on a key for probes. A PING would succeed on a read-only Redis, too. */

import type { Counting } from '../algorithms/descriptor.ts'
import { counting } from '../algorithms/fixed-window.descriptor.ts'
import { compileLimitRule } from '../config/compile-rule.ts'
import { GatewayError } from '../errors.ts'
import { createLimitRuleSet } from '../script/rule-set.ts'
import type { RuleSet, ScriptsOf } from '../script/rule-set-shape.ts'
import { probeStateKey } from '../store/keys.ts'
import { fitOneCall, type Store } from '../store/store.ts'
import { bindRule } from './bind.ts'
import { prepareDecide, runCalls } from './prepared-call.ts'

/** Of different slots, if the store is a cluster. It is back if one of them answers. */
const KEYS = Array.from({ length: 8 }, (_, i) => probeStateKey(i))

/** The rule of the probe has no calendar. */
const ALGORITHMS = { countings: { 'fixed-window': counting as Counting }, windowEnds: () => [] }

const RULE = /* @__PURE__ */ (() =>
  compileLimitRule({ name: 'probe', algorithm: 'fixed-window', limit: 1e9, period: '1s' }, ALGORITHMS))()

/** The rule set of the probe. Every Worker carries its script. */
export const probeRuleSet = (scriptsOf: ScriptsOf): RuleSet => createLimitRuleSet([RULE], scriptsOf)

/** Creates the probe. @returns a function that resolves if the store can decide, and else throws GatewayError as Store.run */
export function createProbe(scriptsOf: ScriptsOf): (store: Store) => Promise<void> {
  const ruleSet = probeRuleSet(scriptsOf)
  return async store => {
    const keys = fitOneCall(store, KEYS) ? KEYS.slice(0, 1) : KEYS
    // Only calendar windows need the time, so it is 0 here.
    const calls = keys.map(key => prepareDecide({ ruleSet, rules: [bindRule(RULE, key, 1, 0)] }))
    const results = await runCalls(store, calls)
    const [failure] = results
    if (results.every(result => result instanceof GatewayError)) throw failure
  }
}
