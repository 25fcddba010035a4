/** Finds out whether the store can decide again, with a decision on a key for probes. A PING would not detect a read-only Redis. */

import type { Counting } from '../algorithms/descriptor.ts'
import { counting } from '../algorithms/fixed-window.descriptor.ts'
import { compileLimitRule } from '../config/compile-rule.ts'
import { GatewayError } from '../errors.ts'
import { createLimitPolicy } from '../script/policy.ts'
import type { Policy, ScriptsOf } from '../script/policy-shape.ts'
import { probeStateKey } from '../store/keys.ts'
import type { Store } from '../store/store.ts'
import { askAll, toDecide } from './ask.ts'
import { bindRule } from './bind-rule.ts'

/** On a cluster the probe asks this many slots; the store is back when any of them answers. */
const SLOTS = 8

/** It has no calendar. */
const ALGORITHMS = { countings: { 'fixed-window': counting as Counting }, windowEnds: () => [] }

const RULE = /* @__PURE__ */ (() =>
  compileLimitRule({ name: 'probe', algorithm: 'fixed-window', limit: 1e9, period: '1s' }, ALGORITHMS))()

/** Part of every Worker, whatever its config. */
export function probePolicy(scriptsOf: ScriptsOf): Policy {
  return createLimitPolicy([RULE], scriptsOf)
}

/** @returns throws GatewayError as Store.run while the store cannot decide */
export function createProbe(scriptsOf: ScriptsOf): (store: Store) => Promise<void> {
  const policy = probePolicy(scriptsOf)
  return async store => {
    const keys = Array.from({ length: store.isCluster ? SLOTS : 1 }, (_, i) => probeStateKey(i))
    // Without a calendar no clock is needed.
    const questions = keys.map(key => toDecide({ policy, rules: [bindRule(RULE, key, 1, 0)] }))
    const answers = await askAll(store, questions)
    const [failure] = answers
    if (answers.every(answer => answer instanceof GatewayError)) throw failure
  }
}
