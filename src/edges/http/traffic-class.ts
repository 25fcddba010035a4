/**
 * The traffic class of a request: the most important of the classes that it matches, else the one without a match. Which plan a
 * caller has is known to the store, and here only once the store has said it. Until then the caller is taken for one with
 * the plan that makes its request most important. Pure.
 */
import type { TrafficClass } from '../../config/compile-shedding.ts'
import type { Caller } from './caller.ts'

/**
 * @param classes that match the request by what it is, the most important first; one of them has no match
 * @param knownPlan of the caller, as a token or the store's last answer says it
 */
export function classOf(
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
  const sure = named.find(isSure) ?? other
  const mayHaveAnyPlan = credential !== undefined && knownPlan === undefined
  const possible = mayHaveAnyPlan ? named[0] : undefined
  return possible && possible.rank < sure.rank ? possible : sure
}

/**
 * The class of a request, with what this isolate knows of its caller: the least important one of the ways in which it can be read.
 * @param recall the last answer of the store about the credential
 */
export function classFor(
  classes: readonly (readonly TrafficClass[])[],
  caller: Pick<Caller, 'credential' | 'plan'>,
  recall: () => { plan?: string } | undefined,
): TrafficClass {
  const plan = planKnownOf(caller, recall)
  return leastOf(classes.map(ofOneReading => classOf(ofOneReading, caller, plan)))
}

/** The least important of several. */
export const leastOf = (classes: readonly TrafficClass[]): TrafficClass =>
  classes.reduce((least, other) => (other.rank > least.rank ? other : least))

/** As a token or a hook says it, or the store's last answer about the credential. */
export function planKnownOf(
  { credential, plan }: Pick<Caller, 'credential' | 'plan'>,
  recall: () => { plan?: string } | undefined,
): string | undefined {
  const subject = credential?.subject
  const claimed = subject?.kind === 'token' ? subject.plan : plan
  return claimed ?? (credential && recall()?.plan)
}
