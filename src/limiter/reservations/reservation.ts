/** What a request has reserved in the store until its cost is known. Pure. */
import { randomName } from '../../base62.ts'
import { appliesToPlan, knownPlan, type Rule } from '../../config/compile-rule.ts'
import type { RememberedCaller } from '../../credentials/caller-memory.ts'
import {
  type BoundRule,
  consumerKeyOf,
  type Evaluation,
  type Outcome,
  verdictOf,
} from '../../script/evaluation.ts'
import type { RuleSet } from '../../script/rule-set-shape.ts'
import {
  type SettledAmount,
  type SettledRule,
  type Settlement,
  UNKNOWN_NUMBERS,
} from '../../script/settle.ts'
import { writtenNumbers } from '../../script/wire.ts'
import { isConsumerKnown, withConsumer } from '../../store/keys.ts'
import { bindRule } from '../bind.ts'

/** Plain data: any isolate can settle it. */
export interface Reservation {
  /** Twelve random base62 letters. */
  readonly id: string
  readonly ruleSet: RuleSet
  /** The rules that have reserved; at least one. */
  readonly rules: readonly ReservedRule[]
  /** Key of the record of the consumer that the rules are counted for. */
  readonly consumerKey?: string | undefined
  /** The plan under which the request was counted. */
  readonly plan?: string | undefined
  /** When it was admitted, by the clock of the store (µs). */
  readonly spentAt: number
  /** Whether it has also reserved under rules that a later deployment has removed, or whose record is another one now. Then the store finds it by its id alone. */
  readonly isPartial?: boolean
}

export interface ReservedRule extends Pick<SettledRule, 'rule' | 'key' | 'mode' | 'written'> {
  /** Units. */
  readonly reserved: number
}

/**
 * Returns what a request has cost under a rule, in the rule's unit; undefined: unknown, so the units that were reserved stay spent.
 * Fractions are rounded up.
 */
export type ActualOf = (rule: Rule) => number | undefined

/** How a request ends for its reservation. Absent: the reserved units stay spent. 'unsettled': the policy of each unit decides. */
export type Settling = ActualOf | 'unsettled'

/** The most units that a request can cost. */
const MAX_ACTUAL = 1e9

const ID_LENGTH = 12

/** Whether a request reserves units. */
export const reserves = (rules: readonly BoundRule[]) =>
  rules.some(({ rule, role }) => rule.settlement !== undefined && role === 'spend')

export const newReservationId = () => randomName(ID_LENGTH)

/** What a decision has reserved; undefined: nothing. */
export function reservationOf(
  { reservationId: id, ruleSet, rules: bound, subject, plan }: Evaluation,
  { status, verdicts, consumer, plan: planOfCaller, at }: Outcome,
): Reservation | undefined {
  if (id === undefined || status !== 'admitted') return undefined
  const rules = bound.flatMap(({ rule, key, mode }): ReservedRule[] => {
    const verdict = verdictOf(rule, verdicts)
    if (!verdict?.reserved) return []
    const written = writtenNumbers(verdict.rule, rule)
    return [
      {
        ...{ rule, key: withConsumer(key, consumer), mode, reserved: verdict.reserved },
        ...(written && { written }),
      },
    ]
  })
  if (rules.length === 0) return undefined
  const consumerKey = consumerKeyOf(subject, consumer)
  return { id, ruleSet, rules, consumerKey, plan: planOfCaller || plan, spentAt: at }
}

/**
 * What a decision may have reserved whose reply was lost. It is settled by its id alone.
 * @param seen the last answers of the store about the credential
 * @returns undefined: nothing, or the isolate does not know of which consumer or under which plan
 */
export function lostReservationOf(
  { reservationId: id, ruleSet, rules: bound, subject, plan: planOfHook }: Evaluation,
  seen: RememberedCaller | undefined,
): Reservation | undefined {
  const known = subject?.kind === 'token' ? subject.plan || seen?.plan : subject ? seen?.plan : planOfHook
  if (id === undefined || (subject && known === undefined && ruleSet.plans.length > 0)) return undefined
  const plan = subject ? knownPlan(ruleSet.plans, known) : known
  const keyOf = (key: string) => withConsumer(key, seen?.consumer)
  const consumerKey = consumerKeyOf(subject, seen?.consumer)
  const rules = bound.flatMap(({ rule, role, key, mode, cost }): ReservedRule[] =>
    rule.settlement && role === 'spend' && cost > 0 && appliesToPlan(rule, plan)
      ? [{ rule, key: keyOf(key), mode, reserved: 0, written: UNKNOWN_NUMBERS }]
      : [],
  )
  const isKnown = [...rules.map(({ key }) => key), consumerKey ?? ''].every(isConsumerKnown)
  return rules.length > 0 && isKnown ? { id, ruleSet, rules, consumerKey, plan, spentAt: 0 } : undefined
}

/**
 * The amounts of a settlement. An amount that no request can cost counts as unknown: the store would refuse it, and with it the
 * settlements of other requests.
 */
export const amountsOf = ({ rules }: Reservation, actualOf: ActualOf | undefined): SettledAmount[] =>
  rules.map(({ rule, reserved }) => {
    const actual = actualOf?.(rule) ?? reserved
    return { reserved, actual: actual >= 0 ? Math.min(Math.ceil(actual), MAX_ACTUAL) : reserved }
  })

/** Reservations with the same key are settled in one call: the same rules, overrides, identities, plan and consumer. Keys contain no line break. */
export function callKeyOf({ rules, plan = '', consumerKey = '' }: Reservation): string {
  let key = `${plan}\n${consumerKey}`
  for (const { rule, key: stateKey, written = rule.ofCall?.written ?? '' } of rules)
    key += `\n${rule.tag} ${written} ${stateKey}`
  return key
}

/**
 * The settlement without its requests.
 * @param nowMs by the clock of this machine, to select the calendar windows
 */
export const settlementFor = (
  { ruleSet, rules, consumerKey, plan }: Reservation,
  nowMs: number,
): Omit<Settlement, 'requests' | 'now'> => ({
  ...{ ruleSet, consumerKey, plan },
  rules: rules.map(({ rule, key, mode, written }) => ({ ...bindRule(rule, key, 0, nowMs, mode), written })),
})

/**
 * After which time without a renewal it may end at the earliest, and at the latest (ms). What is reserved of one identity ends together,
 * after the longest ttl of its rules.
 */
export const firstEndMs = ({ rules }: Reservation) => Math.min(...rules.map(({ rule }) => ttlOf(rule)))
export const lastEndMs = ({ ruleSet }: Reservation) => Math.max(...ruleSet.entries.map(ttlOf))

const ttlOf = ({ settlement }: Pick<Rule, 'settlement'>) => settlement?.ttlMs ?? 0
