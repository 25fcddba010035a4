/** The rules of the config, as overrides change them. A Worker whose API shows and sets no overrides does not carry it. */
import type { Config } from '../../config/compile.ts'
import { createOverrideRules, type OverrideRules } from '../../ops/override-rules.ts'
import type { NumbersParts } from '../limits/numbers.ts'

/** @param config with `api` @param limit by name. Absent: the rules of the gateway */
export function createOverrides(
  { api, rules: ofGateway, limits, plans }: Config,
  { ruleNumbers, mistakesOfSettlement }: NumbersParts,
  limit?: string,
): OverrideRules {
  const { algorithms, compiledUnits, written } = api!
  const own =
    limit === undefined
      ? { written: written.rules, rules: ofGateway }
      : { limit, written: written.limits?.[limit], rules: limits.get(limit)! }
  return createOverrideRules(
    { ...own, plans, algorithms, compiledUnits },
    { ruleNumbers, mistakesOfSettlement },
  )
}
