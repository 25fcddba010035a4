/**
 * The wire of the script that receives what an isolate holds, without a request to decide: that units are free again, or are still
 * held. One script for all policies (sync-text.ts).
 *
 *     KEYS     of rules that count what is in flight
 *     ARGV[1]  now in microseconds, or '' for the clock of the store
 *     ARGV     then two values a key: what the isolate holds, as in decide.ts; how long it is held without another message (µs)
 *
 *     reply    { now }
 *
 * Commands: TIME (unless now is given), MGET, and a SETEX for each key.
 */
import type { Holding } from '../algorithms/algorithm.ts'
import type { Script, ScriptCall } from '../store/store.ts'
import { invalid, isField, textOf, textOfHolding } from './wire.ts'

/** What an isolate holds of one identity under one rule. */
export interface Message {
  /** Key of the rule (`ownKey`). */
  key: string
  holding: Holding
  /** How long it is held without another message (µs). */
  ttl: number
}

/** @param now µs since the epoch; absent: the clock of the store */
export function encodeSync(script: Script, messages: readonly Message[], now?: number): ScriptCall {
  return {
    script,
    keys: messages.map(({ key }) => key),
    args: [textOf(now), ...messages.flatMap(({ holding, ttl }) => [textOfHolding(holding), String(ttl)])],
  }
}

/** @throws GatewayError ERR_STORE_REPLY_INVALID for any reply that the script cannot have sent */
export function checkSynced(reply: unknown): void {
  const [at] = Array.isArray(reply) ? (reply as unknown[]) : []
  if (!isField(at) || at < 0) throw invalid('no time')
}
