/**
 * Every key of the store, in one place.
 *
 *     sluice:{c:<consumer>}:key:<sha256>   string  an API key's record: `plan=<plan> created=<time>`
 *     sluice:{c:<consumer>}:state          string  all counters of the consumer (src/lua/prelude.lua)
 *     sluice:{ip:<address>}:state          string  all counters of an address, or of an IPv6 /64
 *     sluice:{l:<limit>}:state             string  all counters of a limit by name that everybody shares
 *     sluice:{l:<limit>}:state:<identity>  string  the same of one identity: `account=42`, escaped
 *     …:state…:log:<tag>                   string  the log of one rule `sliding-log` (src/algorithms/sliding-log.lua)
 *
 * The braces put everything of one consumer, and everything of one limit, into one slot of a Redis Cluster. What stands
 * in a key is checked against a narrow alphabet (names), written by ourselves (addresses) or escaped (identities of
 * limits): no caller can put `{`, `}` or `:` into a key, or name another's.
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

/** @param identity parts in the order of the rule's `by`; none for what everybody shares */
export async function limitStateKey(
  limit: string,
  identity: readonly (readonly [part: string, value: string])[],
): Promise<string> {
  if (identity.length === 0) return `sluice:{l:${limit}}:state`
  const parts = await Promise.all(identity.map(async ([part, value]) => `${part}=${await escaped(value)}`))
  return `sluice:{l:${limit}}:state:${parts.join(',')}`
}

const MAX_ESCAPED = 100

/** Percent-encoded, and what is long or no text as `#` and its SHA-256: `#` itself is never left unescaped. */
async function escaped(value: string): Promise<string> {
  const text = value.isWellFormed() ? encodeURIComponent(value) : undefined
  if (text !== undefined && text.length <= MAX_ESCAPED) return text
  // UTF-16 as it is, so that broken surrogates stay apart.
  const units = Uint16Array.from({ length: value.length }, (_, i) => value.charCodeAt(i))
  const digest = await crypto.subtle.digest('SHA-256', units)
  return `#${Array.from(new Uint8Array(digest), byte => byte.toString(16).padStart(2, '0')).join('')}`
}

/** @param tag of the rule that keeps the log */
export function logKey(stateKey: string, tag: string): string {
  return `${stateKey}:log:${tag}`
}
