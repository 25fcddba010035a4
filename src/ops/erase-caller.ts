/** Removes a consumer from the records of refused callers (top-callers.ts). */
import { TEST_SUFFIX } from '../metrics/recorded-callers.ts'
import { evalCommand } from '../store/admin-connection.ts'
import { callersKey } from '../store/keys.ts'
import type { AdminStore } from './admin-store-shape.ts'
import { ERASE_CALLER } from './lua.generated.ts'
import { DAY_MS, HOUR_MS, timesOf } from './record-times.ts'

/** How long records are kept (ms). */
const KEPT_MS = 8 * DAY_MS

/** Whether refusals of a consumer are on record. */
export const hasRefusals = async (store: AdminStore, consumer: string): Promise<boolean> =>
  (await countRecords(store, consumer, 'count')) > 0

/** Removes a caller from all records: its consumer, and identities of limits by name with this value. @returns how many records had it */
export const eraseCaller = (store: AdminStore, consumer: string): Promise<number> =>
  countRecords(store, consumer, 'erase')

async function countRecords(store: AdminStore, consumer: string, mode: 'count' | 'erase'): Promise<number> {
  const now = new Date()
  const hours = timesOf(HOUR_MS, new Date(now.getTime() - KEPT_MS), now)
  const args = [consumer, consumer + TEST_SUFFIX, mode]
  const found = await store.runEach<number>(
    hours.map(at => evalCommand(ERASE_CALLER, [store.at(callersKey(at))], args)),
  )
  return found.reduce((sum, count) => sum + count, 0)
}
