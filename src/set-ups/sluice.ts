/** The exports of `sluicegate`: writing a config, and limits by name. */
export type {
  AddressInput,
  CallLimitRuleInput,
  ConfigInput,
  CredentialsInput,
  LimitRuleInput,
  OnStoreFailure,
  RouteInput,
  RuleInput,
  SheddingInput,
} from '../config/check/schema.ts'
export { ConfigError } from '../config/config-error.ts'
export { defineConfig } from '../config/define.ts'
export type { Environment } from '../config/environment.ts'
export type {
  CostContext,
  CostHook,
  HookContext,
  Hooks,
  IdentifyHook,
  PlanHook,
  RefusalHook,
  RefusalInfo,
  SkipHook,
} from '../config/hooks.ts'
export { type JwtInput, jwt } from '../credentials/jwt.ts'
export type { Amounts, CallNumbers, LimitIdentity, LimitOptions, NumbersOfCall } from './limits/arguments.ts'
export { type CreateLimiterOptions, createLimiter } from './limits/create-limiter.ts'
export type {
  AcquireOptions,
  LimitDecision,
  Limiter,
  ReservedDecision,
  ReserveOptions,
  SettleableDecision,
  SettledDecision,
} from './limits/limiter-shape.ts'
export type { RuleResult } from './rule-result.ts'
