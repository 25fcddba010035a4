/** Finds out whether the store can decide again, with a decision on a key for probes. A PING would not detect a read-only Redis. */
import { compileLimitRule } from '../config/compile-rule.ts'
import { GatewayError } from '../errors.ts'
import { limitPolicy } from '../script/policy.ts'
import { probeStateKey } from '../store/keys.ts'
import type { Store } from '../store/store.ts'
import { askAll, toDecide } from './ask.ts'
import { bindRule } from './bind-rule.ts'

const RULES = [compileLimitRule({ name: 'probe', algorithm: 'fixed-window', limit: 1e9, period: '1s' })]

/** On a cluster the probe asks this many slots; the store is back when any of them answers. */
const SLOTS = 8

/** @throws GatewayError as Store.run */
export async function probe(store: Store): Promise<void> {
  const keys = Array.from({ length: store.isCluster ? SLOTS : 1 }, (_, i) => probeStateKey(i))
  const answers = await askAll(
    store,
    // The rule has no calendar, so no clock is needed.
    keys.map(key => toDecide({ policy: limitPolicy(RULES), rules: [bindRule(RULES[0]!, key, 1, 0)] })),
  )
  const [failure] = answers
  if (answers.every(answer => answer instanceof GatewayError)) throw failure
}
