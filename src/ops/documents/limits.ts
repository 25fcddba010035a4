/** Documents about what is left of limits, and about resets and corrections. */
import { descriptionOf } from '../../algorithms/index.ts'
import { unitsAtOnce } from '../../algorithms/units-at-once.ts'
import type { Rule } from '../../config/compile.ts'
import type { LimitIdentity } from '../../set-ups/limits/limiter.ts'
import type { CallerIdentity } from '../caller-identity.ts'
import type { Correction } from '../corrections.ts'
import type { CallerReset, CallerStandings, RuleStanding, Usage } from '../limits.ts'
import { type Json, toJson } from './json.ts'

/** What a rule has left for an identity, in the unit of the rule, and its verdict about a request now. */
export interface StandingDocument extends Partial<UsageDocument> {
  rule: string
  on: 'request' | 'auth-failure'
  mode: 'enforce' | 'shadow'
  unit: string
  limit: number
  /** What can be spent at once, under the name that the algorithm has for it. */
  burst?: number
  queue?: number
  cost: number
  allowed: boolean
  remaining: number
  /** When the whole budget is available again. */
  resetAfterMs: number
  /** When the request would be admitted. -1: never. */
  retryAfterMs: number
}

/** Of a rule that is settled later. */
export interface UsageDocument {
  used: number
  /** What requests that are not settled yet have reserved. */
  reserved: number
  reservedRequests: number
  /** There are more reservations than were read. */
  reservedIsPartial?: true
  debt: number
}

export interface LimitDocument {
  limit: string
  by: Json<LimitIdentity>
  /** If it is paused: until then it refuses all calls, whatever its rules have left. */
  pausedUntil?: string
  rules: StandingDocument[]
}

/** What is left for a caller, whose parts are fields as well: `consumer`, `address`, … */
export interface CallerDocument {
  [part: string]: unknown
  /** null: an address without a credential. */
  plan: string | null
  /** With a consumer. null: it is not blocked. */
  blockedAt?: string | null
  /** With a consumer: other plans of its keys, which have other numbers. */
  plansOfKeys?: string[]
  rules: StandingDocument[]
  /** Rules that an override turns off. */
  off: string[]
  /** Rules that count by more than these parts. */
  notShown: string[]
  /** With a consumer: whether the store has a key or a setting of it. */
  isKnown?: boolean
}

/** With the parts of the caller as fields, or `limit` and `by`. */
export interface CorrectionDocument {
  [part: string]: unknown
  rule: string
  unit: string
  spent?: number
  givenBack?: number
  before: UsageDocument & { remaining: number }
  after: UsageDocument & { remaining: number }
}

/** The units that can be spent at once, under the name that the algorithm has for them (`burst` or `queue`). */
export function atOnceDocument(rule: Rule): { burst?: number; queue?: number } {
  const atOnce = unitsAtOnce(descriptionOf(rule).numbers, rule.quota.burst)
  return atOnce ? { [atOnce.parameter]: atOnce.units } : {}
}

export function standingDocument(standing: RuleStanding): StandingDocument {
  const { rule, cost, mode, allowed, remaining, resetAfter, retryAfter, usage } = standing
  return {
    rule: rule.name,
    on: rule.on,
    mode,
    unit: rule.unit,
    limit: rule.limit,
    ...atOnceDocument(rule),
    cost,
    allowed,
    remaining,
    resetAfterMs: Math.ceil(resetAfter / 1e3),
    retryAfterMs: retryAfterMs(retryAfter),
    ...(usage && usageDocument(usage)),
  }
}

/** @param retryAfter of a verdict (µs), below 0: never */
export const retryAfterMs = (retryAfter: number) => (retryAfter < 0 ? -1 : Math.ceil(retryAfter / 1e3))

export const usageDocument = ({
  used,
  reserved: { units, requests, isPartial },
  debt,
}: Usage): UsageDocument => ({
  used,
  reserved: units,
  reservedRequests: requests,
  ...(isPartial && { reservedIsPartial: true as const }),
  debt,
})

export const limitDocument = (
  limit: string,
  by: LimitIdentity,
  standings: readonly RuleStanding[],
): LimitDocument => {
  const pausedUntil = standings[0]?.pausedUntil?.toISOString()
  return {
    limit,
    by: toJson(by),
    ...(pausedUntil && { pausedUntil }),
    rules: standings.map(standingDocument),
  }
}

/** @param pausedUntil undefined: it is not paused */
export const limitPauseDocument = (limit: string, by: LimitIdentity, pausedUntil: Date | undefined) => ({
  ...{ limit, by: toJson(by), paused: pausedUntil !== undefined },
  ...(pausedUntil && { pausedUntil: pausedUntil.toISOString() }),
})

/** @param notShown rules that count by more */
export function callerDocument(
  identity: CallerIdentity,
  { plan, blockedAt, standings, off, plansOfKeys, otherConsumers }: CallerStandings,
  notShown: Iterable<string>,
): CallerDocument {
  const hasConsumer = identity.consumer !== undefined
  return {
    ...identity,
    plan: plan ?? null,
    ...(hasConsumer && { blockedAt: blockedAt?.toISOString() ?? null, plansOfKeys }),
    rules: standings.map(standingDocument),
    off: off.map(({ name }) => name),
    notShown: [...notShown],
    ...(hasConsumer && { isKnown: !otherConsumers }),
  }
}

/** @param rule the only one that was reset */
export const limitResetDocument = (limit: string, by: LimitIdentity, rule?: string) => ({
  ...{ limit, by: toJson(by) },
  ...(rule !== undefined && { rule }),
  reset: true as const,
})

export const callerResetDocument = (identity: CallerIdentity, { rules, notReset }: CallerReset) => ({
  ...identity,
  reset: true as const,
  rules,
  notReset,
})

/** @param target a limit by name with its identity, or the parts of a caller. @param units spent; below 0: given back */
export function correctionDocument(
  target: CallerIdentity | { limit: string; by: LimitIdentity },
  { name, unit }: Pick<Rule, 'name' | 'unit'>,
  units: number,
  { before, after }: Correction,
): CorrectionDocument {
  const standing = ({ usage, remaining }: RuleStanding) => ({ ...usageDocument(usage!), remaining })
  return {
    ...target,
    ...{ rule: name, unit },
    ...(units < 0 ? { givenBack: -units } : { spent: units }),
    ...{ before: standing(before), after: standing(after) },
  }
}
