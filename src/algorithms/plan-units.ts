/**
 * The numbers of a rule that a plan or an override can set: the limit, and the units at once, whose parameter name depends on the
 * algorithm (`burst`, `queue`). A built Worker does not import this file.
 */
import type { Parameter, Units } from './descriptor.ts'
import { ALGORITHM_NAMES, type AlgorithmName, descriptionOf, type descriptions } from './index.ts'

type Keys<P> = { [K in keyof P]: P[K] extends { forPlans: string } ? K : never }[keyof P]

/** Names of these parameters over all algorithms: `limit`, `burst`, … */
export type PlanUnits = {
  [Name in AlgorithmName]: Keys<(typeof descriptions)[Name]['parameters']>
}[AlgorithmName]

export interface PlanUnitsInfo {
  low: number
  /** A few words that describe the units. */
  label: string
  algorithms: readonly AlgorithmName[]
}

/** Every parameter that a plan or an override can set, by name. */
export const planUnits: ReadonlyMap<PlanUnits, PlanUnitsInfo> = collect()

function collect(): Map<PlanUnits, PlanUnitsInfo> {
  const found = new Map<PlanUnits, PlanUnitsInfo>()
  for (const algorithm of ALGORITHM_NAMES) {
    const { parameters } = descriptionOf({ algorithm })
    for (const [name, parameter] of Object.entries(parameters).filter(isForPlans)) {
      const { low, label, algorithms } = found.get(name) ?? {
        low: parameter.low,
        label: parameter.forPlans,
        algorithms: [],
      }
      found.set(name, { low: Math.min(low, parameter.low), label, algorithms: [...algorithms, algorithm] })
    }
  }
  return found
}

function isForPlans(entry: [string, Parameter]): entry is [PlanUnits, Units & { forPlans: string }] {
  return 'forPlans' in entry[1]
}

/** Whether plans and overrides can set this parameter for rules of the algorithm. */
export function hasPlanUnits({ algorithm }: { algorithm: AlgorithmName }, name: PlanUnits): boolean {
  return planUnits.get(name)!.algorithms.includes(algorithm)
}
