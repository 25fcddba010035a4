/** The failure policies of rules (`onStoreFailure`): what a rule does with a request that the store has not decided. */
import type { OnStoreFailure } from '../../config/check/rule-schema.ts'

interface FailurePolicy {
  /** Whether a rule admits a request that cannot be counted at all, not even in the isolate. */
  admitsUncounted: boolean
  /** Whether the isolate may have to count the rule. */
  isCountedLocally: boolean
}

export const FAILURE_POLICIES: Readonly<Record<OnStoreFailure, FailurePolicy>> = {
  local: { admitsUncounted: true, isCountedLocally: true },
  // The isolate counts until an outage is confirmed.
  open: { admitsUncounted: true, isCountedLocally: true },
  closed: { admitsUncounted: false, isCountedLocally: false },
}
