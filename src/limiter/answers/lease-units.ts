/** The units of leases: how many a decision has spent in advance, how many requests use of them, and how many are given back. */
import { appliesToPlan } from '../../config/compile-rule.ts'
import {
  type BoundRule,
  consumerKeyOf,
  type Evaluation,
  type Outcome,
  verdictOf,
} from '../../script/evaluation.ts'
import type { Refund } from '../../script/refund.ts'
import { writtenNumbers } from '../../script/wire.ts'
import { withConsumer } from '../../store/keys.ts'

/** The units that one decision has spent in advance, beyond its own request. */
export interface LeaseGrant {
  readonly evaluation: Omit<Evaluation, 'now'>
  readonly outcome: Outcome
  readonly units: readonly LeasedUnits[]
  /** ms */
  readonly answeredAt: number
}

/** The units under one rule. */
export interface LeasedUnits {
  readonly bound: BoundRule
  /** Index of the rule in the demand. */
  readonly ruleIndex: number
  /** All units that the decision has spent, including those of its own request. */
  readonly spent: number
  /** The limit and burst of the override under which it has (`writtenNumbers`). */
  readonly written: string | undefined
  /** Unused units. */
  left: number
  /** For a queue (`leaky-bucket`): when the next request may depart (µs after the answer). */
  departsAt: number
  /** For a queue: the time between two units (µs). 0 for other rules. */
  readonly interval: number
}

/** Whether unused units can be given back. Places in a queue cannot. */
export const canGiveBack = ({ left, bound }: LeasedUnits) => left > 0 && !bound.rule.counting.isQueue

export const toMicroseconds = (ms: number) => Math.max(0, Math.floor(ms * 1e3))

/** How many requests like this one can be served from the units. */
export function countServable(grants: readonly LeaseGrant[], rules: readonly BoundRule[]): number {
  let requests = 0
  for (const { units } of grants)
    requests += Math.min(
      ...units.map(({ left, ruleIndex }) => Math.floor(left / Math.max(1, rules[ruleIndex]!.cost))),
    )
  return requests
}

/** The units that a decision has spent in advance, by rule. */
export function unitsSpentAhead(
  rules: readonly BoundRule[],
  { verdicts, plan, consumer, granted = 1 }: Outcome,
): LeasedUnits[] {
  return rules.flatMap((bound, ruleIndex): LeasedUnits[] => {
    const { rule, role, cost, key } = bound
    if (role !== 'spend' || rule.on === 'auth-failure' || !appliesToPlan(rule, plan)) return []
    const verdict = verdictOf(rule, verdicts)
    // A shadow rule that would refuse spends nothing.
    if (!verdict?.allowed) return []
    // An override changes the limit of a queue and not its period.
    const { period, rate } = rule.quota
    const interval = rule.counting.isQueue ? (period / rate) * (rule.limit / verdict.rule.limit) : 0
    return [
      {
        bound: { ...bound, key: withConsumer(key, consumer) },
        ruleIndex,
        spent: granted * cost,
        written: writtenNumbers(verdict.rule, rule),
        left: (granted - 1) * cost,
        interval,
        departsAt: verdict.delay + cost * interval,
      },
    ]
  })
}

/** Takes the units of a request. @param time ms @returns the delay until it may depart (µs), by the tag of a queue */
export function takeUnits(
  { units, answeredAt }: LeaseGrant,
  rules: readonly BoundRule[],
  time: number,
): Map<string, number> {
  const elapsed = toMicroseconds(time - answeredAt)
  const delays = new Map<string, number>()
  for (const leased of units) {
    const { cost } = rules[leased.ruleIndex]!
    leased.left -= cost
    if (leased.interval === 0) continue
    // Unused departures are lost: later requests do not depart closer together to make up for them.
    const departsAt = Math.max(leased.departsAt, elapsed)
    leased.departsAt = departsAt + cost * leased.interval
    delays.set(leased.bound.rule.tag, Math.ceil(departsAt - elapsed))
  }
  return delays
}

/**
 * Adds the unused leased units to `remaining` of the store's answer.
 * @param delays of queues, by tag, for a request that was served from the units. All other rules then have no delay
 */
export function addUnitsLeft(
  outcome: Outcome,
  grants: readonly LeaseGrant[],
  delays?: ReadonlyMap<string, number>,
): Outcome {
  const left = new Map<string, number>()
  for (const { units } of grants)
    for (const { bound, left: more } of units)
      left.set(bound.rule.tag, (left.get(bound.rule.tag) ?? 0) + more)
  const verdicts = outcome.verdicts.map(verdict => {
    const { tag, quota } = verdict.rule
    // Leased units may belong to an earlier window, or to the time before a reset, so the sum is capped at the burst.
    const remaining = Math.min(quota.burst, verdict.remaining + (left.get(tag) ?? 0))
    return { ...verdict, remaining, delay: delays ? (delays.get(tag) ?? 0) : verdict.delay }
  })
  return { ...outcome, verdicts }
}

/** The refund of the unused units. @param now µs; undefined: the clock of the store */
export function refundOfGrant({ evaluation, outcome, units }: LeaseGrant, now: number | undefined): Refund {
  const { ruleSet, subject } = evaluation
  const { at, plan, consumer } = outcome
  return {
    ruleSet,
    rules: units
      .filter(canGiveBack)
      .map(({ bound, left, spent, written }) => ({ ...bound, units: left, spent, written })),
    spentAt: at,
    consumerKey: consumerKeyOf(subject, consumer),
    plan: plan || evaluation.plan,
    now,
  }
}
