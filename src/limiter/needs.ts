/** Which parts of the engine the rules of a config need. A built Worker carries only these. */
import { countsInFlight, type Rule } from '../config/compile-rule.ts'
import { FAILURE_POLICIES } from './outage/failure-policy.ts'

/** Whether the isolate counts a rule by itself while the store does not decide. */
export const countsLocally = (rules: readonly Rule[]) =>
  rules.some(({ onStoreFailure }) => FAILURE_POLICIES[onStoreFailure].isCountedLocally)

/** Whether a rule counts units in flight. Includes rules that are off, because they can be switched on. */
export const anyCountsInFlight = (rules: readonly Rule[]) => rules.some(countsInFlight)

/** Whether a decision may spend for several requests. Includes rules that are off, because they can be switched on. */
export const takesLeases = (rules: readonly Rule[]) => rules.some(({ lease }) => lease !== undefined)
