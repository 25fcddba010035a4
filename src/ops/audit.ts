/** Reads the audit trail, newest first. On a cluster, it merges one stream of each slot. */
import { parseDuration } from '../config/duration.ts'
import { AUDIT_INDEX_KEY, AUDIT_KEY } from '../store/keys.ts'
import { evalCommand } from './admin-connection.ts'
import { AdminError, notRedis } from './admin-error.ts'
import type { AdminStore } from './admin-store.ts'
import type { Actor, Change, Entry, Facts } from './change.ts'

export interface AuditEntry extends Omit<Entry, 'action' | 'before' | 'after'>, Change {
  /** By the clock of Redis. */
  at: Date
  /** A version of tomorrow may write others than AUDIT_ACTIONS. */
  action: string
  /** Only what has changed. */
  before: Facts
  after: Facts
  /** Identifies the entry, and is the cursor of those before it. */
  id: string
}

export interface AuditQuery {
  /** A consumer with its keys, a key, a rule, a limit by name, a token, `kill`, or an address. Also what a rotation has made. Absent: all. */
  target?: string | undefined
  /** The first part of the action, such as `switches`. Absent: all. */
  kind?: string | undefined
  since?: Date | undefined
  /** From an earlier page. */
  cursor?: string | undefined
  /** How many entries at most, from 1 to 1000. */
  limit: number
}

export interface AuditPage {
  entries: AuditEntry[]
  /**
   * Of the next page. If few entries match, a page can have less than its limit, or none, and still a cursor: each page looks at a bounded
   * number of entries.
   */
  cursor?: string
}

/** How many entries one call of the script looks at: about 3 ms of Redis. */
const LOOK_AT = 2000

/** The most calls of one page without a cluster. A Worker of the free plan has 50 subrequests for a request. */
const MAX_CALLS = 20

/** How many streams of a cluster are listed and read together. */
const STREAMS_AT_ONCE = 50

/** Without a target, no more streams are read for one page: 40 requests. */
const MAX_STREAMS = 1000

/** With a target, which few streams can have: 0.2 MB of names. So 100,000 streams are 20 calls. */
const NAMES_AT_ONCE = 5000

/** How much later than its time in the index the last entry of a stream can be: the time of a call, and of clocks that differ. */
const INDEX_LAG_MS = 60_000

/**
 * KEYS: a stream. ARGV: the last id, the first id, how many to look at, how many to find, the target, the kind of action, what the change of a rotation to
 * the target has.
 * Reply: the entries, and where to go on; an empty text after the last one.
 */
const FIND = `
local looked = redis.call('XREVRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])
local found = {}
for i = 1, #looked do
  local values = looked[i][2]
  local action, target = values[6], values[8]
  if (ARGV[5] == '' or target == ARGV[5] or string.sub(target, 1, #ARGV[5] + 1) == ARGV[5] .. '/'
      or string.find(values[10], ARGV[7], 1, true))
      and string.sub(action, 1, #ARGV[6]) == ARGV[6] then
    found[#found + 1] = looked[i]
    if #found == ARGV[4] + 0 then return { found, looked[i][1] } end
  end
end
return { found, #looked == ARGV[3] + 0 and looked[#looked][1] or '' }`

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
  const range = { ...query, first }
  return store.decisions.isCluster
    ? await readStreams(store, range, from)
    : await readStream(store, range, from)
}

/** @throws AdminError `store` for a reply that the script cannot have */
function foundOf(reply: unknown): Found {
  const isText = (value: unknown) => typeof value === 'string'
  const isEntry = (entry: unknown) =>
    Array.isArray(entry) && isText(entry[0]) && Array.isArray(entry[1]) && entry[1].every(isText)
  if (Array.isArray(reply) && Array.isArray(reply[0]) && reply[0].every(isEntry) && isText(reply[1]))
    return reply as unknown as Found
  throw notRedis()
}

interface Range extends AuditQuery {
  /** ms since the epoch. */
  first: number
}

/** The entries before this one: by time, then by the name of the stream. */
interface Position {
  id: string
  stream?: string | undefined
}

async function readStream(store: AdminStore, range: Range, from: Position | undefined): Promise<AuditPage> {
  const entries: AuditEntry[] = []
  let last = from && `(${from.id}`
  for (let call = 0; call < MAX_CALLS; call++) {
    const command = find(store.at(AUDIT_KEY), last, range, range.limit - entries.length)
    const [found, next] = foundOf(await store.run(...command))
    entries.push(...found.map(entry => entryOf(entry)))
    if (next === '') return { entries }
    if (entries.length === range.limit) return { entries, cursor: next }
    last = `(${next}`
  }
  return { entries, cursor: last!.slice(1) }
}

/**
 * Reads the streams with the latest entries first, and stops where no other can have a later one.
 * @throws AdminError `refused` without a target, if too many streams could have one
 */
async function readStreams(store: AdminStore, range: Range, from: Position | undefined): Promise<AuditPage> {
  const { limit, target } = range
  const atOnce = target === undefined ? STREAMS_AT_ONCE : NAMES_AT_ONCE
  let newest: AuditEntry[] = []
  for (let rank = 0; ; rank += atOnce) {
    if (target === undefined && rank >= MAX_STREAMS) throw tooManyStreams()
    const index = store.at(AUDIT_INDEX_KEY)
    const last = rank + atOnce - 1
    const listed = await store.run<string[]>('ZRANGE', index, rank, last, 'REV', 'WITHSCORES')
    const streams = listed.filter((_, i) => i % 2 === 0).filter(stream => canHave(stream, target))
    newest = [...newest, ...(await readAll(store, streams, range, from))].sort(newestFirst).slice(0, limit)
    const latest = Number(listed.at(-1)) + INDEX_LAG_MS
    const isComplete = newest.length === limit && newest.at(-1)!.at.getTime() > latest
    if (listed.length < 2 * atOnce || latest < range.first || isComplete) break
  }
  return { entries: newest, ...(newest.length === limit && { cursor: newest.at(-1)!.id }) }
}

const tooManyStreams = () =>
  new AdminError(
    'refused',
    `On this cluster, more than ${MAX_STREAMS} records have changed since these entries, each with a stream of its own. Name a target. On the command line, --since helps too.`,
  )

/** The stream of a consumer has only entries about this consumer. */
const canHave = (stream: string, target: string | undefined): boolean => {
  const [, consumer] = /\{c:(.*)\}/.exec(stream) ?? []
  return target === undefined || consumer === undefined || consumer === target.split('/')[0]
}

/** The newest entries of each stream. */
async function readAll(
  store: AdminStore,
  streams: readonly string[],
  range: Range,
  from: Position | undefined,
): Promise<AuditEntry[]> {
  const entries: AuditEntry[] = []
  let open = streams.map(stream => ({ stream, last: from && lastIn(stream, from), missing: range.limit }))
  while (open.length > 0) {
    const replies = await store.runEach(
      open.map(({ stream, last, missing }) => find(stream, last, range, missing)),
    )
    open = open.flatMap(({ stream, missing }, i) => {
      const [found, next] = foundOf(replies[i])
      entries.push(...found.map(entry => entryOf(entry, stream)))
      const left = missing - found.length
      return next === '' || left === 0 ? [] : [{ stream, last: `(${next}`, missing: left }]
    })
  }
  return entries
}

/** Of two entries with the same id, the one whose stream comes first in the alphabet comes first. */
const lastIn = (stream: string, from: Position) => (stream > (from.stream ?? '') ? from.id : `(${from.id}`)

function find(stream: string, last: string | undefined, range: Range, missing: number) {
  const { target = '', kind, first } = range
  const isFiltered = target !== '' || kind !== undefined
  const replacedBy = `"replacedBy":${JSON.stringify(target)}`
  const args = [
    ...[last ?? '+', first, isFiltered ? LOOK_AT : missing, missing],
    ...[target, kind ? `${kind}.` : '', replacedBy],
  ]
  return evalCommand(FIND, [stream], args)
}

/** The id of an entry on a cluster has the name of its stream. Redis has no entry before 0-0, and refuses to look for one. */
const CURSOR = /^(?!0+-0+(?:@|$))(\d{1,16}-\d{1,16})(?:@(.{1,600}))?$/s

function parseCursor(cursor: string | undefined): Position | undefined {
  if (cursor === undefined) return undefined
  const [, id, stream] = CURSOR.exec(cursor) ?? []
  if (id !== undefined) return { id, stream }
  throw new AdminError('usage', 'The cursor is not valid. Use the one of the page before.')
}

function entryOf([id, values]: Found[0][number], stream?: string): AuditEntry {
  const fields = new Map(values.flatMap((value, i) => (i % 2 === 0 ? [[value, values[i + 1]!]] : [])))
  const of = (name: string) => fields.get(name) ?? ''
  const [reason, requestId] = [of('reason'), of('request')]
  return {
    at: new Date(Number(id.split('-')[0])),
    actor: actorOf(of('actor'), of('name')),
    ...{ action: of('action'), target: of('target') },
    ...differenceIn(of('change')),
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

function newestFirst(a: AuditEntry, b: AuditEntry): number {
  const [[atA, seqA, streamA], [atB, seqB, streamB]] = [placeOf(a), placeOf(b)]
  return atB - atA || seqB - seqA || (streamA < streamB ? -1 : 1)
}

function placeOf({ id }: AuditEntry): [at: number, seq: number, stream: string] {
  const [place = '', ...rest] = id.split('@')
  const [at, seq] = place.split('-').map(Number) as [number, number]
  return [at, seq, rest.join('@')]
}

/** How far back to read. @returns undefined if the text is not a duration */
export function sinceOf(text: string, now = Date.now()): Date | undefined {
  const microseconds = parseDuration(text)
  return microseconds === undefined || microseconds === 0
    ? undefined
    : new Date(Math.max(0, now - microseconds / 1000))
}
