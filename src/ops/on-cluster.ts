/** What takes more than one script on a cluster. */
import { evalCommand } from '../store/admin-connection.ts'
import type { AdminStore, OnCluster } from './admin-store-shape.ts'
import { listStream, readStreams } from './audit-on-cluster.ts'
import { unlistIfGone, writeListed } from './indexes-on-cluster.ts'
import { confirmClaim, confirmImport } from './keys-on-cluster.ts'
import { rotateOnCluster } from './tokens-on-cluster.ts'

const DELETE_IF = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`

async function deleteEachIf(store: AdminStore, keys: readonly string[], text: string): Promise<void> {
  await store.runEach(keys.map(key => evalCommand(DELETE_IF, [key], [text])))
}

export const ON_CLUSTER: OnCluster = {
  ...{ listStream, readAudit: readStreams, deleteEachIf },
  ...{ writeListed, unlistIfGone, rotateToken: rotateOnCluster },
  ...{ confirmClaim, confirmImport },
}
