/** The parts of the wire format that the scripts share: keys, marks, arguments of rules, and checks of replies. */
import type { Holding } from '../algorithms/algorithm.ts'
import { GatewayError } from '../errors.ts'
import type { BoundRule } from './evaluation.ts'
import { MARKS } from './marks.ts'
import type { Policy } from './policy-shape.ts'

/** A rule in one call. */
type CallRule = Pick<BoundRule, 'rule' | 'key' | 'ownKey' | 'ends' | 'holding' | 'mode' | 'staysShadow'>

/** The rules of one call, in the slots of the policy. */
export interface PlacedRules<T extends CallRule> {
  /** The rule of each slot; undefined if it is not part of the call. */
  bySlot: readonly (T | undefined)[]
  /** The keys after the records of the caller: each state with the keys of its rules, then the long logs. */
  keys: string[]
  /** ARGV[2] (decide.ts). */
  marks: string
  /** The argument of each rule that has one: the ends of calendar windows, or the units that the isolate holds. */
  ruleArguments: string[]
}

/**
 * Puts the rules of a call into the slots of the policy.
 * @param applies a rule that does not apply is marked as absent, but the state of its identity is read
 * @throws Error if two rules have the same identity in the policy and different keys, or the other way round
 */
export function placeRules<T extends CallRule>(
  policy: Policy,
  rules: readonly T[],
  applies: (rule: T) => boolean = () => true,
): PlacedRules<T> {
  const { slots } = policy
  const bySlot = new Array<T | undefined>(slots.length)
  for (const rule of rules) {
    // If a rule is there once for each plan, the one that applies takes the slot.
    const slot = policy.slotOf(rule.rule)
    if (!bySlot[slot] || applies(rule)) bySlot[slot] = rule
  }

  const keys: string[] = []
  const longLogs: string[] = []
  const ruleArguments: string[] = []
  const seen = new Set<string>()
  let marks = ''
  for (const ownSlots of slotsByIdentity(policy)) {
    let key: string | undefined
    let own = ''
    const ownKeys: string[] = []
    for (const i of ownSlots) {
      const rule = bySlot[i]
      own += rule && applies(rule) ? markOf(rule) : MARKS.absent
      if (!rule) continue
      if (key !== undefined && key !== rule.key) throw new Error('Rules of one identity have several keys.')
      key = rule.key
      if (slots[i]!.own === 'whole') ownKeys.push(rule.ownKey!)
    }
    marks += key === undefined ? MARKS.absent : MARKS.present
    marks += own
    if (key === undefined) continue
    if (seen.has(key)) throw new Error('Rules of several identities have one key.')
    seen.add(key)
    keys.push(key, ...ownKeys)
  }
  slots.forEach(({ own, argument }, i) => {
    const rule = bySlot[i]
    if (own === 'parts' && rule) longLogs.push(rule.ownKey!)
    if (argument === 'ends') ruleArguments.push(rule?.ends?.join(' ') ?? '')
    if (argument === 'holding') ruleArguments.push(formatHolding(rule?.holding))
  })
  return { bySlot, keys: [...keys, ...longLogs], marks, ruleArguments }
}

/** The slots of each identity, by policy. Computed once. */
const slotsOfPolicies = new WeakMap<Policy, number[][]>()

/** The slots of each identity. */
function slotsByIdentity(policy: Policy): number[][] {
  let byIdentity = slotsOfPolicies.get(policy)
  if (!byIdentity) {
    const { slots, identities } = policy
    byIdentity = Array.from({ length: identities }, (_, identity) =>
      slots.flatMap((slot, i) => (slot.identity === identity ? [i] : [])),
    )
    slotsOfPolicies.set(policy, byIdentity)
  }
  return byIdentity
}

function markOf({ mode, staysShadow }: CallRule): string {
  if (mode === 'enforce') return MARKS.enforce
  return staysShadow ? MARKS.staysShadow : MARKS.shadow
}

/** `<holder> <epoch> <started> <ended>`, and the current limit if it adapts: `aB3dE6gH 7 12 9`. concurrency.lua reads it. */
export function formatHolding(holding: Holding | undefined): string {
  if (!holding) return ''
  const { holder, epoch, started, ended, limit } = holding
  return `${holder} ${epoch} ${started} ${ended}${limit === undefined ? '' : ` ${limit}`}`
}

/** A time as an argument; '' for the clock of the store. */
export const formatTime = (time: number | undefined) => (time === undefined ? '' : String(time))

/** The largest time or amount; the config check ensures it. */
const MAX_FIELD = 2 ** 52
/** The smallest value of a field: retry_after of a rule that does not apply. */
const MIN_FIELD = -2

/** Whether a value of a reply is an integer in range. */
export function isField(field: unknown): field is number {
  return Number.isInteger(field) && (field as number) >= MIN_FIELD && (field as number) <= MAX_FIELD
}

/** Checks that all values of a reply are integers in range. @throws GatewayError ERR_STORE_REPLY_INVALID */
export function checkFields(values: readonly unknown[]): readonly number[] {
  if (!values.every(isField)) throw invalidReply('a field that is not an integer in range')
  return values
}

const MAX_REMAINING = 2e9

/** Checks the state of a rule in a reply. @throws GatewayError ERR_STORE_REPLY_INVALID */
export function checkStanding(remaining: number, resetAfter: number, delay: number): void {
  if (remaining < 0 || remaining > MAX_REMAINING) throw invalidReply('more left than any limit allows')
  if (resetAfter < 0 || delay < 0) throw invalidReply('a negative time')
}

/** The error for an invalid reply. @param what the reply has: `no list` */
export function invalidReply(what: string): GatewayError {
  return new GatewayError('ERR_STORE_REPLY_INVALID', `The store's reply has ${what}.`)
}
