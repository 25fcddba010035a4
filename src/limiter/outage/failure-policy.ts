/** The failure policies of rules (`onStoreFailure`): what a rule does with a request that the store has not decided. */
import type { OnStoreFailure } from '../../config/check/rule-schema.ts'

/** The answers of the functions below. */
interface FailurePolicy {
  admitsUncounted: boolean
  isCountedLocally: boolean
}

const POLICIES: Record<OnStoreFailure, FailurePolicy> = {
  local: { admitsUncounted: true, isCountedLocally: true },
  // The isolate counts until an outage is confirmed.
  open: { admitsUncounted: true, isCountedLocally: true },
  closed: { admitsUncounted: false, isCountedLocally: false },
}

/** Whether a rule admits a request that cannot be counted at all, not even in the isolate. */
export const admitsUncounted = (policy: OnStoreFailure): boolean => POLICIES[policy].admitsUncounted

/** Whether the isolate may have to count the rule. */
export const isCountedLocally = (policy: OnStoreFailure): boolean => POLICIES[policy].isCountedLocally
