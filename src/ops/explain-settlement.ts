/** Explains how a rule reserves units, and how it learns what a request has cost. */
import type { Config, GatewayRule, Rule } from '../config/compile.ts'
import { REQUESTS } from '../config/compile-rule.ts'
import type { ActualSource } from '../config/units-shape.ts'

export interface SettlementExplanation {
  /** What a request reserves. `llm`: what the config reads from its body; `hook`: what the hook `amounts` says. */
  estimate: number | 'llm' | 'hook'
  actual: ActualSource | { status: readonly number[] }
  onUnsettled: 'keep' | 'release'
  ttlMs: number
}

/** @returns undefined if the cost of a request is known before it */
export function explainSettlement(
  rule: Rule,
  cost: number,
  { units, hooks }: Pick<Config, 'units' | 'hooks'>,
): SettlementExplanation | undefined {
  const { settlement, unit } = rule
  const { countIf } = rule as GatewayRule
  if (!settlement) return undefined
  const { onUnsettled, ttlMs } = settlement
  if (countIf || unit === REQUESTS)
    return { estimate: cost, actual: { status: [...(countIf?.status ?? [])] }, onUnsettled, ttlMs }
  const { estimate, actual = 'hook' } = units!.get(unit)!
  const reserved = hooks?.amounts ? 'hook' : typeof estimate === 'object' ? 'llm' : cost
  return { estimate: reserved, actual, onUnsettled, ttlMs }
}
