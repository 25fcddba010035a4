/** Checks the arguments of a limit by name. Each error names the limit, the wrong value, and the valid ones. */
import type { LimitRule } from '../../config/compile.ts'

/** The identity that is counted: a value for every part that the rules of the limit count by. */
export type LimitIdentity = Readonly<Record<string, string | number>>

/** Options of `limit` and `refund`. */
export interface LimitOptions {
  /**
   * Units (default 1; for `refund` all that were spent), or units by rule name if the rules count different things.
   * Whole numbers from 0 to 1,000,000,000. With cost 0, a rule only reports its state.
   */
  cost?: number | Readonly<Record<string, number>>
}

/** The highest cost of a call. */
export const MAX_COST = 1e9

/** @throws TypeError for a part that is missing, that is neither text nor number, or that no rule counts by */
export function checkIdentity(name: string, identity: LimitIdentity, rules: readonly LimitRule[]): void {
  const mistake = findIdentityMistake(name, identity, rules)
  if (mistake !== undefined) throw new TypeError(mistake)
}

/** @returns undefined if the identity has every part that the rules count by, and no other */
export function findIdentityMistake(
  name: string,
  identity: LimitIdentity,
  rules: readonly LimitRule[],
): string | undefined {
  const parts = new Set(rules.flatMap(rule => rule.by))
  const missing = [...parts].filter(part => !/^(string|number)$/.test(typeof identity[part]))
  const unknown = Object.keys(identity).filter(part => !parts.has(part))
  if (missing.length === 0 && unknown.length === 0) return undefined
  const counted = parts.size > 0 ? `by ${[...parts].join(' and ')}` : 'all calls together'
  const wrong = [
    ...(missing.length > 0 ? [`${missing.join(', ')} is missing`] : []),
    ...(unknown.length > 0 ? [`${unknown.join(', ')} is not a part of its identity`] : []),
  ]
  return `The limit '${name}' counts ${counted}: ${wrong.join(', and ')}.`
}

/** @throws TypeError for an unknown rule or an invalid cost */
export function checkCost(
  name: string,
  cost: NonNullable<LimitOptions['cost']>,
  rules: readonly LimitRule[],
): void {
  const costs = typeof cost === 'number' ? { cost } : cost
  for (const [key, units] of Object.entries(costs)) {
    if (typeof cost !== 'number') checkRule(name, key, rules)
    if (Number.isInteger(units) && units >= 0 && units <= MAX_COST) continue
    throw new TypeError(`${key} is ${units}. Use a whole number from 0 to 1000000000.`)
  }
}

/** @throws TypeError for an unknown rule */
export function checkRule(name: string, only: string, rules: readonly LimitRule[]): void {
  if (rules.some(rule => rule.name === only)) return
  const names = rules.map(rule => rule.name).join(', ')
  throw new TypeError(`The limit '${name}' has no rule '${only}'. Rules: ${names}.`)
}
