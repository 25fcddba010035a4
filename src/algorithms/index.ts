/** The algorithms by the name that the config and the script know them by. */
import type { Algorithm } from './algorithm.ts'
import { fixedWindow } from './fixed-window.ts'
import { gcra } from './gcra.ts'

export const algorithms = {
  'fixed-window': fixedWindow,
  gcra,
} satisfies Record<string, Algorithm>

export type AlgorithmName = keyof typeof algorithms
