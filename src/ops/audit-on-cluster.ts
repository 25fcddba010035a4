/** The audit trail of a cluster, which has one stream for each slot; reading merges them, newest first. A Worker without `store.cluster` does not carry it. */
import { AUDIT_INDEX_KEY } from '../store/keys.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store-shape.ts'
import { entryOf, find, foundOf } from './audit.ts'
import type { AuditEntry, AuditPage, Position, Range } from './audit-shape.ts'

/** How many streams of a cluster are listed and read together. */
const STREAMS_AT_ONCE = 50

/** Without a target, no more streams are read for one page: 40 requests. */
const MAX_STREAMS = 1000

/** With a target, which few streams can have: 0.2 MB of names. So 100,000 streams are 20 calls. */
const NAMES_AT_ONCE = 5000

/** How much later than its time in the index the last entry of a stream can be: the time of a call, and of clocks that differ. */
const INDEX_LAG_MS = 60_000

/** How long the name of a stream stays in the index after its last entry has ended (ms). */
const INDEX_SLACK_MS = 86400e3

/** In the index, each stream has the time of its last entry, a few seconds more or less (ms). */
export async function listStream(
  { author, auditKeepMs, at, runEach }: AdminStore,
  stream: string,
): Promise<void> {
  const now = author?.now?.() ?? Date.now()
  const index = at(AUDIT_INDEX_KEY)
  await runEach([
    ['ZADD', index, 'GT', now, stream],
    ['ZREMRANGEBYSCORE', index, '-inf', Math.floor(now - auditKeepMs - INDEX_SLACK_MS)],
  ])
}

/**
 * Reads the streams with the latest entries first, and stops where no other can have a later one.
 * @throws AdminError `refused` without a target, if too many streams could have one
 */
export async function readStreams(
  store: AdminStore,
  range: Range,
  from: Position | undefined,
): Promise<AuditPage> {
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

/** The stream of a consumer has only entries about this consumer, and that of a token only entries about tokens. */
const canHave = (stream: string, target: string | undefined): boolean => {
  const [, kind, name] = /^[^{]*\{([a-z]+):(.*)\}/s.exec(stream) ?? []
  if (target === undefined) return true
  if (kind === 'c') return name === target.split('/')[0]
  return kind !== 't' || TOKEN_ID.test(target)
}

const TOKEN_ID = /^[0-9a-f]{12,64}$/

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

function newestFirst(a: AuditEntry, b: AuditEntry): number {
  const [[atA, seqA, streamA], [atB, seqB, streamB]] = [placeOf(a), placeOf(b)]
  return atB - atA || seqB - seqA || (streamA < streamB ? -1 : 1)
}

function placeOf({ id }: AuditEntry): [at: number, seq: number, stream: string] {
  const [place = '', ...rest] = id.split('@')
  const [at, seq] = place.split('-').map(Number) as [number, number]
  return [at, seq, rest.join('@')]
}
