/**
 * The wire format of the script for messages: an isolate reports the units that it holds, without a request to decide. A message reports
 * released units, or renews held ones. All rule sets share this script (sync-text.ts). docs/internals/concurrency.md describes the messages.
 *
 *     KEYS     the side keys of `concurrency` rules
 *     ARGV[1]  now in microseconds, or '' for the clock of the store
 *     ARGV     then two values for each key: the units that the isolate holds, as in decide.ts, and how long they stay without another
 *              message (µs)
 *
 *     reply    {now, units}: those that the record of the last key has now for its holder
 *
 * Commands: TIME (unless now is given), MGET, and for each key one SETEX, or with many holders one BITFIELD.
 */
import type { Holding } from '../algorithms/algorithm.ts'
import type { Script, ScriptCall } from '../store/store.ts'
import { formatHolding, formatTime, isField } from './wire.ts'

/** The units that an isolate holds of one identity under one rule. */
export interface Message {
  /** The rule's side key (`BoundRule.sideKey`). */
  key: string
  holding: Holding
  /** How long the units stay without another message (µs). */
  ttl: number
}

/** Encodes messages as one call of the script. @param now µs since the epoch; absent: the clock of the store */
export function encodeSync(script: Script, messages: readonly Message[], now?: number): ScriptCall {
  return {
    script,
    keys: messages.map(({ key }) => key),
    args: [formatTime(now), ...messages.flatMap(({ holding, ttl }) => [formatHolding(holding), String(ttl)])],
  }
}

/** Whether this is a reply to messages. Anything else does not show that they have arrived. */
export const isSyncReply = (reply: unknown): reply is readonly [now: number, units: number] =>
  Array.isArray(reply) && reply.length === 2 && reply.every(isField)
