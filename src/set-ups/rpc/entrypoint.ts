/**
 * Limits by name as a service binding: other Workers call them with types, and without HTTP or a store of their own.
 * The config is checked at the first call, and its scripts are compiled when they are first needed. What
 * `npx sluicegate build` generates needs neither (built-entrypoint.ts).
 */
import { waitUntil } from 'cloudflare:workers'
import type { ConfigInput } from '../../config/check/schema.ts'
import { createLimiterWithConfig } from '../limits/create-limiter.ts'
import type { StoreLimiterSettings } from '../limits/limiter-on-store.ts'
import { createEntrypoint, type EntrypointClass } from './service.ts'

export type { LimitPause, PauseLength } from '../limits/limiter-shape.ts'
export type { RuleResult } from '../rule-result.ts'
export type { KeyOptions } from './key-options.ts'
export type { Receipt } from './receipt.ts'
export {
  AcquiredUnits,
  type LimitArguments,
  type LimitsProps,
  type LimitsService,
  type RpcDecision,
} from './service.ts'

/**
 * Creates the class that a Worker exports as an entrypoint:
 *
 *     export class Limits extends limitsEntrypoint(config) {}
 *
 * The caller's wrangler.toml has `services = [{ binding = "LIMITS", service = "…", entrypoint = "Limits" }]`.
 *
 * @throws ConfigError (from its methods) naming every mistake of the config and each missing variable
 */
export function limitsEntrypoint(config: ConfigInput, settings: StoreLimiterSettings = {}): EntrypointClass {
  return createEntrypoint(config, env =>
    createLimiterWithConfig(config, { env, waitUntil, awaitsCounters: true, ...settings }),
  )
}
