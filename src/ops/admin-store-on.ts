/** The store for administration on any connection: the keys of one environment, and how they are written. */
import { DEFAULT_KEEP_MS } from '../config/audit-keep.ts'
import { apiKeyStart } from '../credentials/api-key.ts'
import type { AdminConnection } from '../store/admin-connection.ts'
import { inEnvironment } from '../store/keys.ts'
import type { AdminStore, KeySpace, OnCluster, RuleSets } from './admin-store-shape.ts'
import type { Change } from './change.ts'

/** The store of any connection. @param onCluster is used only if the connection is to a cluster */
export function adminStoreOn(
  connection: AdminConnection,
  { environment, keyPrefix = 'slk', keySigner }: KeySpace,
  ruleSets: RuleSets,
  onCluster: OnCluster,
): AdminStore {
  return {
    ...connection,
    environment,
    keyPrefix,
    keyStart: apiKeyStart(keyPrefix, environment),
    keySigner,
    ...{ ruleSets, onCluster },
    at: key => inEnvironment(key, environment),
    auditKeepMs: DEFAULT_KEEP_MS,
  }
}

/**
 * The same store, whose changes have an author: each leaves an entry in the audit trail.
 * @param auditKeepMs how long entries are kept (audit-keep.ts)
 * @param now tests pass their own clock (ms since the epoch)
 */
export const withActor = (
  store: AdminStore,
  change: Change,
  auditKeepMs: number = store.auditKeepMs,
  now?: () => number,
): AdminStore => ({ ...store, auditKeepMs, author: { ...change, ...(now && { now }) } })
