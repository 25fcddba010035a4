/** The units that can come at once, under the name that an algorithm has for them (`burst`, `queue`). */
import type { Numbers } from './descriptor.ts'

/**
 * The value of the parameter that sets how many units can come at once.
 * @param burst of the quota
 * @returns undefined if the algorithm has no such parameter
 */
export function unitsAtOnce(
  { atOnce }: Pick<Numbers, 'atOnce'>,
  burst: number,
): { parameter: string; units: number } | undefined {
  return atOnce && { parameter: atOnce.parameter, units: burst - atOnce.notIncluded }
}
