/** The store for administration, with everything that a Worker only has if it needs it. */
import type { Config } from '../config/compile.ts'
import { createKeySigner, type KeySecret } from '../credentials/key-signature.ts'
import { gatewayRuleSet, limitRuleSet } from '../script/compiled.ts'
import type { AdminConnection } from '../store/admin-connection.ts'
import { adminStoreOn } from './admin-store-on.ts'
import type { AdminStore, KeySpace } from './admin-store-shape.ts'
import { ADVICE } from './advice.ts'
import { isNew, namesNear } from './key-pages.ts'
import { ON_CLUSTER } from './on-cluster.ts'
import { type UpstashConnectionOptions, upstashConnection } from './upstash-connection.ts'

export { adminStoreOn, withActor } from './admin-store-on.ts'
export type { AdminStore, KeySpace } from './admin-store-shape.ts'

export interface WholeKeySpace extends Omit<KeySpace, 'keySigner'> {
  /** The secret that signs new API keys. Absent: they are not signed. */
  keySecret?: KeySecret | undefined
}

export type AdminStoreOptions = WholeKeySpace & UpstashConnectionOptions

/** The store of a REST API. */
export const createAdminStore = (options: AdminStoreOptions): AdminStore =>
  wholeStoreOn(upstashConnection(options), options)

/** The store of any connection, with everything that a Worker only has if it needs it. */
export const wholeStoreOn = (
  connection: AdminConnection,
  { keySecret, ...keySpace }: WholeKeySpace,
): AdminStore => ({
  ...adminStoreOn(
    connection,
    { ...keySpace, keySigner: keySecret && createKeySigner(keySecret, keySpace.environment) },
    { ofGateway: gatewayRuleSet, ofLimit: limitRuleSet },
    ON_CLUSTER,
  ),
  advice: { ...ADVICE, namesNear, isNew },
})

/** Loads the scripts of a config, so that not even the first decision, or the first refund on a cluster, has to send its script. */
export async function loadScriptsIntoRedis(
  store: AdminStore,
  config: Pick<Config, 'rules' | 'plans' | 'limits' | 'keyLocking'>,
): Promise<void> {
  const { keyLocking, limits } = config
  const ruleSets = [gatewayRuleSet(config), ...[...limits.values()].map(limitRuleSet)]
  for (const script of ruleSets
    .flatMap(({ decide, refund, settle }) => [decide, refund, settle ?? []])
    .flat()) {
    const { source } = keyLocking ? script.keyLocking : script.plain
    await store.run('SCRIPT', 'LOAD', source)
  }
}
