/** Encodes calls of pause.lua, and decodes its replies. pause.lua describes the wire format. */

import { AUDIT_INDEX_KEY, AUDIT_KEY, auditKeyOf, type IdentityKey, inEnvironment } from '../store/keys.ts'
import { fitOneCall, type Script, type ScriptCall, type Store } from '../store/store.ts'
import { restoreScript } from './built-scripts.ts'
import { CONSTANTS } from './constants.ts'
import { createScript } from './create-script.ts'
import { AUDIT, PRELUDE, PAUSE as TEXT } from './lua.generated.ts'
import { expandMacros, replaceWords } from './lua-text.ts'
import { formatTime, invalidReply, isField } from './wire.ts'

/** A pause of an identity, or the end of its pause. */
export interface Pause {
  /** Key of its state. */
  key: IdentityKey
  /** µs. 0: ends the pause. A pause never ends one that is longer. */
  length: number
  /** µs since the epoch. Absent: the clock of the store. */
  now?: number | undefined
  entry: PauseEntry
}

/** The entry of the audit trail. */
export interface PauseEntry {
  /** Its stream. */
  stream: string
  /** As audit.lua takes them. */
  values: readonly string[]
}

/** All times are µs, by the clock of the store. */
export interface PauseResult {
  at: number
  /** When the pause of the identity ends. Absent: it is not paused. */
  pausedUntil?: number
}

/** One script for all limits. */
export const PAUSE = /* @__PURE__ */ (() => createScript(pauseText()))()

/** The text of the script. */
export function pauseText(): string {
  return `local now = ARGV[2]\n${AUDIT}${PRELUDE}${replaceWords(expandMacros(TEXT), word => CONSTANTS.get(word))}`
}

/** Encodes a pause as a call of the script. */
export function encodePause({ key, length, now, entry }: Pause, script: Script): ScriptCall {
  return {
    script,
    keys: [key, entry.stream],
    args: [String(Math.ceil(length)), formatTime(now), ...entry.values],
  }
}

/** @throws GatewayError ERR_STORE_REPLY_INVALID for any reply that pause.lua cannot have sent */
export function decodePause(reply: unknown): PauseResult {
  const [at, ends] = Array.isArray(reply) ? (reply as unknown[]) : []
  if (!isField(at) || at < 0) throw invalidReply('no time')
  if (!isField(ends) || ends < 0) throw invalidReply('no end of a pause')
  return { at, ...(ends > 0 && { pausedUntil: ends }) }
}

/** A test compares the digests with the text. */
export const listScript = /* @__PURE__ */ restoreScript({
  text: "redis.call('ZADD', KEYS[1], 'GT', ARGV[1], ARGV[2])",
  sha1: {
    keyLocking: 'd21e4e91ec3349811fbfaa2e47b5024ae67deddd',
    plain: 'c27fa77f167a34b3bbbd2e60e5209eea23ee11d0',
  },
})

/** The call that lists a stream beside that of the deployment, so that it is found. @param nowMs ms since the epoch */
export const listStream = (stream: string, environment: string | undefined, nowMs: number): ScriptCall => ({
  script: listScript(),
  keys: [AUDIT_INDEX_KEY],
  args: [nowMs.toFixed(), inEnvironment(stream, environment)],
})

/** The stream for an entry about a key, in the call that changes it: that of the deployment, or one that has to be listed. */
export const streamFor = (store: Store, key: string, ofDeployment = AUDIT_KEY): string =>
  fitOneCall(store, [key, ofDeployment]) ? ofDeployment : auditKeyOf(key)
