/** Whether decisions can be made again: one is made, on a key that is nobody's. A PING would not tell of a read-only Redis. */
import { compileLimitRule } from '../config/compile-rule.ts'
import { GatewayError } from '../errors.ts'
import { probeStateKey } from '../store/keys.ts'
import type { Store } from '../store/store.ts'
import { count } from './count.ts'
import { ask } from './wire.ts'

const RULE = compileLimitRule({ name: 'probe', algorithm: 'fixed-window', limit: 1e9, period: '1s' })

/** On a cluster in so many slots: it is back when any of them is. */
const SLOTS = 8

/** @throws GatewayError as Store.run */
export async function probe(store: Store): Promise<void> {
  const keys = Array.from({ length: store.isCluster ? SLOTS : 1 }, (_, i) => probeStateKey(i))
  const answers = await ask(
    store,
    keys.map(key => ({ rules: [count(RULE, key)], plans: [] })),
  )
  const [failure] = answers
  if (answers.every(answer => answer instanceof GatewayError)) throw failure
}
