/** The store of a deployment that does not say where its store is: it never answers. */
import { GatewayError } from '../errors.ts'
import type { Store } from './store.ts'

/** @param reason whose message has no secret, because the log has it */
export function absentStore({ message }: Error): Store {
  const fail = () => Promise.reject(new GatewayError('ERR_STORE_UNREACHABLE', message, { fate: 'not-sent' }))
  return { run: fail, ping: fail }
}
