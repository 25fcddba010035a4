/** The store for administration: a connection, and the keys of one environment. */

import { DEFAULT_KEEP_MS } from '../config/audit-keep.ts'
import type { Config, LimitRule } from '../config/compile.ts'
import { apiKeyStart } from '../credentials/api-key.ts'
import { type KeySecret, type KeySigning, mintSignedKey } from '../credentials/key-signature.ts'
import { gatewayRuleSet, limitRuleSet } from '../script/compiled.ts'
import type { RuleSet } from '../script/rule-set-shape.ts'
import { inEnvironment } from '../store/keys.ts'
import type { AdminConnection, Command } from './admin-connection.ts'
import { AdminError, notRedis } from './admin-error.ts'
import { type AuditTrail, type Author, createAuditTrail } from './audited.ts'
import type { Change, Entry } from './change.ts'
import { type UpstashConnectionOptions, upstashConnection } from './upstash-connection.ts'

/** The environment, and what its keys look like. */
export interface KeySpace {
  environment?: string | undefined
  /** Prefix of API keys (`credentials.apiKeys.prefix`). Default: `slk`. */
  keyPrefix?: string
  /** The secret that signs new API keys. Absent: they are not signed. */
  keySecret?: KeySecret | undefined
  /** What signs them. With `keySecret`. */
  mintSignedKey?: KeySigning['mintSignedKey']
}

export type AdminStoreOptions = KeySpace & UpstashConnectionOptions

export interface AdminStore extends AdminConnection {
  environment: string | undefined
  keyPrefix: string
  /** The first characters of every API key of this environment. */
  keyStart: string
  /** The secret that signs new API keys. */
  keySecret: KeySecret | undefined
  mintSignedKey: KeySigning['mintSignedKey'] | undefined
  /** The scripts of the rules, for peeking at them. */
  ruleSets: RuleSets
  /** Adds the environment to a key of src/store/keys.ts. */
  at(key: string): string
  /**
   * Changes the text of a key by compare-and-set, so that concurrent changes are not lost.
   * @param change returns the new text, or undefined to delete the key. It is called again if another writer was faster.
   * @param describe called after `change`: what it does, for the audit trail. An unchanged text is then not written, and leaves no
   *   entry. Absent: a detail of another change
   * @throws AdminError `conflict` if other writers are always faster; `store`
   */
  change(
    key: string,
    change: (text: string | undefined) => NewText | undefined,
    describe?: () => Entry,
  ): Promise<void>
  /** Makes a change with its entry of the audit trail, all or nothing. @returns false if it was not made, because of `onlyIf` */
  write(write: Write): Promise<boolean>
  /** The scripts of changes, with their entries of the audit trail. */
  audit: AuditTrail
  /** How long these entries are kept. */
  auditKeepMs: number
}

/** Commands that run together. */
export interface Write {
  /** All keys of the commands, with the environment. On a cluster, they are in one slot. */
  keys: readonly string[]
  /** Commands of Redis, and `DELETE-IF key text`, which deletes a key that has this text. */
  commands: readonly Command[]
  /** Some of the keys, and the texts that they must have; an empty text: any. If one has not, nothing is written. */
  onlyIf?: readonly (readonly [key: string, text: string])[]
  /** Of a creation: `write` throws if another one has it. */
  claim?: HeldClaim | undefined
  entry: Entry
}

/** Lets a creation be written only while it has its claim, and ends the claim in the same run. */
export interface HeldClaim {
  key: string
  /** While the creation is not written. */
  text: string
  /** From then on. */
  done: string
}

/** Finds the rule sets of a config: with scripts that are compiled at run time (src/script/compiled.ts), or that were built before. */
export interface RuleSets {
  ofGateway(config: Pick<Config, 'rules' | 'plans'>): RuleSet
  ofLimit(rules: readonly LimitRule[]): RuleSet
}

export interface NewText {
  text: string
  /** Absent: the expiry stays as it is. */
  expiry?: 'never' | Date
}

/**
 * Has a single key beside the audit trail's, so that it works on a cluster. ARGV: the old text, then the arguments that SET has after its
 * key. Without them, the key is deleted.
 */
const COMPARE_AND_SET = `
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
audit()
if #ARGV == 1 then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], unpack(ARGV, 2)) end
return 1`

/** ARGV: how many keys must have a text; each of them, and its text or an empty one; then each command behind the number of its arguments. */
const WRITE = `
local i = 2
for _ = 1, ARGV[1] + 0 do
  local text = redis.call('GET', ARGV[i])
  if not text or (ARGV[i + 1] ~= '' and text ~= ARGV[i + 1]) then return 0 end
  i = i + 2
end
audit()
while i <= #ARGV do
  local last = i + ARGV[i]
  if ARGV[i + 1] ~= 'DELETE-IF' then
    redis.call(unpack(ARGV, i + 1, last))
  elseif redis.call('GET', ARGV[i + 2]) == ARGV[i + 3] then
    redis.call('DEL', ARGV[i + 2])
  end
  i = last + 1
end
return 1`

const ATTEMPTS = 10

/** The store of a REST API. */
export const createAdminStore = (options: AdminStoreOptions): AdminStore =>
  wholeStoreOn(upstashConnection(options), options)

/** The store of any connection, with everything that a Worker only has if it needs it. */
export const wholeStoreOn = (connection: AdminConnection, keySpace: KeySpace): AdminStore =>
  adminStoreOn(
    connection,
    { ...keySpace, mintSignedKey },
    { ofGateway: gatewayRuleSet, ofLimit: limitRuleSet },
  )

/** The store of any connection. */
export function adminStoreOn(
  connection: AdminConnection,
  { environment, keyPrefix = 'slk', keySecret, mintSignedKey }: KeySpace,
  ruleSets: RuleSets,
): AdminStore {
  const at = (key: string) => inEnvironment(key, environment)
  return {
    ...connection,
    environment,
    keyPrefix,
    keyStart: apiKeyStart(keyPrefix, environment),
    keySecret,
    mintSignedKey,
    ruleSets,
    at,
    auditKeepMs: DEFAULT_KEEP_MS,
    ...writersOn(connection, at),
  }
}

/**
 * The same store, whose changes have an author: each leaves an entry in the audit trail.
 * @param keepMs how long entries are kept (audit-keep.ts)
 * @param now tests pass their own clock (ms since the epoch)
 */
export function withActor(
  store: AdminStore,
  change: Change,
  keepMs: number = store.auditKeepMs,
  now?: () => number,
): AdminStore {
  const author = { ...change, keepMs, ...(now && { now }) }
  return { ...store, auditKeepMs: keepMs, ...writersOn(store, store.at, author) }
}

function writersOn(
  connection: AdminConnection,
  at: (key: string) => string,
  author?: Author,
): Pick<AdminStore, 'change' | 'write' | 'audit'> {
  const audit = createAuditTrail(connection, at, author)

  /** Whether a script that replies 1 or 0 has made its change. @throws AdminError `ended`, and `store` for another reply */
  async function isMade(command: Command): Promise<boolean> {
    const reply = await connection.run(...command)
    if (reply === 'ended') throw new AdminError(reply, reply)
    if (reply !== 0 && reply !== 1) throw notRedis()
    return reply === 1
  }

  return {
    audit,

    async change(key, change, describe) {
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
        const before = await connection.run<string | null>('GET', at(key))
        const after = change(before ?? undefined)
        const entry = describe?.()
        if (entry && (after?.text ?? null) === before) return
        const args = [before ?? '', ...(after ? [after.text, ...expiryOf(after)] : [])]
        const command = await audit.command({ source: COMPARE_AND_SET, keys: [at(key)], args, entry })
        if (await isMade(command)) return
      }
      throw conflict()
    },

    async write({ keys, commands, onlyIf = [], claim, entry }) {
      const conditions = claim ? [...onlyIf, [claim.key, claim.text]] : onlyIf
      const all: Command[] = claim ? [...commands, ['SET', claim.key, claim.done, 'KEEPTTL']] : [...commands]
      const args = [
        conditions.length,
        ...conditions.flat(),
        ...all.flatMap(command => [command.length, ...command]),
      ]
      const withClaim = claim ? [...keys, claim.key] : keys
      const made = await isMade(await audit.command({ source: WRITE, keys: withClaim, args, entry }))
      if (!made && claim && onlyIf.length === 0) throw claimLost()
      if (!made && conditions.length === 0) throw notRedis()
      return made
    },
  }
}

/**
 * Makes a write that depends on the text of a key.
 * @param key with its environment
 * @param prepare is called again if another writer was faster. The key must be one of the write's.
 * @throws AdminError `conflict` if other writers are always faster, or another condition of the write is not met; `store`
 */
export async function writeFrom(
  store: Pick<AdminStore, 'run' | 'write'>,
  key: string,
  prepare: (text: string | undefined) => Write,
): Promise<void> {
  let last: string | null | undefined
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const text = await store.run<string | null>('GET', key)
    const write = prepare(text ?? undefined)
    // So another condition was not met.
    if (text === last) throw write.claim ? claimLost() : conflict()
    last = text
    if (await store.write({ ...write, onlyIf: [[key, text ?? ''], ...(write.onlyIf ?? [])] })) return
  }
  throw conflict()
}

const claimLost = () =>
  new AdminError('conflict', 'A later request with the same Idempotency-Key has taken over. Use its reply.')

const conflict = () =>
  new AdminError(
    'conflict',
    'Another process is changing the same record at this moment. Nothing was changed. Try again.',
  )

function expiryOf({ expiry }: NewText): string[] {
  if (expiry === undefined) return ['KEEPTTL']
  return expiry === 'never' ? [] : ['PXAT', String(expiry.getTime())]
}

/** Loads the scripts of a config, so that not even the first decision, or the first refund on a cluster, has to send its script. */
export async function loadScriptsIntoRedis(
  store: AdminStore,
  config: Pick<Config, 'rules' | 'plans' | 'limits' | 'keyLocking'>,
): Promise<void> {
  const { keyLocking, limits } = config
  const ruleSets = [gatewayRuleSet(config), ...[...limits.values()].map(limitRuleSet)]
  for (const script of ruleSets
    .flatMap(({ decide, refund, settle }) => [decide, refund, settle ?? []])
    .flat()) {
    const { source } = keyLocking ? script.keyLocking : script.plain
    await store.run('SCRIPT', 'LOAD', source)
  }
}
