/** What administration works on: the config of a deployment, and its store. */
import type { ConfigInput } from '../config/check/schema.ts'
import type { Config } from '../config/compile.ts'
import { withActor } from './admin-store-on.ts'
import type { AdminStore } from './admin-store-shape.ts'
import type { OverrideRules } from './override-rules.ts'

export interface CheckedConfig extends Config {
  /** As it is written. */
  input: ConfigInput
  /** Its rules, as overrides change them. */
  overrides: OverrideRules
}

export interface AdminContext {
  store: AdminStore
  config: CheckedConfig
  /** The author of changes that name none. */
  by: string
}

/** The store for one change with an author or a reason of its own. */
export const signedBy = (
  { store }: AdminContext,
  { by, reason }: { by: string; reason?: string },
): AdminStore =>
  withActor(store, { actor: { kind: 'operator', name: by }, ...(reason !== undefined && { reason }) })
