/** The parts of the wire format that the scripts share: keys, marks, arguments of rules, and checks of replies. */
import type { Holding } from '../algorithms/algorithm.ts'
import type { Rule } from '../config/compile-rule.ts'
import { GatewayError } from '../errors.ts'
import { chunksKey, overridesKey } from '../store/keys.ts'
import type { BoundRule } from './evaluation.ts'
import { MARKS } from './marks.ts'
import type { RuleSet } from './rule-set-shape.ts'

/** A rule in one call. */
type CallRule = Pick<
  BoundRule,
  'rule' | 'key' | 'sideKey' | 'ends' | 'holding' | 'wait' | 'mode' | 'staysShadow'
>

/** The rules of one call, in the order of the rule set's entries. */
export interface PlacedRules<T extends CallRule> {
  /** The rule of each entry; undefined if it is not part of the call. */
  byEntry: readonly (T | undefined)[]
  /** The keys after the records of the caller: each state with the keys of its rules, then the chunks of logs, then the reservations. */
  keys: string[]
  /** ARGV[2] (decide.ts). */
  marks: string
  /** The argument of each rule that has one: the ends of calendar windows, the units that the isolate holds, or a wait. */
  ruleArguments: string[]
}

/**
 * Puts the rules of a call in the order of the rule set's entries.
 * @param applies a rule that does not apply is marked as absent, but the state of its identity is read
 * @throws Error if two rules have the same identity in the rule set and different keys, or the other way round
 */
export function placeRules<T extends CallRule>(
  ruleSet: RuleSet,
  rules: readonly T[],
  applies: (rule: T) => boolean = () => true,
): PlacedRules<T> {
  const { entries } = ruleSet
  const byEntry = new Array<T | undefined>(entries.length)
  for (const rule of rules) {
    // A rule with numbers for several plans is there once for each of them. The one that applies is used.
    const index = ruleSet.entryOf(rule.rule)
    if (!byEntry[index] || applies(rule)) byEntry[index] = rule
  }

  const keys: string[] = []
  const chunks: string[] = []
  const ruleArguments: string[] = []
  const seen = new Set<string>()
  let marks = ''
  for (const indexes of entriesByIdentity(ruleSet)) {
    let key: string | undefined
    let own = ''
    const sideKeys: string[] = []
    for (const i of indexes) {
      const rule = byEntry[i]
      own += rule && applies(rule) ? markOf(rule) : MARKS.absent
      if (!rule) continue
      if (key !== undefined && key !== rule.key) throw new Error('Rules of one identity need one key.')
      key = rule.key
      if (entries[i]!.sideKey) sideKeys.push(rule.sideKey!)
    }
    marks += key === undefined ? MARKS.absent : MARKS.present
    marks += own
    if (key === undefined) continue
    if (seen.has(key)) throw new Error('Rules of different identities need different keys.')
    seen.add(key)
    keys.push(key, ...sideKeys)
  }
  entries.forEach(({ sideKey, argument }, i) => {
    const rule = byEntry[i]
    if (sideKey === 'log' && rule) chunks.push(chunksKey(rule.sideKey!))
    if (argument === 'ends') ruleArguments.push(rule?.ends?.join(' ') ?? '')
    if (argument === 'holding') ruleArguments.push(formatHolding(rule?.holding))
    if (argument === 'wait') ruleArguments.push(String(rule?.wait ?? ''))
  })
  return { byEntry, keys: [...keys, ...chunks], marks, ruleArguments }
}

/** The results of entriesByIdentity, which are computed once for each rule set. */
const entriesOfRuleSets = new WeakMap<RuleSet, number[][]>()

/** For each identity the indexes of its entries. */
function entriesByIdentity(ruleSet: RuleSet): number[][] {
  let byIdentity = entriesOfRuleSets.get(ruleSet)
  if (!byIdentity) {
    const { entries, identities } = ruleSet
    byIdentity = Array.from({ length: identities }, (_, identity) =>
      entries.flatMap((entry, i) => (entry.identity === identity ? [i] : [])),
    )
    entriesOfRuleSets.set(ruleSet, byIdentity)
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

/** The numbers that a call gives to its rules, as the record of a consumer has overrides (src/store/records.ts). '': it gives none. */
export const numbersOfCall = (rules: readonly { rule: Rule }[]): string =>
  rules.flatMap(({ rule: { ofCall } }) => (ofCall ? `override=${ofCall.override}` : [])).join(' ')

/** The keys of the overrides of the identities of a call, before its states. The gateway has the record of the consumer there. */
export const overridesKeys = (
  { overridable, entries, entryOf }: RuleSet,
  rules: readonly { rule: Rule; key: string }[],
): string[] =>
  (overridable ?? []).flatMap(identity =>
    rules
      .filter(({ rule }) => entries[entryOf(rule)]!.identity === identity)
      .slice(0, 1)
      .map(({ key }) => overridesKey(key)),
  )

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

/**
 * The limit and burst of an override, as its record has them; undefined: it has no other numbers.
 * @param shown the rule of a verdict
 * @param rule that was bound
 */
export const writtenNumbers = (shown: Rule, rule: Rule): string | undefined =>
  shown === rule ? undefined : `${shown.limit},${shown.quota.burst}`

/**
 * For each of the entries that overrides or calls can change: the `written` of its rule, or ''.
 * @param places indexes of entries
 */
export function writtenOf(
  { entries, entryOf }: RuleSet,
  rules: readonly { rule: Rule; written?: string | undefined }[],
  places: Iterable<number>,
): string[] {
  const overridable = [...places].filter(place => entries[place]!.takesOverrides)
  // A rule with numbers for several plans is in `rules` once for each of them, and only one has spent.
  const known = rules.flatMap(({ rule, written = rule.ofCall?.written }) =>
    written ? [[entryOf(rule), written] as const] : [],
  )
  return overridable.map(place => known.find(([entry]) => entry === place)?.[1] ?? '')
}
