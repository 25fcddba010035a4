/** A rule as it is asked about in one request: for whom, at what cost, enforced or not. Pure. */
import { windowEnds } from '../algorithms/calendar.ts'
import type { Rule } from '../config/compile-rule.ts'
import { logKey, UNKNOWN_CONSUMER_TAG } from '../store/keys.ts'

export interface CountedRule {
  rule: Rule
  /** Key of the state it is counted in. */
  key: string
  /** Key of its log, where it keeps one. */
  logKey?: string
  /** Units; 0 peeks, below 0 gives back. */
  cost: number
  /** Of a cost below 0: the units that were spent, of which so many are given back (default: all of them). */
  spent?: number
  mode: 'enforce' | 'shadow'
  /** Of a shadow: no override of a consumer's enforces it, since it has been switched. */
  staysShadow?: boolean
  /** Ends of the calendar windows around now (µs), where it counts by the calendar. */
  ends?: readonly number[]
}

/**
 * @param key of the state of the identity it is counted for
 * @param nowMs by the clock of this machine: only for the windows of the calendar to choose from
 */
export function count(rule: Rule, key: string, cost = rule.quota.cost, nowMs = Date.now()): CountedRule {
  const { calendar } = rule
  return {
    rule,
    key,
    cost,
    mode: modeFor(rule, key),
    ...(rule.algorithm === 'sliding-log' && { logKey: logKey(key, rule.tag) }),
    ...(calendar && { ends: windowEnds(calendar.period, calendar.timeZone, nowMs) }),
  }
}

/** Enforced, or not for whom is counted in this state. */
export function modeFor(
  rule: Pick<Rule, 'name' | 'mode' | 'enforcedShare'>,
  key: string,
): CountedRule['mode'] {
  return rule.mode === 'enforce' && isWithin(rule.enforcedShare, rule.name, key) ? 'enforce' : 'shadow'
}

/**
 * Whether an identity is in the share of callers for whom a rule is enforced. Each has a fixed place from 0 to 1 under
 * each rule, so a share that grows keeps those it had, and two rules do not hit the same callers first.
 */
function isWithin(share: number, name: string, key: string): boolean {
  // Of a consumer that only the store knows nobody knows the place, and it may not be in the share.
  if (key.includes(UNKNOWN_CONSUMER_TAG)) return share >= 1
  return share >= 1 || (share > 0 && placeOf(`${name} ${key}`) < share)
}

/** FNV-1a with the finalizer of MurmurHash3, which spreads what differs in the last letters only. */
function placeOf(text: string): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return ((hash ^ (hash >>> 16)) >>> 0) / 2 ** 32
}
