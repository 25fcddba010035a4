/** Puts the entry of the audit trail into the script that makes the change, so that there is never one without the other. */
import { DEFAULT_KEEP_MS } from '../config/audit-keep.ts'
import { withoutSecrets } from '../credentials/find-secret.ts'
import { AUDIT } from '../script/lua.generated.ts'
import { type PauseEntry, streamFor } from '../script/pause.ts'
import { AUDIT_INDEX_KEY, AUDIT_KEY, tokenKey } from '../store/keys.ts'
import { type AdminConnection, type Command, evalCommand } from './admin-connection.ts'
import { type Change, differenceOf, type Entry } from './change.ts'
import { printable } from './names.ts'

/** The most characters of a reason, and of a name. */
const MAX_TEXT = 200

/** How long the name of a stream stays in the index of a cluster after its last entry has ended (ms). */
const INDEX_SLACK_MS = 86400e3

/** In front of a change for a service token. */
const CHECK_TOKEN = `if redis.call('EXISTS',table.remove(KEYS))<1 then return'ended'end\n`

/** For changes without an author, which leave no entry: those of tests, and of a local store. */
const NO_AUDIT = 'local function audit() end\n'

export interface Author extends Change {
  keepMs: number
  /** ms since the epoch. Default: the clock of Redis. */
  now?: () => number
}

/** Of a pause that is set through a store without an author. */
const WITHOUT_AUTHOR: Author = { actor: { kind: 'operator', name: '' }, keepMs: DEFAULT_KEEP_MS }

/** The command of a script that calls `audit()`, with the entry. Its keys are in one slot, and have the environment already. */
export interface Audited {
  source: string
  keys: readonly string[]
  args: readonly (string | number)[]
  /** Absent: nothing that administrators need to know. */
  entry?: Entry | undefined
}

/** Writes entries to the stream of the deployment, or on a cluster to one in the slot of the keys. */
export interface AuditTrail {
  /** @returns the command, whose script replies `ended` instead if the author's token has. On a cluster, the stream is listed first, so that it is found even if this process ends */
  command(audited: Audited): Promise<Command>
  /** Whether changes leave entries. */
  isOn: boolean
  /** The entry for a script that writes it itself, or behind it (audited-call.ts). @param key that the script changes, without the environment */
  entryFor(key: string, entry: Entry): Promise<PauseEntry>
}

export function createAuditTrail(
  connection: AdminConnection,
  at: (key: string) => string,
  author: Author | undefined,
): AuditTrail {
  const { decisions } = connection
  const ofDeployment = at(AUDIT_KEY)
  const listOthers = async (stream: string, author: Author) => {
    if (stream !== ofDeployment) await list(connection, at(AUDIT_INDEX_KEY), stream, author)
  }
  async function entryFor(key: string, entry: Entry, author: Author): Promise<PauseEntry> {
    const stream = streamFor(decisions, key)
    await listOthers(at(stream), author)
    return { stream, values: valuesOf(author, entry) }
  }
  return {
    isOn: author !== undefined,

    async command({ source, keys, args, entry }) {
      if (!author || !entry) return evalCommand(NO_AUDIT + source, keys, args)
      const stream = streamFor(decisions, keys[0]!, ofDeployment)
      await listOthers(stream, author)
      const all = [...keys, stream]
      const { tokenDigest } = author
      const check = tokenDigest && !decisions.isCluster ? CHECK_TOKEN : ''
      if (check) all.push(at(tokenKey(tokenDigest!)))
      return evalCommand(check + AUDIT + source, all, [...args, ...valuesOf(author, entry)])
    },

    entryFor: (key, entry) => entryFor(key, entry, author ?? WITHOUT_AUTHOR),
  }
}

/** In the index, each stream has the time of its last entry, a few seconds more or less (ms). */
async function list(
  { runEach }: AdminConnection,
  index: string,
  stream: string,
  { keepMs, now = Date.now }: Author,
): Promise<void> {
  await runEach([
    ['ZADD', index, 'GT', now(), stream],
    ['ZREMRANGEBYSCORE', index, '-inf', Math.floor(now() - keepMs - INDEX_SLACK_MS)],
  ])
}

function valuesOf({ actor, reason = '', requestId = '', keepMs, now }: Author, entry: Entry): string[] {
  const { action, target } = entry
  const who = actor.kind === 'token' ? `token:${actor.id}` : actor.kind
  return [
    ...[who, bounded(actor.name), action, withoutSecrets(target).slice(0, 400), differenceOf(entry)],
    ...[bounded(reason), bounded(requestId), keepMs.toFixed(), now ? now().toFixed() : ''],
  ]
}

const bounded = (text: string) => printable(text.toWellFormed().slice(0, MAX_TEXT))
