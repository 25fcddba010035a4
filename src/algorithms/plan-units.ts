/**
 * The amounts of a rule that a plan can have of its own, and a consumer by an override: the limit, and units at once
 * under the name that the algorithm has for them. Not for the Worker.
 */
import type { Description, Parameter, Units } from './descriptor.ts'
import { ALGORITHM_NAMES, type AlgorithmName, descriptionOf, type descriptions } from './index.ts'

type Keys<P> = { [K in keyof P]: P[K] extends { forPlans: string } ? K : never }[keyof P]

/** `limit`, and what the algorithms have beside it. */
export type PlanUnits = {
  [Name in AlgorithmName]: Keys<(typeof descriptions)[Name]['parameters']>
}[AlgorithmName]

export interface PlanUnitsInfo {
  low: number
  /** In a few words what they are. */
  words: string
  algorithms: readonly AlgorithmName[]
}

/** Those that there are, by name. */
export const planUnits: ReadonlyMap<PlanUnits, PlanUnitsInfo> = collect()

function collect(): Map<PlanUnits, PlanUnitsInfo> {
  const found = new Map<PlanUnits, PlanUnitsInfo>()
  for (const algorithm of ALGORITHM_NAMES) {
    const { parameters } = descriptionOf({ algorithm })
    for (const [name, parameter] of Object.entries(parameters).filter(isForPlans)) {
      const { low, words, algorithms } = found.get(name) ?? {
        low: parameter.low,
        words: parameter.forPlans,
        algorithms: [],
      }
      found.set(name, { low: Math.min(low, parameter.low), words, algorithms: [...algorithms, algorithm] })
    }
  }
  return found
}

function isForPlans(entry: [string, Parameter]): entry is [PlanUnits, Units & { forPlans: string }] {
  return 'forPlans' in entry[1]
}

export function takesUnits({ algorithm }: { algorithm: AlgorithmName }, name: PlanUnits): boolean {
  return planUnits.get(name)!.algorithms.includes(algorithm)
}

/** The units at once of a rule as its user writes them; undefined where the algorithm leaves no choice. */
export function unitsAtOnce(
  { atOnce }: Pick<Description, 'atOnce'>,
  burst: number,
): { parameter: string; units: number } | undefined {
  return atOnce && { parameter: atOnce.parameter, units: burst - atOnce.beside }
}
