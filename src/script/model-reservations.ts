/** The reservations in the model of the scripts (settle.ts): members of sorted sets, as text, with the time of their end in ms. */
import type { RefundedUnits } from '../algorithms/algorithm.ts'
import type { Rule } from '../config/compile-rule.ts'
import { reservedKey } from '../store/keys.ts'
import type { BoundRule, Verdict } from './evaluation.ts'
import type { RuleEntry } from './rule-set-shape.ts'
import { writtenNumbers } from './wire.ts'

/** As in reservation-text.ts. */
const [MAX_ENDED, DROP_EVERY] = [2540, 32]

interface KeyedRule {
  key: string
  rule: Rule
}

/** The rules of an identity that reserve, whether they are part of a call or not. */
type Terms = readonly Pick<RuleEntry, 'family' | 'settlement'>[]

/**
 * Finds the rules of the identity that reserve.
 * @param rules those of the call
 * @param entries of the rule set; absent: the call has all rules
 */
function termsOf(key: string, rules: readonly KeyedRule[], entries?: readonly RuleEntry[]): Terms {
  const own = rules.filter(each => each.key === key).map(({ rule }) => rule)
  const entry = entries?.find(({ family }) => own.some(rule => rule.family === family))
  const all = entry ? entries!.filter(({ identity }) => identity === entry.identity) : own
  return all.filter(({ settlement }) => settlement)
}

/** What a request takes: at most the whole limit, if the estimate is clamped. */
const costIn = ({ rule: { settlement, quota }, cost }: BoundRule): number =>
  settlement?.aboveLimit === 'clamp' ? Math.min(cost, quota.burst) : cost

/** The units of a member, with the records of rates that are given back. */
function unitsText(rules: readonly { rule: Rule; reserved: number; record: string }[]): string {
  return rules
    .filter(({ reserved }) => reserved > 0)
    .toSorted((a, b) => (a.rule.family < b.rule.family ? -1 : 1))
    .map(({ rule, reserved, record }) => {
      const units = ` ${rule.family}=${reserved}`
      return isReleased(rule) && rule.counting.state === 'time' ? `${units} ${rule.family}~${record}` : units
    })
    .join('')
}

/** The record of a rule: its tag, or the limit and burst of an override. @param shown the rule without an override, or with its numbers */
const recordOf = (rule: Rule, shown: Rule): string => writtenNumbers(shown, rule) ?? rule.tag

/** Whether a member names another record of a rule. */
const hasOtherRecord = (member: string, { family }: Rule, record: string) =>
  (new RegExp(` ${family}~(\\S+)`).exec(member)?.[1] ?? record) !== record

/** The reservations that have ended, by the key of their set, and the units that each rule gets back. */
export interface Ended {
  byKey: ReadonlyMap<string, EndedOfIdentity>
  unitsOf(bound: BoundRule): RefundedUnits[]
  /** Whether more has ended than one call gives back. */
  hasMore(bound: BoundRule): boolean
}

interface EndedOfIdentity {
  members: readonly string[]
  hasMore: boolean
  /** The families that stay if a member is given back, because their rules are not part of the request. */
  absent: readonly string[]
}

const isReleased = ({ settlement }: Pick<Rule, 'settlement'>) => settlement?.onUnsettled === 'release'

const ttlOf = (terms: Terms) => Math.max(...terms.map(({ settlement }) => settlement!.ttlMs))
const endOf = (terms: Terms, now: number) => Math.floor(now / 1000) + ttlOf(terms)

/** The units of a rule in a member. */
const unitsIn = (member: string, { family }: Rule) =>
  Number(new RegExp(` ${family}=(\\d+)`).exec(member)?.[1] ?? 0)

interface SettleTerms {
  rules: readonly KeyedRule[]
  now: number
  entries?: readonly RuleEntry[] | undefined
}

export class ModelReservations {
  readonly #sets = new Map<string, Map<string, number>>()

  /**
   * @param applying the rules that apply to the caller
   * @param asked all rules of the call
   */
  findEnded(
    applying: readonly { bound: BoundRule; shown: Rule }[],
    asked: readonly KeyedRule[],
    now: number,
    entries?: readonly RuleEntry[],
  ): Ended {
    const byKey = new Map<string, EndedOfIdentity>()
    for (const key of new Set(asked.map(({ key }) => key))) {
      const released = termsOf(key, asked, entries).filter(isReleased)
      if (released.length === 0) continue
      const all = [...(this.#sets.get(reservedKey(key)) ?? [])]
        .filter(([, end]) => end <= Math.floor(now / 1000))
        .sort(([a, aEnd], [b, bEnd]) => aEnd - bEnd || (a < b ? -1 : 1))
        .map(([member]) => member)
      const present = new Set(applying.flatMap(({ bound }) => (bound.key === key ? [bound.rule.family] : [])))
      const [own, absent] = [true, false].map(isPresent =>
        released.flatMap(({ family }) => (present.has(family) === isPresent ? family : [])),
      ) as [string[], string[]]
      const members = all
        .slice(0, MAX_ENDED)
        .filter(member => own.some(family => member.includes(` ${family}=`)))
      byKey.set(key, { members, absent, hasMore: all.length >= MAX_ENDED })
    }
    return {
      byKey,
      hasMore: ({ key, rule }) => isReleased(rule) && (byKey.get(key)?.hasMore ?? false),
      unitsOf({ key, rule }) {
        if (!isReleased(rule)) return []
        const { shown } = applying.find(
          ({ bound }) => bound.key === key && bound.rule.family === rule.family,
        )!
        return (byKey.get(key)?.members ?? []).flatMap(member => {
          const units = unitsIn(member, rule)
          return units > 0 && !hasOtherRecord(member, rule, recordOf(rule, shown))
            ? [{ units, spent: units, spentAt: Number(member.split(' ')[1]) }]
            : []
        })
      },
    }
  }

  /** Drops the reservations that were given back. */
  dropGivenBack({ byKey }: Ended, now: number): void {
    for (const [key, { members, absent }] of byKey) {
      const set = this.#sets.get(reservedKey(key))
      for (const member of members) {
        set!.delete(member)
        const [id, spentAt, ...units] = member.split(' ')
        const others = units.filter(each => absent.includes(each.split('=')[0]!))
        if (others.length > 0) set!.set([id, spentAt, ...others].join(' '), Math.floor(now / 1000))
      }
    }
  }

  /** @returns the units that each rule has reserved */
  reserve(
    id: string,
    counted: readonly { bound: BoundRule; shown: Rule }[],
    verdicts: readonly Verdict[],
    { now, entries }: { now: number; entries?: readonly RuleEntry[] | undefined },
  ): number[] {
    const rules = counted.map(({ bound }) => bound)
    const reserved = rules.map((bound, i) =>
      id !== '' && bound.rule.settlement && bound.role === 'spend' && verdicts[i]!.allowed
        ? costIn(bound)
        : 0,
    )
    for (const key of new Set(rules.map(({ key }) => key))) {
      const own = counted.map(({ bound, shown }, i) => ({
        ...{ ...bound, reserved: reserved[i]!, record: recordOf(bound.rule, shown) },
      }))
      const units = unitsText(own.filter(bound => bound.key === key))
      if (units === '') continue
      const set = this.#sets.get(reservedKey(key)) ?? new Map<string, number>()
      set.set(`${id} ${now}${units}`, endOf(termsOf(key, rules, entries), now))
      this.#sets.set(reservedKey(key), set)
    }
    return reserved
  }

  /** Now and then, drops the reservations that have ended, if their units stay spent. Matters only if the clock is set back later. */
  dropEnded(key: string, rules: readonly KeyedRule[], now: number, entries?: readonly RuleEntry[]): void {
    if (now % DROP_EVERY !== 0 || termsOf(key, rules, entries).some(isReleased)) return
    const set = this.#sets.get(reservedKey(key))
    for (const [member, end] of set ?? []) if (end <= Math.floor(now / 1000)) set!.delete(member)
  }

  /** Drops all reservations of an identity: their units stay as they are. */
  drop = (key: string) => this.#sets.delete(reservedKey(key))

  /**
   * The reservation of a request whose reply was lost; undefined: it is not there.
   * @returns as `own` also whether another record has reserved than `record`
   */
  findLost<Own extends { rule: Rule; record: string }>(
    key: string,
    { id, lostForMs, own }: { id: string; lostForMs: number; own: readonly Own[] },
    { rules, now, entries }: SettleTerms,
  ): { spentAt: number; member: string; own: (Own & { reserved: number; isOther: boolean })[] } | undefined {
    const since = Math.floor(now / 1000) - Math.ceil(lostForMs) + ttlOf(termsOf(key, rules, entries))
    const members = [...(this.#sets.get(reservedKey(key)) ?? [])].filter(([, end]) => end >= since)
    const member = members.find(([member]) => member.startsWith(`${id} `))?.[0]
    if (member === undefined) return undefined
    return {
      spentAt: Number(member.split(' ')[1]),
      member,
      own: own.map(each => ({
        ...each,
        reserved: unitsIn(member, each.rule),
        isOther: hasOtherRecord(member, each.rule, each.record),
      })),
    }
  }

  /** @returns whether the reservation was there, and had not ended */
  settle(
    key: string,
    request: {
      id: string
      spentAt: number
      own: readonly { rule: Rule; reserved: number; record: string }[]
      isRenewal: boolean
      /** If it was found by its id. */
      member?: string
    },
    terms: SettleTerms,
  ): boolean {
    const { id, spentAt, own, isRenewal } = request
    const { rules, now, entries } = terms
    const units = unitsText(own)
    const { member = `${id} ${spentAt}${units}` } = request
    const set = this.#sets.get(reservedKey(key))
    const end = set?.get(member)
    if (units === '' || end === undefined || end <= now / 1000) return false
    if (!isRenewal) return set!.delete(member)
    set!.set(member, endOf(termsOf(key, rules, entries), now))
    return true
  }
}
