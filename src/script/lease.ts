/**
 * A lease: one decision spends for several requests like it, all or nothing over all its rules, and the isolate serves the others
 * without a trip. The request itself is admitted or refused as always; only how much is spent differs.
 */
import type { Evaluation } from './evaluation.ts'
import type { PolicyShape } from './policy-shape.ts'

/** Of what each rule has left, a lease takes at most one part in so many. The rest is for other isolates. */
export const LEASE_DIVISOR = 16

/** What of an evaluation is about a lease. */
export interface Wanted extends Pick<Evaluation, 'wantedRequests'> {
  policy: Pick<PolicyShape, 'leases'>
}

/** How many requests the script is asked to spend for; 1: an ordinary decision. A peek leases nothing. */
export function wantedRequestsOf(
  { policy: { leases }, wantedRequests = 1 }: Wanted,
  verb: 'decide' | 'peek',
): number {
  return leases && verb === 'decide' && wantedRequests > 1 ? wantedRequests : 1
}
