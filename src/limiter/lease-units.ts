/** The units of leases: what a decision has spent for other requests, what they take of it, and what is given back. */
import type { BoundRule, Evaluation, Outcome, Verdict } from '../script/evaluation.ts'
import type { Refund } from '../script/refund.ts'
import { UNKNOWN_CONSUMER_TAG } from '../store/keys.ts'

/** What one decision has spent beyond its own request. */
export interface Lot {
  readonly demanded: Omit<Evaluation, 'now'>
  readonly outcome: Outcome
  readonly units: readonly Units[]
  /** ms */
  readonly answeredAt: number
}

/** Units of one rule. */
export interface Units {
  readonly bound: BoundRule
  /** The place of the rule among those that are demanded. */
  readonly place: number
  /** By the request that has asked, and for others. */
  readonly spent: number
  left: number
  /** Of a queue: when the next request may depart (µs after the answer), and how long a unit takes (µs). */
  departsAt: number
  readonly interval: number
}

/** Whether a lot has something to give back: a place in a queue is not given back. */
export const isLeft = ({ left, bound }: Units) => left > 0 && !bound.rule.counting.isQueue

export const microseconds = (ms: number) => Math.max(0, Math.floor(ms * 1e3))

/** For how many requests like this one there are units. */
export function leftFor(lots: readonly Lot[], rules: readonly BoundRule[]): number {
  let requests = 0
  for (const { units } of lots)
    requests += Math.min(
      ...units.map(({ left, place }) => Math.floor(left / Math.max(1, rules[place]!.cost))),
    )
  return requests
}

/** What was spent beyond the request that has asked. */
export function spentUnits(
  rules: readonly BoundRule[],
  { verdicts, plan, consumer }: Outcome,
  granted: number,
): Units[] {
  return rules.flatMap((bound, place): Units[] => {
    const { rule, role, cost, key } = bound
    if (role !== 'spend' || rule.on === 'auth-failure' || !(rule.match.plans?.includes(plan) ?? true))
      return []
    const verdict = verdicts.find(verdict => verdict.rule.tag === rule.tag && verdict.rule.name === rule.name)
    // A shadow that would refuse has spent nothing.
    if (!verdict?.allowed) return []
    const interval = rule.counting.isQueue ? intervalOf(bound, verdict) : 0
    return [
      {
        bound:
          consumer === undefined
            ? bound
            : { ...bound, key: key.replace(UNKNOWN_CONSUMER_TAG, `{c:${consumer}}`) },
        place,
        spent: granted * cost,
        left: (granted - 1) * cost,
        interval,
        departsAt: verdict.delay + cost * interval,
      },
    ]
  })
}

/** How long a unit of a queue takes (µs); an override of the caller has another limit in the same period. */
function intervalOf({ rule: { quota, limit } }: BoundRule, verdict: Verdict): number {
  return (quota.period / quota.rate) * (limit / verdict.rule.limit)
}

/** Takes the units of a request. @returns µs until it may depart, by the tag of a queue */
export function take(
  { units, answeredAt }: Lot,
  rules: readonly BoundRule[],
  time: number,
): Map<string, number> {
  const elapsed = microseconds(time - answeredAt)
  const delays = new Map<string, number>()
  for (const each of units) {
    const { cost } = rules[each.place]!
    each.left -= cost
    if (each.interval === 0) continue
    // What was not used in time departs no closer together for that.
    const departsAt = Math.max(each.departsAt, elapsed)
    each.departsAt = departsAt + cost * each.interval
    delays.set(each.bound.rule.tag, Math.ceil(departsAt - elapsed))
  }
  return delays
}

/** An answer of the store, with what is left here beside what is left there. */
export function withUnits<T extends Outcome>(outcome: T, lots: readonly Lot[]): T {
  const left = new Map<string, number>()
  for (const { units } of lots)
    for (const { bound, left: more } of units)
      left.set(bound.rule.tag, (left.get(bound.rule.tag) ?? 0) + more)
  const verdicts = outcome.verdicts.map(verdict => {
    const { tag, quota } = verdict.rule
    // Of another window, or from before a reset, it does not make the budget larger.
    const remaining = Math.min(quota.burst, verdict.remaining + (left.get(tag) ?? 0))
    return { ...verdict, remaining }
  })
  return { ...outcome, verdicts }
}

/** Every other rule lets its requests go at once. */
export function withDelays(outcome: Outcome, delays: ReadonlyMap<string, number>): Outcome {
  const verdicts = outcome.verdicts.map(verdict => ({ ...verdict, delay: delays.get(verdict.rule.tag) ?? 0 }))
  return { ...outcome, verdicts }
}

export function refundOf({ demanded, outcome, units }: Lot, now: number | undefined): Refund {
  const { policy, subject } = demanded
  const { at, plan, consumer } = outcome
  const named = (key: string) =>
    consumer === undefined ? key : key.replace(UNKNOWN_CONSUMER_TAG, `{c:${consumer}}`)
  return {
    policy,
    rules: units.filter(isLeft).map(({ bound, left, spent }) => ({ ...bound, units: left, spent })),
    spentAt: at,
    consumerKey: subject && 'consumerKey' in subject ? named(subject.consumerKey) : undefined,
    plan: plan || demanded.plan,
    now,
  }
}
