/** The exports of `sluicegate/admin`: keys, service tokens, consumers, switches, limits and statistics, with the documents that the command line prints. */

import { auditKeepMs } from '../../config/audit-keep.ts'
import { checkedConfig } from '../../config/check/check.ts'
import type { ConfigInput } from '../../config/check/schema.ts'
import type { Environment } from '../../config/environment.ts'
import { KEY_SECRET, readKeySecrets } from '../../credentials/key-signature.ts'
import { checkOptions } from '../../set-ups/limits/arguments.ts'
import { environmentOf } from '../../set-ups/platform.ts'
import type { RedisOption } from '../../set-ups/redis-option.ts'
import { connectStore } from '../../set-ups/set-up-config.ts'
import { createAdminStore, wholeStoreOn, withActor } from '../admin-store.ts'
import type { AdminContext } from '../context.ts'
import { parseShortText } from '../names.ts'
import { withInput } from '../overrides.ts'
import { type AuditAdmin, administerAudit } from './audit.ts'
import { administerConsumers, type ConsumerAdmin } from './consumers.ts'
import { administerKeys, type KeyAdmin } from './keys.ts'
import { administerLimits, type LimitAdmin } from './limits.ts'
import { administerStats, type StatsAdmin } from './stats.ts'
import { administerSwitches, type SwitchAdmin } from './switches.ts'
import { administerTokens, type TokenAdmin } from './tokens.ts'

export { AdminError, type AdminFailure } from '../admin-error.ts'
export type * from '../documents/audit.ts'
export type * from '../documents/consumers.ts'
export type * from '../documents/keys.ts'
export type * from '../documents/limits.ts'
export type * from '../documents/stats.ts'
export type * from '../documents/switches.ts'
export type * from '../documents/tokens.ts'
export type * from '../documents/why.ts'
export type { ChangeInput, NewKeyInput, NewTokenInput, TimeInput } from '../inputs.ts'
export type { OpaqueKey } from '../keys.ts'
export type { AuditInput } from './audit.ts'
export type { OverrideSettings } from './consumers.ts'
export type { StatsInput, TopCallersInput } from './stats.ts'
export type { RuleChangeInput } from './switches.ts'

export interface Admin extends StatsAdmin, AuditAdmin {
  keys: KeyAdmin
  tokens: TokenAdmin
  consumers: ConsumerAdmin
  switches: SwitchAdmin
  limits: LimitAdmin
}

/** What `createAdmin` returns. */
export interface ConnectedAdmin extends Admin {
  /** Closes the connection to Redis, which keeps the process running. A store with a REST API has none. */
  close(): Promise<void>
}

/** Options of `createAdmin`. All are optional. */
export interface CreateAdminOptions {
  /** The variables, if they are not those of the process: `env` of a Worker. */
  env?: Environment
  /** The store, if it is not that of the variables: a URL, or the client that the app has already. */
  redis?: RedisOption
  /** The author of changes, which the audit trail records. Default: `sluicegate/admin`. */
  by?: string
}

/**
 * Creates the administration of a deployment: of its config, and of the store of `redis` or of the variables. `SLUICE_ENVIRONMENT` and `SLUICE_KEY_SECRET` count as for the command line. Every function throws
 * AdminError.
 *
 *     const admin = createAdmin(config, { by: 'sign-up' })
 *     const { key } = await admin.keys.create({ consumer: 'acme', plan: 'pro' })
 *
 * @throws ConfigError naming every mistake of the config and each missing variable; TypeError for an unknown option
 */
export function createAdmin(input: ConfigInput, options: CreateAdminOptions = {}): ConnectedAdmin {
  checkOptions('createAdmin', options, ['redis', 'env', 'by'])
  const { env = environmentOf(), redis, by = 'sluicegate/admin' } = options
  const checked = checkedConfig(input)
  const { config, admin, address, close } = connectStore(checked, env, redis)
  const { environment, credentials, keyLocking, cluster } = config
  const secrets = env[KEY_SECRET]
  const keySpace = {
    environment,
    keyPrefix: credentials.keyPrefix,
    keySecret: secrets ? readKeySecrets(secrets)[0] : undefined,
  }
  const store = admin
    ? wholeStoreOn(admin, keySpace)
    : createAdminStore({ ...address!, ...keySpace, keyLocking, cluster })
  const administration = administer({
    store,
    config: withInput({ ...checked, ...(environment !== undefined && { environment }) }, input),
    by,
  })
  return { ...administration, close }
}

/** The administration of a config and a store. Changes are recorded in the audit trail. */
export function administer({ store, config, by }: AdminContext): Admin {
  const author = { actor: { kind: 'operator', name: parseShortText(by, 'name') } } as const
  const context = { store: withActor(store, author, auditKeepMs(config.input.audit)), config, by }
  return {
    keys: administerKeys(context),
    tokens: administerTokens(context),
    consumers: administerConsumers(context),
    switches: administerSwitches(context),
    limits: administerLimits(context),
    ...administerStats(context),
    ...administerAudit(context),
  }
}
