/** The exports of `sluicegate/guard`. */

export type { WithMetrics } from '../../metrics/metrics-reader.ts'
export type { RuleResult } from '../rule-result.ts'
export type { CallerInfo } from './caller-info.ts'
export { type Closable, callerOf, type FetchHandler, type GuardOptions, guard } from './guard.ts'
