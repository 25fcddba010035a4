/** The store for administration on any connection: the keys of one environment, and how they are written. */
import { DEFAULT_KEEP_MS } from '../config/audit-keep.ts'
import { apiKeyStart } from '../credentials/api-key.ts'
import { inEnvironment } from '../store/keys.ts'
import type { AdminConnection, Command } from './admin-connection.ts'
import { AdminError, notRedis } from './admin-error.ts'
import type { AdminStore, KeySpace, NewText, OnCluster, RuleSets } from './admin-store-shape.ts'
import { type Author, createAuditTrail } from './audited.ts'
import type { Change } from './change.ts'
import { ATTEMPTS, claimLost, conflict } from './write-from.ts'

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

/** The store of any connection. @param onCluster is used only if the connection is to a cluster */
export function adminStoreOn(
  connection: AdminConnection,
  { environment, keyPrefix = 'slk', keySecret, mintSignedKey }: KeySpace,
  ruleSets: RuleSets,
  onCluster: OnCluster,
): AdminStore {
  const at = (key: string) => inEnvironment(key, environment)
  return {
    ...connection,
    environment,
    keyPrefix,
    keyStart: apiKeyStart(keyPrefix, environment),
    keySecret,
    mintSignedKey,
    ...{ ruleSets, onCluster, at },
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
    // As arguments, the keys of a consumer with thousands of them would be too many for the stack.
    const [reply] = await connection.runEach([command])
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

function expiryOf({ expiry }: NewText): string[] {
  if (expiry === undefined) return ['KEEPTTL']
  return expiry === 'never' ? [] : ['PXAT', String(expiry.getTime())]
}
