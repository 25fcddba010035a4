/** Logs that the store failed or is back: one line each, independent of the number of requests. */
import type { Log } from '../../log.ts'
import type { StoreChange } from '../../trips/breaker.ts'
import { causeOf } from '../evaluate.ts'

export function logStoreChange(log: Log, change: StoreChange): void {
  if (change.isOpen) log('warn', 'store-lost', { cause: causeOf(change.cause), detail: change.cause.message })
  else log('info', 'store-back', { after_ms: change.afterMs })
}
