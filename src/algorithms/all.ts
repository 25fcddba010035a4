/** All algorithms. A built Worker does not import this file: src/built/ imports only the algorithms that its config uses. */
import { windowEnds } from './calendar.ts'
import type { Algorithms, Counting } from './descriptor.ts'
import { list } from './list.ts'

export type AlgorithmName = keyof typeof list

export const countings = Object.fromEntries(
  Object.entries(list).map(([name, { counting }]) => [name, counting]),
) as Record<AlgorithmName, Counting>

export const ALL_ALGORITHMS: Algorithms = { countings, windowEnds }
