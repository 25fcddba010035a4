/** Finds mistakes in the numbers of a rule, also of plans and overrides. Needs only the `numbers` of its algorithm. */
import type { Flaw, Numbers, Parameter, Units } from '../../algorithms/descriptor.ts'
import { unitsAtOnce } from '../../algorithms/units-at-once.ts'
import { type GatewayRule, MAX_DELAY, periodOf, REQUESTS } from '../compile-rule.ts'
import type { Mistake } from '../config-error.ts'
import type { NumbersInput } from './rule-schema.ts'

/** Finds numbers of a rule that cannot go together. @returns the key to change and the message */
export function mistakesOfNumbers(
  input: NumbersInput,
  { parameters, findFlaws }: Pick<Numbers, 'parameters' | 'findFlaws'>,
): Flaw[] {
  // The schema checks the bounds of a rule's own numbers. For the numbers of a plan, it does not know the algorithm.
  const tooHigh = Object.entries(parameters).flatMap(([key, parameter]): Flaw[] => {
    const value = Number(input[key as keyof NumbersInput])
    if (!hasBound(parameter) || !(value > parameter.high)) return []
    const message = `${value} is above ${parameter.high}, the maximum of ${input.algorithm}. Lower it.`
    return [[key, message]]
  })
  return tooHigh.length > 0 ? tooHigh : (findFlaws?.(input, periodOf(input)) ?? [])
}

function hasBound(parameter: Parameter): parameter is Units & { high: number } {
  return parameter.kind === 'units' && parameter.high !== undefined
}

/** Finds numbers that the algorithm supports and the gateway does not: costs above the burst, and delays that are too long. */
export function mistakesOfGatewayNumbers(numbers: Numbers, compiled: GatewayRule, path: string): Mistake[] {
  const mistakes: Mistake[] = []
  const report = (key: string, message: string) => mistakes.push({ path: `${path}.${key}`, message })
  const { cost, quota, unit } = compiled
  const { burst } = quota
  if (unit === REQUESTS && cost > burst) {
    report(
      'cost',
      `${cost} can never be admitted: it is above the ${numbers.costBound} of ${burst}. Lower it.`,
    )
  }
  const waiting = unitsAtOnce(numbers, burst)
  const delay = numbers.longestDelay?.(compiled.quota) ?? 0
  if (waiting && delay > MAX_DELAY) {
    const most = Math.floor((MAX_DELAY * compiled.limit) / compiled.period)
    report(
      waiting.parameter,
      `${waiting.units} could delay a request by ${Math.ceil(delay / 1e6)} s, and the maximum is ${MAX_DELAY / 1e6} s. At this rate, use at most ${most}.`,
    )
  }
  return mistakes
}
