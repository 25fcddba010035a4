/**
 * The traffic class of a request: the first class that matches, or the class without a match. Only the store
 * knows the plan of a caller. Until its answer is known, the caller is assumed to have the plan that makes its
 * request most important. Pure.
 */
import { appliesToPlan } from '../../config/compile-rule.ts'
import type { TrafficClass } from '../../config/compile-shedding.ts'
import { type Caller, modeOf } from './caller.ts'

/**
 * Selects the class of one reading of a request.
 *
 * @param classes that match this reading, in the order of the config; one of them has no match
 * @param knownPlan of the caller, from a token or the store's last answer
 * @param plans of the config
 */
export function classOfReading(
  classes: readonly TrafficClass[],
  { credential }: Pick<Caller, 'credential'>,
  knownPlan: string | undefined,
  plans: readonly string[],
): TrafficClass {
  const fits = classes.filter(
    ({ match }) =>
      (match?.authenticated === undefined || match.authenticated === (credential !== undefined)) &&
      (match?.mode === undefined || match.mode === modeOf(credential)),
  )
  const other = fits.find(({ match }) => match === undefined)!
  const named = fits.filter(({ match }) => match !== undefined)
  const classOf = (plan: string | undefined) =>
    named.find(({ match }) => appliesToPlan({ match: match! }, plan)) ?? other
  if (credential === undefined || knownPlan !== undefined) return classOf(knownPlan)
  // All plans that no class names get the same class.
  const withOwnClass = new Set(named.flatMap(({ match }) => match!.plans ?? []))
  const unnamed = plans.find(plan => !withOwnClass.has(plan))
  const distinct = [...withOwnClass, ...(unnamed === undefined ? [] : [unnamed])]
  const possible = distinct.map(classOf)
  const { isCritical, ...most } = possible.reduce((most, next) => (next.rank < most.rank ? next : most))
  if (!isCritical) return most
  // Callers of any plan could exceed the capacity, with a key that is new to each isolate.
  return possible.every(each => each.isCritical) ? { ...most, isCritical } : { ...most, mayBeCritical: true }
}

/**
 * The class of a request: the least important one of its readings, by what this isolate knows about the caller.
 *
 * @param recall the store's last answer about the credential
 * @param plans of the config
 */
export function classOfRequest(
  classes: readonly (readonly TrafficClass[])[],
  caller: Pick<Caller, 'credential' | 'plan'>,
  recall: () => { plan?: string } | undefined,
  plans: readonly string[],
): TrafficClass {
  const plan = knownPlanOf(caller, recall)
  return leastImportantOf(classes.map(matching => classOfReading(matching, caller, plan, plans)))
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
