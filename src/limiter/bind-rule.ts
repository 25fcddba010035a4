/** From a rule and an identity to the rule as it takes part in one request. Pure. */

import type { Rule } from '../config/compile-rule.ts'
import { finalizeHash, fnv1a } from '../hash.ts'
import type { BoundRule } from '../script/evaluation.ts'
import { ownKey, UNKNOWN_CONSUMER_TAG } from '../store/keys.ts'

/**
 * @param key of the state of the identity
 * @param cost in units; a rule that costs nothing only reports how things stand
 * @param nowMs by the clock of this machine: it only chooses the calendar windows that are sent; the store picks one of them
 */
export function bindRule(
  rule: Rule,
  key: string,
  cost: number,
  nowMs: number,
  mode = modeFor(rule, key),
): BoundRule {
  const { calendar } = rule
  return {
    rule,
    key,
    cost,
    role: cost === 0 ? 'report' : 'spend',
    mode,
    ...withOwnKey(rule, key),
    ...(calendar && { ends: calendar.windowEnds(calendar.period, calendar.timeZone, nowMs) }),
  }
}

function withOwnKey({ counting: { state }, tag }: Rule, key: string): { ownKey?: string } {
  return state === 'log' || state === 'held' ? { ownKey: ownKey(key, state, tag) } : {}
}

/** Whether the rule is enforced for this identity. */
export function modeFor(rule: Pick<Rule, 'name' | 'mode' | 'enforcedShare'>, key: string): BoundRule['mode'] {
  return rule.mode === 'enforce' && isInShare(rule.enforcedShare, rule.name, key) ? 'enforce' : 'shadow'
}

/**
 * Whether an identity is in the share of callers for whom a rule is enforced. Each identity has a fixed place from 0 to 1
 * under each rule, so that a growing share keeps the identities it had, and two rules do not hit the same callers first.
 */
function isInShare(share: number, name: string, key: string): boolean {
  // Where only the store knows the consumer, its place is unknown here, and may be outside the share.
  if (key.includes(UNKNOWN_CONSUMER_TAG)) return share >= 1
  return share >= 1 || (share > 0 && finalizeHash(fnv1a(`${name} ${key}`)) / 2 ** 32 < share)
}
