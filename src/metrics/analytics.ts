/** Workers Analytics Engine: writes one data point for each request, if a data set is bound. No request waits for it. */
import type { AnalyticsDataset } from '../config/environment.ts'
import { type Observation, refusingRuleNames } from './observation.ts'

/** All blobs of a data point together may have 16 KB. */
const MAX_NAMES_LENGTH = 4000

/**
 * Writes one data point. The metrics are sampled: sum up `_sample_interval` instead of counting points.
 *
 *     index1   the rule that refused, or `none`
 *     blob1-4  outcome, route, plan, cause
 *     blob5    enforced rules that refused
 *     blob6    shadow rules that would have refused
 *     blob7    `test` for a test caller
 *     double1  1
 *     double2  ms that the store took
 */
export function writeDataPoint(dataset: AnalyticsDataset, observation: Observation): void {
  const { outcome, route = '', plan = '', cause = '', mode = '', verdicts, storeMs } = observation
  const limited = refusingRuleNames(verdicts, 'enforce')
  const wouldLimit = refusingRuleNames(verdicts, 'shadow')
  dataset.writeDataPoint({
    indexes: [limited[0] ?? 'none'],
    blobs: [outcome, route, plan, cause, joinNames(limited), joinNames(wouldLimit), mode],
    doubles: [1, storeMs],
  })
}

const joinNames = (names: readonly string[]) => names.join(',').slice(0, MAX_NAMES_LENGTH)
