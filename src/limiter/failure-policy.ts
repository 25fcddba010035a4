/** The failure policies of rules (`onStoreFailure`): what a rule does with a request that the store has not decided. */
import type { OnStoreFailure } from '../config/check/rule-schema.ts'

/** Whether a rule admits a request that cannot be counted at all, not even in the isolate. */
export function admitsUncounted(policy: OnStoreFailure): boolean {
  switch (policy) {
    case 'open':
    case 'local':
      return true
    case 'closed':
      return false
  }
}

/** Whether the isolate may have to count the rule. With `open` it counts until an outage is confirmed. */
export function isCountedLocally(policy: OnStoreFailure): boolean {
  switch (policy) {
    case 'open':
    case 'local':
      return true
    case 'closed':
      return false
  }
}
