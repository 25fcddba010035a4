/** Puts the entry of the audit trail into the script that makes the change, so that there is never one without the other. */
import { withoutSecrets } from '../credentials/find-secret.ts'
import { AUDIT } from '../script/lua.generated.ts'
import { type PauseEntry, streamFor } from '../script/pause.ts'
import { type Command, evalCommand } from '../store/admin-connection.ts'
import { AUDIT_KEY, tokenKey } from '../store/keys.ts'
import type { AdminStore, Author } from './admin-store-shape.ts'
import { differenceOf, type Entry } from './change.ts'
import { printable } from './names.ts'

/** The most characters of a reason, and of a name. */
const MAX_TEXT = 200

/** In front of a change for a service token. */
const CHECK_TOKEN = `if redis.call('EXISTS',table.remove(KEYS))<1 then return'ended'end\n`

/** For changes without an author, which leave no entry: those of tests, and of a local store. */
const NO_AUDIT = 'local function audit() end\n'

/** Of a pause that is set through a store without an author. */
const WITHOUT_AUTHOR: Author = { actor: { kind: 'operator', name: '' } }

/** A script that calls `audit()`, with the entry. Its keys are in one slot, and have the environment already. */
export interface Audited {
  source: string
  keys: readonly string[]
  args: readonly (string | number)[]
  /** Absent: nothing that administrators need to know. */
  entry?: Entry | undefined
}

/** The command of a script that calls `audit()`. The script replies `ended` instead if the author's token has. */
export async function auditedCommand(
  store: AdminStore,
  { source, keys, args, entry }: Audited,
): Promise<Command> {
  const { author, decisions, at } = store
  const all = [...keys]
  const values = [...args]
  let before = NO_AUDIT
  if (author && entry) {
    const stream = streamFor(decisions, keys[0]!, at(AUDIT_KEY))
    if (decisions.isCluster) await store.onCluster.listStream(store, stream)
    all.push(stream)
    values.push(...valuesOf(store, entry))
    before = AUDIT
  }
  if (author?.tokenDigest && !decisions.isCluster) {
    all.push(at(tokenKey(author.tokenDigest)))
    before = CHECK_TOKEN + before
  }
  return evalCommand(before + source, all, values)
}

/** The entry for a script that writes it itself, or behind it (audited-call.ts). @param key that the script changes, without the environment */
export async function entryFor(store: AdminStore, key: string, entry: Entry): Promise<PauseEntry> {
  const stream = streamFor(store.decisions, key)
  if (store.decisions.isCluster) await store.onCluster.listStream(store, store.at(stream))
  return { stream, values: valuesOf(store, entry) }
}

function valuesOf({ author = WITHOUT_AUTHOR, auditKeepMs }: AdminStore, entry: Entry): string[] {
  const { actor, reason = '', requestId = '', now } = author
  const { action, target } = entry
  const who = actor.kind === 'token' ? `token:${actor.id}` : actor.kind
  return [
    ...[who, bounded(actor.name), action, withoutSecrets(target).slice(0, 400), differenceOf(entry)],
    ...[bounded(reason), bounded(requestId), auditKeepMs.toFixed(), now ? now().toFixed() : ''],
  ]
}

const bounded = (text: string) => printable(text.toWellFormed().slice(0, MAX_TEXT))
