/** The document about why a caller is refused, or that it is not. */
import type { RuleSwitch, Switch } from '../../switches/switches.ts'
import type { RefusedCaller } from '../top-callers.ts'
import type { WhyFacts } from '../why.ts'
import type { Verdict, WhyState } from '../why-verdict.ts'
import { type AuditEntryDocument, auditEntryDocument } from './audit.ts'
import { type Json, toJson } from './json.ts'
import { retryAfterMs } from './limits.ts'

export interface WhyDocument {
  caller: string
  kind: WhyFacts['kind']
  state: WhyState
  /** The reason, in one sentence of English. */
  sentence: string
  plan: string | null
  blockedAt: string | null
  /** Names of the rules that overrides of the consumer change. */
  overrides: string[]
  /** Only some keys of the consumer were looked at: 100. Absent: all of them, or the question is about one key. */
  hasMoreKeys?: true
  kill: Json<Switch> | null
  rules: {
    rule: string
    mode: 'enforce' | 'shadow'
    limit: number
    cost: number
    allowed: boolean
    remaining: number
    /** -1: never. */
    retryAfterMs: number
    /** Of a limit by name that is paused. */
    pausedUntil?: string
    switch?: Json<RuleSwitch>
  }[]
  /** What is on record of the last day. */
  refusals: (Json<Omit<RefusedCaller, 'name'>> & { rule: string; mode: 'enforce' | 'shadow' })[]
  /** Rules that count by more, so they could not be asked. */
  notAsked: string[]
  /** The last change of a consumer. null: none is on record. The HTTP API leaves it out, because it needs another scope. */
  lastChange?: AuditEntryDocument | null
  /** The changes of a consumer around its first refusal, or the last ones; the newest first. As `lastChange`, not in the HTTP API. */
  changes?: AuditEntryDocument[]
}

export function whyDocument(facts: WhyFacts, { state, sentence }: Verdict): WhyDocument {
  const {
    caller,
    kind,
    key,
    plan,
    consumer,
    rules,
    refusals,
    otherMode,
    notAsked,
    switches,
    lastChange,
    changes,
  } = facts
  return toJson({
    ...{ caller, kind, state, sentence, plan: plan ?? null },
    blockedAt: consumer?.record.blockedAt ?? null,
    overrides: consumer?.record.overrides.map(({ rule }) => rule) ?? [],
    ...(consumer?.hasMoreKeys && !key && { hasMoreKeys: true }),
    kill: switches.kill ?? null,
    rules: rules.map(
      ({ name, mode, rule, cost, allowed, remaining, retryAfter, pausedUntil, switch: own }) => ({
        ...{ rule: name, mode, limit: rule.limit, cost, allowed, remaining },
        retryAfterMs: retryAfterMs(retryAfter),
        ...(pausedUntil && { pausedUntil }),
        ...(own && { switch: own }),
      }),
    ),
    refusals: [...refusals, ...(otherMode?.refusals ?? [])].map(
      ({ rule, mode, refused: { name: _, ...refused } }) => ({
        rule,
        mode,
        ...refused,
      }),
    ),
    notAsked: [...notAsked.keys()],
    ...(lastChange !== undefined && { lastChange: lastChange && auditEntryDocument(lastChange) }),
    ...(changes && { changes: changes.map(auditEntryDocument) }),
  })
}
