/** The exports of `sluicegate/guard`. */
export type { CallerInfo, LimitInfo } from './caller-info.ts'
export { type Closable, callerOf, type FetchHandler, type GuardOptions, guard } from './guard.ts'
