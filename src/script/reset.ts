/** Encodes calls of reset.lua, and decodes its replies. reset.lua describes the wire format. */

import { chunksKey, overridesKey, reservedKey } from '../store/keys.ts'
import type { Script, ScriptCall } from '../store/store.ts'
import { CONSTANTS } from './constants.ts'
import { createScript } from './create-script.ts'
import type { BoundRule, Verdict } from './evaluation.ts'
import { PRELUDE, RESET as TEXT } from './lua.generated.ts'
import { expandMacros, replaceWords } from './lua-text.ts'
import type { ChangeResult } from './refund.ts'
import { formatTime, invalidReply, isField } from './wire.ts'

/** The rules to reset. Their whole budget becomes available again. */
export interface Reset {
  rules: readonly Pick<BoundRule, 'rule' | 'key' | 'sideKey' | 'mode'>[]
  /** µs since the epoch. Absent: the clock of the store. */
  now?: number | undefined
}

/** One script for all rule sets, because it removes records by their tags and needs no numbers of rules. */
export const RESET = /* @__PURE__ */ (() => createScript(resetText()))()

/** The text of the script. */
export function resetText(): string {
  return `local now = ARGV[2]\n${PRELUDE}${replaceWords(expandMacros(TEXT), word => CONSTANTS.get(word))}`
}

/** Encodes a reset as a call of the script. */
export function encodeReset({ rules, now }: Reset, script: Script): ScriptCall {
  const states = [...new Set(rules.map(({ key }) => key))]
  const sideKeys = rules.flatMap(({ sideKey, rule }) =>
    sideKey === undefined ? [] : rule.counting.state === 'log' ? [sideKey, chunksKey(sideKey)] : [sideKey],
  )
  // Reservations of before the reset must not be settled after it: their units may have been spent again.
  const reservations = rules.flatMap(({ rule, key }) => (rule.settlement ? [reservedKey(key)] : []))
  const tags = rules.flatMap(({ key, rule: { tag, settlement } }) => {
    const state = String(states.indexOf(key) + 1)
    return [state, tag, ...(settlement ? [state, '*'] : [])]
  })
  const keys = [...states, ...new Set([...sideKeys, ...reservations])]
  const overridable = rules.filter(({ rule }) => rule.isOverridable)
  const records = [...new Set(overridable.map(({ key }) => overridesKey(key)))]
  const overrides = overridable.flatMap(({ key, rule: { family } }) => [
    String(states.indexOf(key) + 1),
    `${keys.length + records.indexOf(overridesKey(key)) + 1} =${family},`,
  ])
  const counts = [states.length, ...(records.length > 0 ? [keys.length] : [])]
  return {
    script,
    keys: [...keys, ...records],
    args: [counts.join(' '), formatTime(now), ...tags, ...overrides],
  }
}

/**
 * Decodes the reply to a reset.
 * @throws GatewayError ERR_STORE_REPLY_INVALID for any reply that reset.lua cannot have sent
 */
export function decodeReset(reply: unknown, { rules }: Reset): ChangeResult {
  const [at] = Array.isArray(reply) ? (reply as unknown[]) : []
  if (!isField(at) || at < 0) throw invalidReply('no time')
  const verdicts = rules.map(
    ({ rule, mode }): Verdict => ({
      ...{ rule, mode, allowed: true, remaining: rule.quota.burst },
      ...{ resetAfter: 0, retryAfter: 0, delay: 0 },
    }),
  )
  return { at, verdicts }
}
