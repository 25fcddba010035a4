/** Reads the audit trail, newest first. Of a cluster, it is in a stream of each slot (audit-on-cluster.ts). */
import { parseDuration } from '../config/duration.ts'
import { evalCommand } from '../store/admin-connection.ts'
import { AUDIT_KEY } from '../store/keys.ts'
import { AdminError, notRedis } from './admin-error.ts'
import type { AdminStore } from './admin-store-shape.ts'
import type { AuditEntry, AuditPage, AuditQuery, Position, Range } from './audit-shape.ts'
import type { Actor, Facts } from './change.ts'
import { FIND_ENTRIES } from './lua.generated.ts'
import { parseConsumerName } from './names.ts'

export type { AuditEntry, AuditPage, AuditQuery } from './audit-shape.ts'

/** How many entries one call of the script looks at: about 3 ms of Redis. */
const LOOK_AT = 2000

/** The most calls of one page without a cluster. A Worker of the free plan has 50 subrequests for a request. */
const MAX_CALLS = 20

/** The name of a consumer of tokens, which users may write escaped or not. */
const CONSUMER_OF_TOKENS = /^[a-z0-9][a-z0-9_-]{0,62}~./s

type Found = readonly [entries: readonly (readonly [id: string, values: readonly string[]])[], next: string]

/** @throws AdminError `usage` for a cursor that is not valid; `store` */
export async function readAudit(
  store: AdminStore,
  query: AuditQuery,
  now: number = Date.now(),
): Promise<AuditPage> {
  const from = parseCursor(query.cursor)
  // Redis removes entries in groups, so some are older than they should be.
  const first = Math.floor(Math.max(0, now - store.auditKeepMs, query.since?.getTime() ?? 0))
  const { target } = query
  const isOfTokens = target !== undefined && CONSUMER_OF_TOKENS.test(target)
  const range = { ...query, first, target: isOfTokens ? await parseConsumerName(target) : target }
  return store.decisions.isCluster
    ? await store.onCluster.readAudit(store, range, from)
    : await readStream(store, range, from)
}

/** @throws AdminError `store` for a reply that the script cannot have */
export function foundOf(reply: unknown): Found {
  const isText = (value: unknown) => typeof value === 'string'
  const isEntry = (entry: unknown) =>
    Array.isArray(entry) && isText(entry[0]) && Array.isArray(entry[1]) && entry[1].every(isText)
  if (Array.isArray(reply) && Array.isArray(reply[0]) && reply[0].every(isEntry) && isText(reply[1]))
    return reply as unknown as Found
  throw notRedis()
}

async function readStream(store: AdminStore, range: Range, from: Position | undefined): Promise<AuditPage> {
  const entries: AuditEntry[] = []
  let last = from && `(${from.id}`
  for (let call = 0; call < MAX_CALLS; call++) {
    const command = find(store.at(AUDIT_KEY), last, range, range.limit - entries.length)
    const [found, next] = foundOf(await store.run(...command))
    entries.push(...found.map(entry => entryOf(entry)))
    if (next === '') return { entries }
    last = `(${next}`
    if (entries.length === range.limit) break
  }
  return { entries, cursor: last!.slice(1) }
}

export function find(stream: string, last: string | undefined, range: Range, missing: number) {
  const { target = '', kind, first } = range
  const isFiltered = target !== '' || kind !== undefined
  const replacedBy = `"replacedBy":${JSON.stringify(target)}`
  const args = [
    ...[last ?? '+', first, isFiltered ? LOOK_AT : missing, missing],
    ...[target, kind ? `${kind}.` : '', replacedBy],
  ]
  return evalCommand(FIND_ENTRIES, [stream], args)
}

/** The id of an entry on a cluster has the name of its stream. Redis has no entry before 0-0, and refuses to look for one. */
const CURSOR = /^(?!0+-0+(?:@|$))(\d{1,16}-\d{1,16})(?:@(.{1,600}))?$/s

function parseCursor(cursor: string | undefined): Position | undefined {
  if (cursor === undefined) return undefined
  const [, id, stream] = CURSOR.exec(cursor) ?? []
  if (id !== undefined) return { id, stream }
  throw new AdminError('usage', 'The cursor is not valid. Use the one of the page before.')
}

export function entryOf([id, values]: Found[0][number], stream?: string): AuditEntry {
  // Each stands behind its name, in the order of src/script/audit.lua, which find-entries.lua reads, too.
  const [actor = '', name = '', action = '', target = '', change = '', reason, requestId] = values.filter(
    (_, i) => i % 2 === 1,
  )
  return {
    at: new Date(Number(id.split('-')[0])),
    actor: actorOf(actor, name),
    ...{ action, target },
    ...differenceIn(change),
    ...(reason && { reason }),
    ...(requestId && { requestId }),
    id: stream === undefined ? id : `${id}@${stream}`,
  }
}

const actorOf = (text: string, name: string): Actor =>
  text.startsWith('token:')
    ? { kind: 'token', id: text.slice(6), name }
    : { kind: text === 'process' ? text : 'operator', name }

/** Anyone who can write to the store can write anything. */
function differenceIn(text: string): { before: Facts; after: Facts } {
  try {
    const { before, after } = JSON.parse(text) as Partial<Record<'before' | 'after', unknown>>
    return { before: factsOf(before), after: factsOf(after) }
  } catch {
    return { before: {}, after: {} }
  }
}

const factsOf = (value: unknown): Facts =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Facts) : {}

/** How far back to read. @returns undefined if the text is not a duration */
export function sinceOf(text: string, now = Date.now()): Date | undefined {
  const microseconds = parseDuration(text)
  return microseconds === undefined || microseconds === 0
    ? undefined
    : new Date(Math.max(0, now - microseconds / 1000))
}
