/**
 * The wire format of the script for messages: an isolate reports the units that it holds, without a request to decide. A message reports
 * released units, or renews held ones. All policies share this script (sync-text.ts). docs/concurrency.md describes the messages.
 *
 *     KEYS     the own keys of `concurrency` rules
 *     ARGV[1]  now in microseconds, or '' for the clock of the store
 *     ARGV     then three values for each key: the units that the isolate holds, as in decide.ts; how long they stay without another
 *              message (µs); and '', or '<units> <limit> <least>': the units that the isolate wants in advance, the limit, and the
 *              least number of holders for a grant
 *
 *     reply    { now, then for each key: the units granted in advance, the number of holders, the units in flight }
 *
 * Commands: TIME (unless now is given), MGET, and for each key one SETEX, or with many holders one BITFIELD.
 */
import type { Holding } from '../algorithms/algorithm.ts'
import type { AdvanceRequest, MessageAnswer } from '../algorithms/concurrency.ts'
import type { Script, ScriptCall } from '../store/store.ts'
import { checkFields, formatHolding, formatTime, invalidReply } from './wire.ts'

/** The units that an isolate holds of one identity under one rule. */
export interface Message {
  /** The rule's own key (`BoundRule.ownKey`). */
  key: string
  holding: Holding
  /** How long the units stay without another message (µs). */
  ttl: number
  /** The units that the isolate wants in advance. Absent: none. */
  want?: AdvanceRequest
}

/** Encodes messages as one call of the script. @param now µs since the epoch; absent: the clock of the store */
export function encodeSync(script: Script, messages: readonly Message[], now?: number): ScriptCall {
  return {
    script,
    keys: messages.map(({ key }) => key),
    args: [
      formatTime(now),
      ...messages.flatMap(({ holding, ttl, want }) => [
        formatHolding(holding),
        String(ttl),
        want ? `${want.units} ${want.limit} ${want.minHolders}` : '',
      ]),
    ],
  }
}

/**
 * Decodes the reply to messages.
 * @returns the answer to each message
 * @throws GatewayError ERR_STORE_REPLY_INVALID for any reply that the script cannot have sent
 */
export function decodeSync(reply: unknown, messages: readonly Message[]): MessageAnswer[] {
  if (!Array.isArray(reply) || reply.length !== 1 + 3 * messages.length)
    throw invalidReply('no time and answers')
  const fields = checkFields(reply)
  if (fields.some(field => field < 0)) throw invalidReply('a negative number')
  return messages.map(({ want }, i) => {
    const [granted, holders, inFlight] = fields.slice(3 * i + 1, 3 * i + 4) as [number, number, number]
    if (granted > (want?.units ?? 0)) throw invalidReply('more units than were wanted')
    return { granted, holders, inFlight }
  })
}
