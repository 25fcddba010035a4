/** What people write and read about the algorithms, and their models. Not for the Worker: src/algorithms/all.ts has what counts. */
import type { Model } from './algorithm.ts'
import type { AlgorithmName } from './all.ts'
import type { Description } from './descriptor.ts'
import * as list from './list.ts'

export type { AlgorithmName }

/** In the order of the alphabet, whatever bundler has made the list. */
export const ALGORITHM_NAMES = Object.keys(list).sort() as AlgorithmName[]

type Descriptions = { [Name in AlgorithmName]: (typeof list)[Name]['description'] }

export const descriptions = Object.fromEntries(
  Object.entries(list)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, { description }]) => [name, description]),
) as unknown as Descriptions

/** A rule's description, whichever its algorithm. */
export function descriptionOf({ algorithm }: { readonly algorithm: AlgorithmName }): Description {
  return descriptions[algorithm]
}

/** The models. */
export const algorithms = Object.fromEntries(
  ALGORITHM_NAMES.map(name => [name, descriptions[name].model]),
) as Record<AlgorithmName, Model>
