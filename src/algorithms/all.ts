/** All algorithms, for everything but the Worker, which gets those that its config uses (src/built/). */
import { windowEnds } from './calendar.ts'
import type { Algorithms, Counting } from './descriptor.ts'
import * as list from './list.ts'

export type AlgorithmName = keyof typeof list

export const countings = Object.fromEntries(
  Object.entries(list).map(([name, { counting }]) => [name, counting]),
) as Record<AlgorithmName, Counting>

export const ALL_ALGORITHMS: Algorithms = { countings, windowEnds }
