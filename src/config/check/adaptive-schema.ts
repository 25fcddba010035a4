/** A limit that follows the origin: of a rule `concurrency`, or of the fleet. */
import * as v from 'valibot'
import { settings, units } from './values.ts'

const METHODS = ['gradient', 'aimd'] as const
export type AdaptiveMethodName = (typeof METHODS)[number]

export const adaptive = settings(
  {
    /**
     * How it follows (default `'gradient'`): `'gradient'` by the ratio of the usual latency to the latency now; `'aimd'` grows by a
     * little, and is cut by a part when responses are slow or fail.
     */
    method: v.optional(v.picklist(METHODS, "is not a method. Use 'gradient' or 'aimd'.")),
    /** The least that the limit can be (default `4`). The most is the limit itself. */
    min: v.optional(units(1, 1e6)),
    /** Where it begins while nothing is known (default `20`). */
    initial: v.optional(units(1, 1e6)),
  },
  'is not an object. Write it like { min: 10 }.',
)
