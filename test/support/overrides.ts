/** Overrides as an operator would set them, for tests of what becomes of them. */

import type { PlanNumbersInput, RuleInput } from '../../src/config/check/rule-schema.ts'
import { compileGatewayRule, withNumbers } from '../../src/config/compile-rule.ts'
import type { Override } from '../../src/store/records.ts'

export function overrideOf(
  input: RuleInput,
  numbers: PlanNumbersInput | undefined,
  rest: Pick<Override, 'mode' | 'until'> = {},
): Override {
  const [rule] = compileGatewayRule(input, ['free'])
  if (!numbers) return { family: rule!.family, rule: input.name, ...rest }
  const [own] = compileGatewayRule(withNumbers(input, numbers), ['free'])
  const { limit, period, burst, step } = own!.quota
  const third = keepsTime(input) ? burst : step
  return {
    family: rule!.family,
    rule: input.name,
    ...rest,
    numbers: {
      ...{ tag: own!.tag, quotaLimit: limit, quotaPeriod: period, limit: own!.limit, burst },
      ...(third !== undefined && { third }),
    },
  }
}

const keepsTime = ({ algorithm }: RuleInput) => /gcra|bucket/.test(algorithm)
