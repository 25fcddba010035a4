/** The algorithms by the names that the config and the scripts use: the one list of them in TypeScript. */
import type { Model } from './algorithm.ts'
import type { Counting, Description } from './descriptor.ts'
import * as fixedWindow from './fixed-window.descriptor.ts'
import * as gcra from './gcra.descriptor.ts'
import * as leakyBucket from './leaky-bucket.descriptor.ts'
import * as slidingLog from './sliding-log.descriptor.ts'
import * as slidingWindow from './sliding-window.descriptor.ts'
import * as tokenBucket from './token-bucket.descriptor.ts'

/** For everything but the Worker: what people write and read. */
export const descriptions = {
  gcra: gcra.description,
  'token-bucket': tokenBucket.description,
  'leaky-bucket': leakyBucket.description,
  'fixed-window': fixedWindow.description,
  'sliding-window': slidingWindow.description,
  'sliding-log': slidingLog.description,
} satisfies Record<string, Description>

export type AlgorithmName = keyof typeof descriptions

/** For the Worker: what it takes to count. */
export const countings: Record<AlgorithmName, Counting> = {
  gcra: gcra.counting,
  'token-bucket': tokenBucket.counting,
  'leaky-bucket': leakyBucket.counting,
  'fixed-window': fixedWindow.counting,
  'sliding-window': slidingWindow.counting,
  'sliding-log': slidingLog.counting,
}

export const ALGORITHM_NAMES = /* @__PURE__ */ Object.keys(descriptions) as AlgorithmName[]

/** A rule's description, whichever its algorithm. */
export function descriptionOf({ algorithm }: { readonly algorithm: AlgorithmName }): Description {
  return descriptions[algorithm]
}

/** The models. */
export const algorithms = /* @__PURE__ */ (() =>
  Object.fromEntries(ALGORITHM_NAMES.map(name => [name, descriptions[name].model])))() as Record<
  AlgorithmName,
  Model
>
