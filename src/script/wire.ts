/** What the scripts share on the wire: keys, marks, and rows of a reply. */
import type { Holding } from '../algorithms/algorithm.ts'
import { GatewayError } from '../errors.ts'
import type { BoundRule } from './evaluation.ts'
import { MARKS } from './marks.ts'
import type { Policy } from './policy-shape.ts'

/** A rule as it takes part in one call. */
type CallRule = Pick<BoundRule, 'rule' | 'key' | 'ownKey' | 'ends' | 'holding' | 'mode' | 'staysShadow'>

/** The rules of one call in the places of the policy. */
export interface PlacedRules<T extends CallRule> {
  /** By slot; undefined: it is not asked about. */
  bySlot: readonly (T | undefined)[]
  /** Behind the records: states, each with the keys of its rules; then the long logs. */
  keys: string[]
  /** For each identity whether it is asked about, then how each of its rules is marked. */
  marks: string
  /** The argument of each rule that has one: the ends of windows of a calendar, or what the isolate holds. */
  ruleArguments: string[]
}

/**
 * @param applies a rule that does not is marked as absent; the state of its identity is read all the same
 * @throws Error for rules that share an identity of the policy and not its key, or the other way round
 */
export function placeRules<T extends CallRule>(
  policy: Policy,
  rules: readonly T[],
  applies: (asked: T) => boolean = () => true,
): PlacedRules<T> {
  const { slots } = policy
  const bySlot = new Array<T | undefined>(slots.length)
  for (const asked of rules) {
    // Of the rows of several plans the one that applies.
    const slot = policy.slotOf(asked.rule)
    if (!bySlot[slot] || applies(asked)) bySlot[slot] = asked
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
      const asked = bySlot[i]
      own += asked && applies(asked) ? markOf(asked) : MARKS.absent
      if (!asked) continue
      if (key !== undefined && key !== asked.key) throw new Error('Rules of one identity have several keys.')
      key = asked.key
      if (slots[i]!.own === 'whole') ownKeys.push(asked.ownKey!)
    }
    marks += key === undefined ? MARKS.absent : MARKS.present
    marks += own
    if (key === undefined) continue
    if (seen.has(key)) throw new Error('Rules of several identities have one key.')
    seen.add(key)
    keys.push(key, ...ownKeys)
  }
  slots.forEach(({ own, argument }, i) => {
    const asked = bySlot[i]
    if (own === 'parts' && asked) longLogs.push(asked.ownKey!)
    if (argument === 'ends') ruleArguments.push(asked?.ends?.join(' ') ?? '')
    if (argument === 'holding') ruleArguments.push(formatHolding(asked?.holding))
  })
  return { bySlot, keys: [...keys, ...longLogs], marks, ruleArguments }
}

/** Plain data, made once for a policy. */
const slotsOfPolicies = new WeakMap<Policy, number[][]>()

/** For each identity its slots. */
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

/** `aB3dE6gH 7 12 9`, and behind it the limit if that adapts: its own words for it, which concurrency.lua reads. */
export function formatHolding(holding: Holding | undefined): string {
  if (!holding) return ''
  const { holder, epoch, started, ended, limit } = holding
  return `${holder} ${epoch} ${started} ${ended}${limit === undefined ? '' : ` ${limit}`}`
}

export const formatTime = (time: number | undefined) => (time === undefined ? '' : String(time))

/** No time or amount of Sluice is larger; the config check ensures it. */
const MAX_FIELD = 2 ** 52
/** The smallest that a field can be: -2 in the place of retry_after. */
const MIN_FIELD = -2

export function isField(field: unknown): field is number {
  return Number.isInteger(field) && (field as number) >= MIN_FIELD && (field as number) <= MAX_FIELD
}

/** @throws GatewayError ERR_STORE_REPLY_INVALID for anything that is not integers in range */
export function checkFields(values: readonly unknown[]): readonly number[] {
  if (!values.every(isField)) throw invalidReply('a field that is not an integer in range')
  return values
}

const MAX_REMAINING = 2e9

/** @throws GatewayError ERR_STORE_REPLY_INVALID */
export function checkStanding(remaining: number, resetAfter: number, delay: number): void {
  if (remaining < 0 || remaining > MAX_REMAINING) throw invalidReply('more left than any limit allows')
  if (resetAfter < 0 || delay < 0) throw invalidReply('a negative time')
}

export function invalidReply(what: string): GatewayError {
  return new GatewayError('ERR_STORE_REPLY_INVALID', `The store's reply has ${what}.`)
}
