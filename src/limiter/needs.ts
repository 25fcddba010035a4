/** Which parts the rules of a config need, also rules that are off, because they can be switched on. A built Worker has only these. */
import type { Config } from '../config/compile.ts'
import { countsInFlight, type Rule } from '../config/compile-rule.ts'
import { fallbackOf } from './outage/fallbacks.ts'

/** Whether the isolate counts a rule by itself while the store does not decide. */
export const countsLocally = (rules: readonly Rule[]) => rules.some(rule => fallbackOf(rule).admits)

/** Whether the isolate counts guesses that it refuses without the store: keys with a wrong signature. */
export const countsGuesses = (
  { credentials }: Partial<Pick<Config, 'credentials'>>,
  rules: readonly Rule[],
) => credentials?.signature !== undefined && rules.some(({ on }) => on === 'auth-failure')

export const anyCountsInFlight = (rules: readonly Rule[]) => rules.some(countsInFlight)

export const takesLeases = (rules: readonly Rule[]) => rules.some(({ lease }) => lease !== undefined)

/** Whether a rule reserves units that are settled when the cost is known. */
export const anyReserves = (rules: readonly Rule[]) =>
  rules.some(({ settlement }) => settlement !== undefined)

/** Whether operators can override a rule of a limit by name. */
export const anyOverridable = (rules: readonly Pick<Rule, 'isOverridable'>[]): boolean =>
  rules.some(({ isOverridable }) => isOverridable)
