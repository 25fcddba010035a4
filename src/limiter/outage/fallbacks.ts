/** The fallbacks of rules (`onStoreFailure`): what a rule does with a request that the store has not decided. */
import type { OnStoreFailure } from '../../config/check/rule-schema.ts'
import { countsInFlight, type Rule } from '../../config/compile-rule.ts'

interface Fallback {
  /** Whether a rule may admit the request. It does if it cannot be counted at all, not even in the isolate. */
  admits: boolean
  /** Whether the isolate still counts the rule when an outage is confirmed. */
  isCountedInOutage: boolean
}

const FALLBACKS: Readonly<Record<OnStoreFailure, Fallback>> = {
  local: { admits: true, isCountedInOutage: true },
  open: { admits: true, isCountedInOutage: false },
  closed: { admits: false, isCountedInOutage: false },
}

export const fallbackOf = ({ onStoreFailure }: Rule) => FALLBACKS[onStoreFailure]

/**
 * Whether the isolate may have to count a rule by what it knows of the store's counts. Units in flight are given back when requests
 * end, so what the store has said about them before says nothing.
 */
export const followsStore = (rule: Rule): boolean =>
  rule.on === 'request' && !countsInFlight(rule) && fallbackOf(rule).admits
