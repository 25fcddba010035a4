/** The schema of `adaptive`: a limit that follows the origin, for a rule `concurrency` or for the fleet. */
import * as v from 'valibot'
import { multiple, oneOf, settings, units } from './values.ts'

const METHODS = ['gradient', 'aimd'] as const
export type AdaptiveMethodName = (typeof METHODS)[number]

export const adaptive = settings(
  {
    /**
     * How the limit follows the origin (default `'gradient'`). `'gradient'`: by the ratio of the usual latency to the
     * current one. `'aimd'`: it grows in small steps, or by half each second while latency is far below the tolerated
     * one, and shrinks by a fraction when responses are slow or fail.
     */
    method: v.optional(oneOf(METHODS, 'is not a method')),
    /** The lowest value of the limit (default `4`). The highest is the configured limit. */
    min: v.optional(units(1, 1e6)),
    /** The value at the start, before anything is measured (default `20`). Write how many requests the origin can certainly handle at once. */
    initial: v.optional(units(1, 1e6)),
    /**
     * How slow responses may become under overload, as a multiple of the usual latency (default `2`). With `2`, the origin may lose
     * half of its capacity and get it back without a needless refusal. A lower value means a shorter queue, and more refusals.
     */
    tolerance: v.optional(multiple(1.1, 10)),
  },
  'is not an object. Write it like { min: 10 }.',
)
