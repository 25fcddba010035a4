/** The rules of the config, as overrides change them. A Worker whose API shows and sets no overrides does not carry it. */
import type { Config } from '../../config/compile.ts'
import { createOverrideRules, type OverrideRules } from '../../ops/override-rules.ts'
import type { NumbersParts } from '../limits/numbers.ts'

/** @param config with `api` */
export function createOverrides(
  { api, rules, plans }: Config,
  { ruleNumbers, mistakesOfSettlement }: NumbersParts,
): OverrideRules {
  const { algorithms, compiledUnits, written } = api!
  const compiled = { written: written.rules, rules, plans, algorithms, compiledUnits }
  return createOverrideRules(compiled, {
    numbersOf: ({ algorithm }) => ruleNumbers[algorithm]!.numbers,
    thirdNumberOf: algorithm => ruleNumbers[algorithm]!.third,
    mistakesOfSettlement,
  })
}
