/** Makes overrides as an operator would set them. */

import { ALL_ALGORITHMS } from '../../src/algorithms/all.ts'
import type { PlanNumbersInput, RuleInput } from '../../src/config/check/rule-schema.ts'
import { compileGatewayRule, withNumbers } from '../../src/config/compile-rule.ts'
import type { Override } from '../../src/store/records.ts'

export function overrideOf(
  input: RuleInput,
  numbers: PlanNumbersInput | undefined,
  rest: Pick<Override, 'mode' | 'until'> = {},
): Override {
  const [rule] = compileGatewayRule(input, ['free'], ALL_ALGORITHMS)
  if (!numbers) return { family: rule!.family, rule: input.name, ...rest }
  const [own] = compileGatewayRule(withNumbers(input, numbers), ['free'], ALL_ALGORITHMS)
  const { rate, period, burst, step } = own!.quota
  const burstOrStep = keepsTime(input) ? burst : step
  return {
    family: rule!.family,
    rule: input.name,
    ...rest,
    numbers: {
      ...{ tag: own!.tag, rate, period, limit: own!.limit, burst },
      ...(burstOrStep !== undefined && { burstOrStep }),
    },
  }
}

const keepsTime = ({ algorithm }: RuleInput) => /gcra|bucket/.test(algorithm)
