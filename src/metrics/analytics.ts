/** Workers Analytics Engine: one data point for each request, where a data set is bound. No request waits for it. */
import type { AnalyticsDataset } from '../config/environment.ts'
import { type Observation, refusing } from './observation.ts'

/** All blobs of a point together may have 16 KB. */
const MOST_NAMES = 4000

/**
 * index1 the rule that decided, or `none`; blob1 outcome, 2 route, 3 plan, 4 cause, 5 rules that refused, 6 shadows that
 * would have; double1 is 1, double2 the milliseconds that the store took. Sampled: sum up `_sample_interval`, not points.
 */
export function writeDataPoint(dataset: AnalyticsDataset, observation: Observation): void {
  const { outcome, route = '', plan = '', cause = '', verdicts, storeMs } = observation
  const limited = refusing(verdicts, 'enforce')
  const wouldLimit = refusing(verdicts, 'shadow')
  dataset.writeDataPoint({
    indexes: [limited[0] ?? 'none'],
    blobs: [outcome, route, plan, cause, listed(limited), listed(wouldLimit)],
    doubles: [1, storeMs],
  })
}

const listed = (names: readonly string[]) => names.join(',').slice(0, MOST_NAMES)
