/** Which parts the units of a config need. */
import type { Config } from '../../config/compile.ts'

type Counting = Pick<Config, 'units' | 'rules'>

/** Whether requests can cost amounts of units, or count by the status of their response. */
export const anyEstimated = ({ rules }: Pick<Config, 'rules'>) => rules.some(({ isEstimated }) => isEstimated)

/** Whether an estimate depends on the body of a request, or the request is changed to ask for usage. */
export const estimatesFromBody = (config: Counting) =>
  unitsOf(config).some(({ estimate, includesUsage }) => typeof estimate === 'object' || includesUsage)

/** Whether what a request has cost is read from the reply. */
export const readsUsage = (config: Counting) =>
  unitsOf(config).some(({ actual, includesUsage }) => typeof actual === 'object' || includesUsage)

/** Whether requests can begin work that goes on after their reply. */
export const readsJobs = (config: Counting) =>
  unitsOf(config).some(
    ({ actual }) => typeof actual === 'object' && 'usage' in actual && actual.usage === 'openai',
  )

/** The units that rules of the gateway count. */
function unitsOf({ units, rules }: Counting) {
  const counted = new Set(rules.map(({ unit }) => unit))
  return [...(units ?? [])].flatMap(([name, unit]) => (counted.has(name) ? unit : []))
}
