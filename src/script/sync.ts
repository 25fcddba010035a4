/**
 * The wire of the script that receives what an isolate holds, without a request to decide: that units are free again, or are still
 * held. One script for all policies (sync-text.ts).
 *
 *     KEYS     of rules that count what is in flight
 *     ARGV[1]  now in microseconds, or '' for the clock of the store
 *     ARGV     then three values a key: what the isolate holds, as in decide.ts; how long it is held without another message (µs);
 *              and '' or '<units> <limit> <least>': how many units it wants in advance, under which limit, and how many holders
 *              there must be at least
 *
 *     reply    { now, then of each key: how many units are granted in advance, how many holders there are, what is in flight }
 *
 * Commands: TIME (unless now is given), MGET, and a SETEX for each key; of many holders two SETRANGE, and at times EXPIRE.
 */
import type { Holding } from '../algorithms/algorithm.ts'
import type { Received, Want } from '../algorithms/concurrency.ts'
import type { Script, ScriptCall } from '../store/store.ts'
import { checkFields, formatHolding, formatTime, invalidReply } from './wire.ts'

/** What an isolate holds of one identity under one rule. */
export interface Message {
  /** Key of the rule (`ownKey`). */
  key: string
  holding: Holding
  /** How long it is held without another message (µs). */
  ttl: number
  /** Units that it wants in advance. */
  want?: Want
}

/** @param now µs since the epoch; absent: the clock of the store */
export function encodeSync(script: Script, messages: readonly Message[], now?: number): ScriptCall {
  return {
    script,
    keys: messages.map(({ key }) => key),
    args: [
      formatTime(now),
      ...messages.flatMap(({ holding, ttl, want }) => [
        formatHolding(holding),
        String(ttl),
        want ? `${want.units} ${want.limit} ${want.leastHolders}` : '',
      ]),
    ],
  }
}

/**
 * @returns what the store has answered to each message
 * @throws GatewayError ERR_STORE_REPLY_INVALID for any reply that the script cannot have sent
 */
export function decodeSync(reply: unknown, messages: readonly Message[]): Received[] {
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
