/**
 * The traffic class of a request: the first class that matches, or the class without a match. Only the store
 * knows the plan of a caller. Until its answer is known, the caller is assumed to have the plan that makes its
 * request most important. Pure.
 */
import type { TrafficClass } from '../../config/compile-shedding.ts'
import type { Caller } from './caller.ts'

/**
 * Selects the class of one reading of a request.
 *
 * @param classes that match this reading, in the order of the config; one of them has no match
 * @param knownPlan of the caller, from a token or the store's last answer
 */
export function classOfReading(
  classes: readonly TrafficClass[],
  { credential }: Pick<Caller, 'credential'>,
  knownPlan: string | undefined,
): TrafficClass {
  const isForCaller = ({ match }: TrafficClass) =>
    match?.authenticated === undefined || match.authenticated === (credential !== undefined)
  const fits = classes.filter(isForCaller)
  const other = fits.find(({ match }) => match === undefined)!
  const named = fits.filter(({ match }) => match !== undefined)
  const isSure = ({ match }: TrafficClass) =>
    match!.plans === undefined || (knownPlan !== undefined && match!.plans.includes(knownPlan))
  const sureAt = named.findIndex(isSure)
  const sure = named[sureAt] ?? other
  if (credential === undefined || knownPlan !== undefined) return sure
  // The classes before it have a condition on the plan.
  const possible = sureAt === -1 ? named : named.slice(0, sureAt)
  return possible.reduce((most, next) => (next.rank < most.rank ? next : most), sure)
}

/**
 * The class of a request: the least important one of its readings, by what this isolate knows about the caller.
 *
 * @param recall the store's last answer about the credential
 */
export function classOfRequest(
  classes: readonly (readonly TrafficClass[])[],
  caller: Pick<Caller, 'credential' | 'plan'>,
  recall: () => { plan?: string } | undefined,
): TrafficClass {
  const plan = knownPlanOf(caller, recall)
  return leastImportantOf(classes.map(matching => classOfReading(matching, caller, plan)))
}

/** The least important of several classes. */
export const leastImportantOf = (classes: readonly TrafficClass[]): TrafficClass =>
  classes.reduce((least, other) => (other.rank > least.rank ? other : least))

/** The plan of a caller, from a token, a hook, or the store's last answer. */
export function knownPlanOf(
  { credential, plan }: Pick<Caller, 'credential' | 'plan'>,
  recall: () => { plan?: string } | undefined,
): string | undefined {
  const subject = credential?.subject
  const claimed = subject?.kind === 'token' ? subject.plan : plan
  return claimed ?? (credential && recall()?.plan)
}
