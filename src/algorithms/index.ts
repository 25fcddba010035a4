/**
 * The descriptions and models of all algorithms, for the config check and the command line. A built Worker imports
 * only the countings that its config uses.
 */
import type { Model } from './algorithm.ts'
import type { AlgorithmName } from './all.ts'
import type { Description } from './descriptor.ts'
import { list } from './list.ts'

export type { AlgorithmName }

/** In alphabetical order. */
export const ALGORITHM_NAMES = Object.keys(list).sort() as AlgorithmName[]

type Descriptions = { [Name in AlgorithmName]: (typeof list)[Name]['description'] }

export const descriptions = Object.fromEntries(
  Object.entries(list)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, { description }]) => [name, description]),
) as unknown as Descriptions

/** The description of a rule's algorithm. */
export function descriptionOf({ algorithm }: { readonly algorithm: AlgorithmName }): Description {
  return descriptions[algorithm]
}

/** The models by name. */
export const algorithms = Object.fromEntries(
  ALGORITHM_NAMES.map(name => [name, descriptions[name].model]),
) as Record<AlgorithmName, Model>
