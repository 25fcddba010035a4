/** Whether decisions can be made again: one is made, on a key that is nobody's. A PING would not tell of a read-only Redis. */
import { compileLimitRule } from '../config/compile-rule.ts'
import { GatewayError } from '../errors.ts'
import { PROBE_STATE_KEY } from '../store/keys.ts'
import type { Store } from '../store/store.ts'
import { count } from './count.ts'
import { ask } from './wire.ts'

const RULE = compileLimitRule({ name: 'probe', algorithm: 'fixed-window', limit: 1e9, period: '1s' })

/** @throws GatewayError as Store.run */
export async function probe(store: Store): Promise<void> {
  const [answer] = await ask(store, [{ rules: [count(RULE, PROBE_STATE_KEY)], plans: [] }])
  if (answer instanceof GatewayError) throw answer
}
