/**
 * All keys of the store.
 *
 *     sluice:{c:<consumer>}:consumer       string  the record of a consumer (src/store/records.ts)
 *     sluice:{c:<consumer>}:key:<sha256>   string  the record of an API key, or of an opaque key
 *     sluice:{c:<consumer>}:digests        zset    SHA-256 of all keys of the consumer, an index (src/ops/sorted-index.ts) as the two below
 *     sluice:{k:<sha256>}                  string  the consumer that an opaque key belongs to ("pointer")
 *     sluice:{consumers}:names             zset    all consumers, for `npx sluicegate consumers list`
 *     sluice:{t:<sha256>}                  string  the record of a service token; it expires with the token
 *     sluice:{tokens}:digests              zset    SHA-256 of all service tokens, for `npx sluicegate tokens list`
 *     sluice:{idem:<sha256>}               string  what a request to the API with an Idempotency-Key has created, or `pending <request> <id>`; on a cluster `<id> <request>`. It expires after a day
 *     sluice:{switches}                    string  the live switches (src/switches/switches.ts)
 *     sluice:{signal:<name>}               string  the measurements of an origin, shared by all isolates (src/script/signal.lua)
 *     sluice:{signal:<name>}:reporters     hash    the machines of the origin that push their utilization, with their last values
 *     sluice:{c:<consumer>}:state          string  all counters of the consumer (src/script/prelude.lua)
 *     sluice:{c:<consumer>}:state:<parts>  string  the counters for a part of its requests: `route=reports`
 *     sluice:{c:<consumer>}:test…          string  the same for requests with its test keys and test tokens
 *     sluice:{ip:<address>}:state…         string  all counters of an address, or of an IPv6 network; parts as above
 *     sluice:{x:<parts>}:state             string  the counters of any other identity: `country=DE`; `:test` for test tokens (`claim`)
 *     sluice:{global}:state                string  the counters of all callers together
 *     sluice:{l:<limit>}:state             string  all counters of a limit by name without an identity
 *     sluice:{l:<limit>}:state:<identity>  string  the counters of one identity: `account=42`
 *     sluice:{probe-<number>}:state        string  a counter for probes, which check whether the store is back
 *     sluice:{stats}:d:<date>              hash    the statistics of a day (UTC), as in `d:20261121` (src/metrics/add-counts.ts)
 *     sluice:{stats}:<time>                hash    those of an hour, as in `2026112109`, which earlier versions have written
 *     sluice:{stats}:callers:<time>        hash    the callers that were refused most in an hour (UTC) (src/metrics/add-callers.ts)
 *     sluice:{stats}:total                 hash    the statistics of all time, and what only metrics have (src/metrics/measurements.ts)
 *     sluice:{audit}                       stream  the audit trail (src/ops/audited.ts); on a cluster one stream in each slot, as in
 *                                                  `sluice:{c:<consumer>}:audit` or `sluice:{switches}:audit`
 *     sluice:{audits}                      zset    on a cluster: all these streams, with the time of their last entry (ms)
 *     sluice:{c:<consumer>}:job:<sha256>   string  what a background response or a batch has cost so far (src/limiter/reservations/jobs.ts);
 *                                                  of an anonymous caller `sluice:{ip:<address>}:job:<sha256>`
 *     …:state…:log:<tag>                   string  the log of a `sliding-log` rule (src/algorithms/sliding-log.lua)
 *     …:state…:log:<tag>:mid               hash    the chunks of a long log
 *     …:state…:overrides                   string  the overrides of one identity of a limit by name (src/ops/limit-overrides.ts), as in the record of a consumer
 *     sluice:{l:<limit>}:overridden        zset    all identities of the limit that have overrides, an index: `:account=42`
 *     …:state…:reserved                    zset    the units that requests have reserved, by when they end (src/script/settle.ts)
 *     …:state…:refunds:<number>            hash    the units that were given back of calls of a limit by name, by the minute of the call (src/set-ups/limits/refund-once.ts)
 *     …:state…:held:<tag>                  string  the units that isolates hold under a `concurrency` rule (src/algorithms/concurrency.lua)
 *
 * Nothing writes `sluice:{probe}:none`: deleting it shows whether the store takes changes.
 *
 * In an environment, keys begin with `sluice:<environment>:` instead of `sluice:`.
 *
 * The braces put all keys of one consumer, and all keys of one limit, into one slot of a Redis Cluster. The parts of a key are checked
 * against a narrow alphabet (names), created by Sluice (addresses), or escaped (parts, and consumers that tokens name). So a caller
 * cannot put `{`, `}` or `:` into a key, and cannot choose the key of another caller.
 */
import { escaped } from './escape.ts'

/** The placeholder in keys for a consumer that only the store knows. In keys, names of consumers never contain it. */
export const UNKNOWN_CONSUMER = '?'
export const UNKNOWN_CONSUMER_TAG = `{c:${UNKNOWN_CONSUMER}}`

/** The key of a state or a record of one identity. It has the placeholder while only the store knows the consumer. */
export type IdentityKey = string

export const isConsumerKnown = (key: IdentityKey): boolean => !key.includes(UNKNOWN_CONSUMER_TAG)

/** The key with a consumer in place of the placeholder, if it has one. @param consumer undefined: it stays unknown */
export const withConsumer = (key: IdentityKey, consumer: string | undefined): IdentityKey =>
  consumer === undefined ? key : withTag(key, `c:${consumer}`)

/** The key with another hash tag in place of the placeholder, if it has one. */
export const withTag = (key: IdentityKey, tag: string): IdentityKey =>
  key.replace(UNKNOWN_CONSUMER_TAG, `{${tag}}`)

/** The hash tag of a key: the text in the first braces. It determines the slot (Redis Cluster specification, "Hash tags"). */
export const hashTagOf = (key: string): string => /^[^{]*\{([^}]+)\}/.exec(key)?.[1] ?? key

/** The key in its environment. So environments can share a database without sharing keys. */
export const inEnvironment = (key: string, environment: string | undefined): string =>
  environment === undefined ? key : key.replace(/^sluice:/, `sluice:${environment}:`)

export const consumerKey = (consumer: string) => `sluice:{c:${consumer}}:consumer`

export const credentialIndexKey = (consumer: string) => `sluice:{c:${consumer}}:digests`

export const CONSUMER_INDEX_KEY = 'sluice:{consumers}:names'

export const tokenKey = (digest: string) => `sluice:{t:${digest}}`

export const TOKEN_INDEX_KEY = 'sluice:{tokens}:digests'

/** @param digest of the token's id and the key */
export const idempotencyKey = (digest: string) => `sluice:{idem:${digest}}`

/** The streams of the audit trail on a cluster. */
export const AUDIT_INDEX_KEY = 'sluice:{audits}'

/** The stream of the audit trail, unless the store is a cluster. */
export const AUDIT_KEY = 'sluice:{audit}'

/** On a cluster: the stream for changes of a key, which is in its slot. */
export const auditKeyOf = (key: string): string => `${/^[^}]*\}/.exec(key)![0]}:audit`

export const SWITCHES_KEY = 'sluice:{switches}'

/** The key of a signal. @param name of letters, digits, - and _ */
export const signalKey = (name: string) => `sluice:{signal:${name}}`

export const reportersKey = (name: string) => `${signalKey(name)}:reporters`

/** It never exists, so deleting it changes nothing. */
export const WRITE_TEST_KEY = 'sluice:{probe}:none'

export const probeStateKey = (number: number) => `sluice:{probe-${number}}:state`

export const pointerKey = (digest: string) => `sluice:{k:${digest}}`

export const credentialKey = (consumer: string, digest: string) => `sluice:{c:${consumer}}:key:${digest}`

/** The word for the counters of live callers, which also have those of identities that do not depend on a credential, and of test callers. */
export type StateWord = 'state' | 'test'

export const consumerStateKey = (consumer: string, word: StateWord = 'state') =>
  `sluice:{c:${consumer}}:${word}`

export const addressStateKey = (address: string, word: StateWord = 'state') =>
  `sluice:{ip:${address}}:${word}`

/** A part of an identity beside consumer and address. The value is undefined if the request has none. */
export type PartValue = readonly [part: string, value: string | undefined]

/**
 * The state key of an identity. The state of an identity with a consumer is in the slot of the consumer. Without a consumer, it is in
 * the slot of the address. Without either, it has a slot of its own.
 * @param owner a consumer or an address, as they are written in keys; undefined if the identity has neither
 * @param word keeps the counters of test callers apart, whatever the parts are
 */
export function identityStateKey(
  owner: { consumer: string } | { address: string } | undefined,
  parts: readonly PartValue[],
  word: StateWord = 'state',
): string {
  const text = partsText(parts)
  if (!owner) return text ? `sluice:{x:${text}}:${word}` : 'sluice:{global}:state'
  const key =
    'consumer' in owner ? consumerStateKey(owner.consumer, word) : addressStateKey(owner.address, word)
  return text ? `${key}:${text}` : key
}

/** The state key of a limit by name. @param identity parts in the order of the rule's `by`; empty if all calls are counted together */
export function limitStateKey(limit: string, identity: readonly PartValue[]): string {
  const key = `sluice:{l:${limit}}:state`
  return identity.length > 0 ? `${key}:${partsText(identity)}` : key
}

/** The same for the parts that a rule counts by. */
export const limitRuleKey = (
  limit: string,
  { by }: { by: readonly string[] },
  identity: Readonly<Record<string, string | number>>,
): string =>
  limitStateKey(
    limit,
    by.map(part => [part, String(identity[part])]),
  )

const partsText = (parts: readonly PartValue[]) =>
  parts.map(([part, value]) => (value === undefined ? part : `${part}=${escaped(value)}`)).join(',')

/** `20261121`, or with the hour `2026112109`. */
const timeOf = (at: Date, length: number) => at.toISOString().slice(0, length).replaceAll(/\D/g, '')
const [DAY, HOUR] = [10, 13]

/** The key of the statistics of a day. @param at any time in it */
export const statsKey = (at: Date) => `sluice:{stats}:d:${timeOf(at, DAY)}`

/** The key of the callers that were refused most in an hour. @param at any time in it */
export const callersKey = (at: Date) => `sluice:{stats}:callers:${timeOf(at, HOUR)}`

/** The key of the counters that never restart, for metrics. */
export const STATS_TOTAL_KEY = 'sluice:{stats}:total'

/** The side key of a rule, in addition to the state: for its log, or for its holders. @param tag of the rule */
export const sideKey = (stateKey: string, kind: 'log' | 'held', tag: string) => `${stateKey}:${kind}:${tag}`

/** The key of a job: a response or a batch that a model works on after the reply to its creation. @param digest of its id */
export const jobKey = (owner: { consumer: string } | { address: string }, digest: string): string =>
  `sluice:{${'consumer' in owner ? `c:${owner.consumer}` : `ip:${owner.address}`}}:job:${digest}`

/** The key of the reservations of an identity. */
export const reservedKey = (stateKey: string) => `${stateKey}:reserved`

/** The key of the overrides of an identity of a limit by name. */
export const overridesKey = (stateKey: string) => `${stateKey}:overrides`

/** All identities of a limit that have overrides, as the ends of their state keys. */
export const overriddenIndexKey = (limit: string) => `sluice:{l:${limit}}:overridden`

/** The key of the units that were given back of single calls. @param time number of the time in which they were decided */
export const refundsKey = (stateKey: string, time: number) => `${stateKey}:refunds:${time}`

/** The key of the chunks of a long log. @param logKey its side key */
export const chunksKey = (logKey: string) => `${logKey}:mid`
