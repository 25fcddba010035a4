/** Finds mistakes in the numbers of a rule, also of plans and overrides. Needs only the `numbers` of its algorithm. */
import type { Flaw, Numbers } from '../../algorithms/descriptor.ts'
import { type GatewayRule, MAX_DELAY, periodOf, REQUESTS } from '../compile-rule.ts'
import type { NumbersInput } from './rule-schema.ts'

/** Finds numbers of a rule that cannot go together. @returns the key to change and the message */
export function mistakesOfNumbers(
  input: NumbersInput,
  { maxLimit = Number.POSITIVE_INFINITY, findFlaws }: Pick<Numbers, 'maxLimit' | 'findFlaws'>,
): Flaw[] {
  const { limit, algorithm } = input
  // The schema checks the bounds of a rule's own numbers. For the numbers of a plan, it does not know the algorithm.
  return limit > maxLimit
    ? [['limit', `${limit} is above ${maxLimit}, the maximum of ${algorithm}. Lower it.`]]
    : (findFlaws?.(input, periodOf(input)) ?? [])
}

/** Finds numbers that the algorithm supports and the gateway does not: costs above the burst, and delays that are too long. */
export function mistakesOfGatewayNumbers(
  { costBound, findDelayFlaws }: Numbers,
  { cost, quota, unit, limit, period }: GatewayRule,
): Flaw[] {
  const { burst } = quota
  const flaws = findDelayFlaws?.(quota, { limit, period }, MAX_DELAY) ?? []
  if (unit !== REQUESTS || cost <= burst) return flaws
  return [
    ['cost', `${cost} can never be admitted: it is above the ${costBound} of ${burst}. Lower it.`],
    ...flaws,
  ]
}
