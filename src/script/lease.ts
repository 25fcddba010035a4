/**
 * A lease: one decision spends for several similar requests, all or nothing over all its rules, and the isolate serves the others
 * without a trip. Whether the request itself is admitted does not change; only the number of spent units does.
 */
import type { Evaluation } from './evaluation.ts'
import type { RuleSetShape } from './rule-set-shape.ts'

/** A lease takes at most 1/16 of what each rule has left. The rest is for other isolates. */
export const LEASE_DIVISOR = 16

/** The part of an evaluation that concerns leases. */
export interface LeaseInput extends Pick<Evaluation, 'wantedRequests'> {
  ruleSet: Pick<RuleSetShape, 'leases'>
}

/** For how many requests the script is to spend; 1: for this request only. A peek leases nothing. */
export function wantedRequestsOf(
  { ruleSet: { leases }, wantedRequests = 1 }: LeaseInput,
  verb: 'decide' | 'peek',
): number {
  return leases && verb === 'decide' && wantedRequests > 1 ? wantedRequests : 1
}
