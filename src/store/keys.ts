/**
 * Every key of the store, in one place.
 *
 *     sluice:{c:<consumer>}:consumer       string  the consumer's record (src/store/records.ts)
 *     sluice:{c:<consumer>}:key:<sha256>   string  the record of an API key, or of an opaque key
 *     sluice:{c:<consumer>}:keys           set     SHA-256 of all keys of the consumer, for `npx sluicegate keys list`
 *     sluice:{k:<sha256>}                  string  the consumer that an opaque key belongs to
 *     sluice:{consumers}                   set     all consumers, for `npx sluicegate consumers list`
 *     sluice:{switches}                    string  the live switches (src/switches/switches.ts)
 *     sluice:{signal:<name>}               string  what isolates share about an origin (src/script/signal.lua)
 *     sluice:{signal:<name>}:reporters     hash    machines of the origin that push its utilization, and what each says
 *     sluice:{c:<consumer>}:state          string  all counters of the consumer (src/script/prelude.lua)
 *     sluice:{c:<consumer>}:state:<parts>  string  those of a part of its requests: `route=reports`
 *     sluice:{ip:<address>}:state…         string  all counters of an address, or of an IPv6 network; parts as above
 *     sluice:{x:<parts>}:state             string  those of anything else: `country=DE`
 *     sluice:{global}:state                string  those of all callers together
 *     sluice:{l:<limit>}:state             string  all counters of a limit by name without an identity
 *     sluice:{l:<limit>}:state:<identity>  string  the same of one identity: `account=42`
 *     sluice:{probe-<number>}:state        string  a counter of probes: isolates find out with it whether the store is back
 *     sluice:{stats}:<yyyymmddhh>          hash    the statistics of an hour (UTC), a field for each counter (src/metrics/counters.ts)
 *     …:state…:log:<tag>                   string  the log of one rule `sliding-log` (src/algorithms/sliding-log.lua)
 *     …:state…:held:<tag>                  string  what isolates hold under one rule `concurrency` (src/algorithms/concurrency.lua)
 *
 * With an environment, `sluice:<environment>:` stands in the place of `sluice:`.
 *
 * The braces put everything of one consumer, and everything of one limit, into one slot of a Redis Cluster. The parts of a
 * key are checked against a narrow alphabet (names), written by Sluice (addresses) or escaped (parts, and consumers
 * that tokens name): no caller can put `{`, `}` or `:` into a key, or name the key of another caller.
 */
import { escaped } from './escape.ts'

/** Stands in keys for a consumer that only the store knows. No consumer is called `?`. */
export const UNKNOWN_CONSUMER = '?'
export const UNKNOWN_CONSUMER_TAG = `{c:${UNKNOWN_CONSUMER}}`

/** The key in its environment: environments can share a database, and share no key in it. */
export function inEnvironment(key: string, environment: string | undefined): string {
  return environment === undefined ? key : key.replace(/^sluice:/, `sluice:${environment}:`)
}

export function consumerKey(consumer: string): string {
  return `sluice:{c:${consumer}}:consumer`
}

export function credentialIndexKey(consumer: string): string {
  return `sluice:{c:${consumer}}:keys`
}

export const CONSUMER_INDEX_KEY = 'sluice:{consumers}'

export const SWITCHES_KEY = 'sluice:{switches}'

/** @param name of letters, digits, - and _ */
export function signalKey(name: string): string {
  return `sluice:{signal:${name}}`
}

export function reportersKey(name: string): string {
  return `${signalKey(name)}:reporters`
}

export function probeStateKey(number: number): string {
  return `sluice:{probe-${number}}:state`
}

export function pointerKey(digest: string): string {
  return `sluice:{k:${digest}}`
}

export function credentialKey(consumer: string, digest: string): string {
  return `sluice:{c:${consumer}}:key:${digest}`
}

export function consumerStateKey(consumer: string): string {
  return `sluice:{c:${consumer}}:state`
}

export function addressStateKey(address: string): string {
  return `sluice:{ip:${address}}:state`
}

/** A part of an identity beside consumer and address; undefined: the request has no such value. */
export type PartValue = readonly [part: string, value: string | undefined]

/**
 * The state lies with the consumer if the identity has one, else with the address, else on its own.
 * @param owner a consumer or an address as they stand in keys; absent where the identity has neither
 */
export function identityStateKey(
  owner: { consumer: string } | { address: string } | undefined,
  parts: readonly PartValue[],
): string {
  const text = parts
    .map(([part, value]) => (value === undefined ? part : `${part}=${escaped(value)}`))
    .join(',')
  if (!owner) return text ? `sluice:{x:${text}}:state` : 'sluice:{global}:state'
  const key = 'consumer' in owner ? consumerStateKey(owner.consumer) : addressStateKey(owner.address)
  return text ? `${key}:${text}` : key
}

/** @param identity parts in the order of the rule's `by`; none for a rule that counts all calls together */
export function limitStateKey(
  limit: string,
  identity: readonly (readonly [part: string, value: string])[],
): string {
  if (identity.length === 0) return `sluice:{l:${limit}}:state`
  const parts = identity.map(([part, value]) => `${part}=${escaped(value)}`)
  return `sluice:{l:${limit}}:state:${parts.join(',')}`
}

/** @param at any time in the hour */
export function statsKey(at: Date): string {
  return `sluice:{stats}:${at.toISOString().slice(0, 13).replace(/[-T]/g, '')}`
}

/** @param tag of the rule that has the key */
export function ownKey(stateKey: string, kind: 'log' | 'held', tag: string): string {
  return `${stateKey}:${kind}:${tag}`
}
