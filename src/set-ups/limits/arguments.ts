/**
 * Checks the arguments of a limit by name, which a caller without types can get wrong. Each error names the wrong value, and the valid
 * ones.
 */
import { kindOf, show } from '../../config/check/mistake.ts'
import type { LimitRule } from '../../config/compile.ts'
import { REQUESTS } from '../../config/compile-rule.ts'

/** The identity that is counted: a value for every part that the rules of the limit count by. */
export type LimitIdentity = Readonly<Record<string, string | number>>

/** Options of `limit` and `refund`. */
export interface LimitOptions {
  /**
   * Requests (default 1; for `refund` all units that were spent), or units by rule name. Whole numbers from 0 to
   * 1,000,000,000. With cost 0, a rule only reports its state.
   */
  cost?: number | Readonly<Record<string, number>>
}

/** The numbers that a call gives to a rule with `numbers: 'call'`, as the config would have them. */
export interface NumbersOfCall {
  /** Units per period; with `concurrency` in flight. */
  limit: number
  /** A duration, such as `'1m'`. Default: that of `max`. */
  period?: string
  /** Units at once, with `gcra` and `token-bucket` (default `limit`). */
  burst?: number
  /** Places in the queue, with `leaky-bucket` (default `limit`). */
  queue?: number
}

/** By the name of the rule. */
export type CallNumbers = Readonly<Record<string, NumbersOfCall>>

/** Options of `peek`. */
export interface NumbersOptions {
  /** For each rule with `numbers: 'call'`: `{ quota: { limit: 300, period: '1m' } }`, at most its `max`. */
  numbers?: CallNumbers
}

/** Options of `limit`. */
export interface CostOptions extends LimitOptions, NumbersOptions {
  /** Amounts by unit, for rules that count a unit of the config. Default: the estimate of the unit, if it is a number. */
  amounts?: Amounts
}

/** Amounts by unit, as in `{ tokens: 731 }`. Whole numbers from 0 to 1,000,000,000. */
export type Amounts = Readonly<Record<string, number>>

/** The highest cost of a call. */
export const MAX_COST = 1e9

/**
 * The rules by which an earlier decision can have been counted. A later deployment can have added rules, which may count by further parts,
 * and removed others, whose parts no rule counts by any more.
 * @param names as properties: the rules under which it has spent units
 * @throws TypeError if a part is neither text nor number, or if parts of all rules in `names` are missing
 */
export function rulesOfEarlier(
  name: string,
  identity: LimitIdentity,
  rules: readonly LimitRule[],
  names: object,
): readonly LimitRule[] {
  const known = rules.filter(({ by }) => by.every(part => hasPart(identity, part)))
  const spent = rules.filter(rule => Object.hasOwn(names, rule.name))
  const fits = spent.length === 0 || spent.some(rule => known.includes(rule))
  checkIdentity(name, identity, fits ? known : spent, true)
  return known
}

/** The rules of a limit, with the numbers of a call. @throws TypeError for an unknown limit, and for numbers that it cannot have */
export type RulesWith = (
  name: string,
  numbers: CallNumbers | undefined,
  isEarlier?: boolean,
) => readonly LimitRule[]

/** Binds these rules: each with the key of the identity. @param names as in `rulesOfEarlier` @param numbers of the decision */
export type BindEarlier = (
  name: string,
  identity: LimitIdentity,
  names: object,
  numbers?: CallNumbers,
) => readonly { rule: LimitRule; key: string }[]

/** What every object inherits, such as `constructor`, is not a part of an identity. */
const partOf = (identity: LimitIdentity, part: string): unknown =>
  (part in Object.prototype && !Object.hasOwn(identity, part) ? undefined : identity[part]) ?? undefined

const hasPart = (identity: LimitIdentity, part: string) =>
  isRecord(identity) && partOf(identity, part) !== undefined

/**
 * @param mayHaveOthers whether it may have parts that no rule counts by
 * @throws TypeError for a part that is missing, that is neither text nor an exact number, or that no rule counts by
 */
export function checkIdentity(
  name: string,
  identity: LimitIdentity,
  rules: readonly LimitRule[],
  mayHaveOthers = false,
): void {
  if (!isRecord(identity)) {
    throw new TypeError(
      `The identity of the limit '${name}' is ${show(identity)}. Use an object, such as { account: '42' }.`,
    )
  }
  const parts = new Set(rules.flatMap(rule => rule.by))
  const missing = [...parts].filter(part => !hasPart(identity, part))
  const wrong = [...parts].filter(part => !missing.includes(part) && !isPartValue(partOf(identity, part)))
  const unknown = mayHaveOthers ? [] : Object.keys(identity).filter(part => !parts.has(part))
  const counted = parts.size > 0 ? `by ${[...parts].join(' and ')}` : 'all calls together'
  const mistakes = [
    ...(missing.length > 0 ? [`${missing.join(', ')} is missing`] : []),
    ...wrong.map(
      part => `${part} is ${show(partOf(identity, part))}, not text or a number up to ±(2^53 - 1)`,
    ),
    ...(unknown.length > 0 ? [`${unknown.join(', ')} is not a part of its identity`] : []),
  ]
  if (mistakes.length > 0)
    throw new TypeError(`The limit '${name}' counts ${counted}: ${mistakes.join(', and ')}.`)
}

/** JSON.parse rounds larger numbers, so neighbours would share a budget. */
const isPartValue = (value: unknown) =>
  typeof value === 'string' || (typeof value === 'number' && Math.abs(value) <= Number.MAX_SAFE_INTEGER)

/** Whether a value is an object with fields: no list, no Map and no other object that is a single value. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null) return false
  return kindOf(value) === 'Object' || Object.hasOwn(value, Symbol.toStringTag)
}

/**
 * @param method as in `limit`
 * @param known the names of its options
 * @throws TypeError unless the options are an object, and for an unknown one
 */
export function checkOptions(method: string, options: unknown, known: readonly string[]): void {
  if (!isRecord(options)) {
    throw new TypeError(
      `The options of ${method} are ${show(options)}. Use an object with any of these: ${known.join(', ')}.`,
    )
  }
  const unknown = Object.keys(options).find(option => !known.includes(option))
  if (unknown !== undefined) {
    throw new TypeError(`${method} has no option '${unknown}'. Options: ${known.join(', ')}.`)
  }
}

/**
 * @param spent as properties: other rules that the cost can name
 * @throws TypeError for an unknown rule or an invalid cost
 */
export function checkCost(
  name: string,
  cost: NonNullable<LimitOptions['cost']>,
  rules: readonly LimitRule[],
  spent: object = {},
): void {
  if (typeof cost === 'number') {
    checkUnits('cost', cost)
    return
  }
  if (!isRecord(cost)) {
    throw new TypeError(
      `cost is ${show(cost)}. Use a whole number from 0 to ${MAX_COST}, or an object with one for each rule.`,
    )
  }
  for (const [rule, units] of Object.entries(cost)) {
    if (!Object.hasOwn(spent, rule)) checkRule(name, rule, rules)
    checkUnits(rule, units)
  }
}

/**
 * Checks the amounts of a settlement. If a later deployment has removed a rule that has reserved units, they can name any unit.
 * @param reserved units by rule name
 * @throws TypeError if no rule of the limit reserves units, for an unknown unit and an invalid amount
 */
export function checkSettled(
  name: string,
  amounts: unknown,
  rules: readonly LimitRule[],
  reserved: Readonly<Record<string, number>> = {},
): void {
  const settling = rules.filter(({ settlement }) => settlement)
  const isKnown = Object.keys(reserved).every(each => settling.some(rule => rule.name === each))
  if (isKnown) checkReserves(name, rules)
  checkAmounts(name, amounts, settling, 'reserves', !isKnown)
}

/** @param rules whose units the amounts can name */
function checkAmounts(
  name: string,
  amounts: unknown,
  rules: readonly LimitRule[],
  verb: string,
  canNameOthers = false,
): void {
  const units = [...new Set(rules.map(({ unit }) => unit))]
  if (!isRecord(amounts)) {
    const example = `{ ${units[0] ?? 'tokens'}: 100 }`
    throw new TypeError(
      `amounts is ${show(amounts)}. Use an object with an amount for each unit, such as ${example}.`,
    )
  }
  for (const [unit, amount] of Object.entries(amounts)) {
    if (!canNameOthers && !units.includes(unit))
      throw new TypeError(
        `The limit '${name}' ${verb} no unit '${unit}'. Units: ${units.join(', ') || 'none'}.`,
      )
    checkUnits(`amounts.${unit}`, amount)
  }
}

/** @throws TypeError for an invalid cost or amount, and for a unit without an amount */
export function checkCosts(name: string, options: CostOptions, rules: readonly LimitRule[]): void {
  const { cost, amounts } = options
  if (cost !== undefined) checkCost(name, cost, rules)
  if (amounts !== undefined) checkAmounts(name, amounts, rules, 'counts')
  const rule = rules.find(rule => rule.needsAmount && costGiven(rule, options) === undefined)
  if (!rule) return
  throw new TypeError(
    `The limit '${name}' counts ${rule.unit}, which has no estimate in the config. Use amounts: { ${rule.unit}: 100 }.`,
  )
}

/** What a call costs under a rule. The options are checked. */
export function costOf(rule: LimitRule, options: CostOptions): number {
  const { unit, cost } = rule
  return (
    costGiven(rule, options) ?? (unit === REQUESTS && typeof options.cost === 'number' ? options.cost : cost)
  )
}

/** The cost that the options name for a rule, by its name or by its unit. */
function costGiven({ name, unit }: LimitRule, { cost, amounts = {} }: CostOptions): number | undefined {
  if (typeof cost === 'object' && Object.hasOwn(cost, name)) return cost[name]
  return Object.hasOwn(amounts, unit) ? amounts[unit] : undefined
}

/** @throws TypeError if no rule of the limit reserves units */
export function checkReserves(name: string, rules: readonly LimitRule[]): void {
  if (rules.some(({ settlement }) => settlement)) return
  throw new TypeError(
    `The limit '${name}' reserves nothing: no rule counts a unit of the config. Use limit('${name}').`,
  )
}

function checkUnits(what: string, units: unknown): void {
  if (Number.isInteger(units) && (units as number) >= 0 && (units as number) <= MAX_COST) return
  throw new TypeError(`${what} is ${show(units)}. Use a whole number from 0 to ${MAX_COST}.`)
}

/** @throws TypeError for a time that is not a number */
export function checkTimeout(timeoutMs: unknown): void {
  if (typeof timeoutMs === 'number' && !Number.isNaN(timeoutMs)) return
  throw new TypeError(`timeoutMs is ${show(timeoutMs)}. Use a number of milliseconds.`)
}

/** @throws TypeError for a signal that cannot be listened to */
export function checkSignal(signal: unknown): void {
  if (signal === undefined) return
  if (typeof signal === 'object' && signal !== null && 'aborted' in signal && 'addEventListener' in signal)
    return
  throw new TypeError(`signal is ${show(signal)}. Use the signal of an AbortController.`)
}

/** @throws TypeError for numbers of a limit that has none from calls */
export function refuseNumbers(name: string): never {
  throw new TypeError(
    `The limit '${name}' has its numbers from the config. Leave numbers out, or write numbers: 'call' in one of its rules.`,
  )
}

/** @throws TypeError for an unknown rule */
export function checkRule(name: string, only: string, rules: readonly LimitRule[]): void {
  if (rules.some(rule => rule.name === only)) return
  const names = rules.map(rule => rule.name).join(', ')
  throw new TypeError(`The limit '${name}' has no rule '${only}'. Rules: ${names}.`)
}
