/** Binds a rule to an identity, for one request. Pure. */

import type { Rule } from '../config/compile-rule.ts'
import { finalizeHash, fnv1a } from '../hash.ts'
import type { BoundRule } from '../script/evaluation.ts'
import { isConsumerKnown, ownKey } from '../store/keys.ts'

/**
 * Binds a rule to an identity.
 * @param key of the state of the identity
 * @param cost in units; with cost 0 the rule only reports its state
 * @param nowMs by the clock of this machine. It only selects the calendar windows to send; the store picks one of them by its own clock
 * @param mode by default that of the config
 */
export function bindRule(
  rule: Rule,
  key: string,
  cost: number,
  nowMs: number,
  mode = chooseMode(rule, key),
): BoundRule {
  const { calendar } = rule
  return {
    rule,
    key,
    cost,
    role: cost === 0 ? 'peek' : 'spend',
    mode,
    ...withOwnKey(rule, key),
    ...(calendar && { ends: calendar.windowEnds(calendar.period, calendar.timeZone, nowMs) }),
  }
}

function withOwnKey({ counting: { state }, tag }: Rule, key: string): { ownKey?: string } {
  return state === 'log' || state === 'held' ? { ownKey: ownKey(key, state, tag) } : {}
}

/** The mode of a rule for this identity: `enforce` if the rule is enforced and the identity is in its share of callers. */
export function chooseMode(
  rule: Pick<Rule, 'name' | 'mode' | 'enforcedShare'>,
  key: string,
): BoundRule['mode'] {
  return rule.mode === 'enforce' && isInShare(rule.enforcedShare, rule.name, key) ? 'enforce' : 'shadow'
}

/**
 * Whether an identity is in the share of callers for whom a rule is enforced. A hash of rule and identity gives each identity a
 * fixed position from 0 to 1. So a growing share keeps the identities that it had, and two rules start with different callers.
 */
function isInShare(share: number, name: string, key: string): boolean {
  // If only the store knows the consumer, its position is unknown here, and it may be outside the share.
  if (!isConsumerKnown(key)) return share >= 1
  return share >= 1 || (share > 0 && finalizeHash(fnv1a(`${name} ${key}`)) / 2 ** 32 < share)
}
