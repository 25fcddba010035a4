/** The rules of the config, as overrides change them. A Worker whose API shows and sets no overrides does not carry it. */
import type { AlgorithmName } from '../../algorithms/all.ts'
import type { Numbers } from '../../algorithms/descriptor.ts'
import type { Config } from '../../config/compile.ts'
import { createOverrideRules, type OverrideRules, type RuleTools } from '../../ops/override-rules.ts'

/** What a Worker knows of the algorithms of its own rules. */
export interface OverrideParts {
  ruleNumbers: Readonly<Partial<Record<AlgorithmName, RuleNumbers>>>
  /** With rules that are estimated. */
  mistakesOfSettlement: RuleTools['mistakesOfSettlement']
}

interface RuleNumbers {
  numbers: Numbers
  /** The third number of the script, if it depends on the numbers of a rule. */
  third?: 'burst' | 'step'
}

/** @param config with `api` */
export function createOverrides(
  { api, rules, plans }: Config,
  { ruleNumbers, mistakesOfSettlement }: OverrideParts,
): OverrideRules {
  const { algorithms, compiledUnits, written } = api!
  const compiled = { written: written.rules, rules, plans, algorithms, compiledUnits }
  return createOverrideRules(compiled, {
    numbersOf: ({ algorithm }) => ruleNumbers[algorithm]!.numbers,
    thirdNumberOf: algorithm => ruleNumbers[algorithm]!.third,
    mistakesOfSettlement,
  })
}
