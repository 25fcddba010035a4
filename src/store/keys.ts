/**
 * Every key of the store, in one place.
 *
 *     sluice:{c:<consumer>}:key:<sha256>   string  an API key's record: `plan=<plan> created=<time>`
 *     sluice:{c:<consumer>}:state          string  all counters of the consumer (src/lua/prelude.lua)
 *     sluice:{ip:<address>}:state          string  all counters of an address, or of an IPv6 /64
 *     …:state…:log:<tag>                   string  the log of one rule `sliding-log` (src/algorithms/sliding-log.lua)
 *
 * The braces put everything of one consumer into one slot of a Redis Cluster. What stands inside them is either
 * checked against a narrow alphabet (consumer names) or written by ourselves (addresses): no caller can put `{`,
 * `}` or `:` into a key, or name another's.
 */

export function credentialKey(consumer: string, digest: string): string {
  return `sluice:{c:${consumer}}:key:${digest}`
}

export function consumerStateKey(consumer: string): string {
  return `sluice:{c:${consumer}}:state`
}

export function addressStateKey(address: string): string {
  return `sluice:{ip:${address}}:state`
}

/** @param tag of the rule that keeps the log */
export function logKey(stateKey: string, tag: string): string {
  return `${stateKey}:log:${tag}`
}
