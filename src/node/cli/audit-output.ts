/** How the audit trail is printed: one entry a line. */
import { setTimeout as wait } from 'node:timers/promises'
import { formatDuration } from '../../config/duration.ts'
import { AdminError } from '../../ops/admin-error.ts'
import type { AdminStore } from '../../ops/admin-store.ts'
import { type AuditEntry, type AuditQuery, readAudit } from '../../ops/audit.ts'
import { auditEntryDocument } from '../../ops/documents/audit.ts'
import { printable } from '../../ops/names.ts'
import { timeWithSeconds } from '../../ops/times.ts'
import { jsonText, wrapped } from './output.ts'
import { unansweredText } from './unanswered.ts'

const PAGE = 100
const POLL_MS = 2000

/** How far back each poll reads again: an entry of another slot of a cluster can come later than its time says. */
const OVERLAP_MS = 10_000

type Query = Omit<AuditQuery, 'limit' | 'cursor'>

/** Prints all entries that match, page by page, newest first. */
export async function printAudit(
  store: AdminStore,
  { json }: { json?: boolean },
  query: Query,
): Promise<void> {
  const items: AuditEntry[] = []
  let [isEmpty, cursor]: [boolean, string | undefined] = [true, undefined]
  do {
    const page = await readAudit(store, { ...query, cursor, limit: PAGE })
    if (json) items.push(...page.entries)
    else for (const entry of page.entries) console.log(lineOf(entry))
    isEmpty &&= page.entries.length === 0
    cursor = page.cursor
  } while (cursor !== undefined)
  if (json) console.log(jsonText({ items: items.map(auditEntryDocument) }, 2))
  else if (isEmpty) console.log('There are no changes on record.')
}

/**
 * Prints the last entries, the oldest first, and then each new one. With `--json`, one a line. If the store fails later, it says so and goes on.
 * @param sleep tests pass their own
 */
export async function followAudit(
  store: AdminStore,
  { json }: { json?: boolean },
  query: Query,
  sleep: (ms: number) => Promise<unknown> = wait,
): Promise<never> {
  const known = new Map<string, number>()
  let { since } = query
  let [hasBegun, isAway] = [false, false]
  for (;;) {
    try {
      // At the start, one page.
      const isWhole = known.size > 0 || query.since !== undefined
      const fresh = await readFresh(store, { ...query, since }, known, isWhole)
      for (const entry of fresh) console.log(json ? jsonText(auditEntryDocument(entry)) : lineOf(entry))
      since = remember(fresh, known) ?? since
      ;[hasBegun, isAway] = [true, false]
    } catch (error) {
      if (!hasBegun || !(error instanceof AdminError && error.kind === 'store')) throw error
      if (!isAway) console.error(`${unansweredText(error)} Trying again.`)
      isAway = true
    }
    await sleep(POLL_MS)
  }
}

/** The entries that are not known, the oldest first. @param isWhole whether all pages are read */
async function readFresh(
  store: AdminStore,
  query: Query,
  known: ReadonlyMap<string, number>,
  isWhole: boolean,
): Promise<AuditEntry[]> {
  const fresh: AuditEntry[] = []
  let cursor: string | undefined
  do {
    const page = await readAudit(store, { ...query, cursor, limit: PAGE })
    fresh.push(...page.entries.filter(({ id }) => !known.has(id)))
    cursor = isWhole ? page.cursor : undefined
  } while (cursor !== undefined)
  return fresh.reverse()
}

/** Keeps the entries that the next poll reads again. @returns where that begins; undefined: there are no entries */
function remember(fresh: readonly AuditEntry[], known: Map<string, number>): Date | undefined {
  for (const { id, at } of fresh) known.set(id, at.getTime())
  if (known.size === 0) return undefined
  let newest = 0
  for (const at of known.values()) newest = Math.max(newest, at)
  const first = newest - OVERLAP_MS
  for (const [id, at] of known) if (at < first) known.delete(id)
  return new Date(first)
}

/** The entry with breaks for the terminal. */
const lineOf = (entry: AuditEntry) => wrapped(textOf(entry), process.stdout, /^$/)

/** `2026-11-26 02:14:07  ops (claimed)  overrides.set  acme: override minute set to limit 9; reason: asked by mail` */
export function textOf(entry: AuditEntry): string {
  const { at, actor, action, target, reason, requestId } = entry
  const changes = changesIn(entry)
  const facts = changes.length > 0 ? `: ${changes.join(', ')}` : ''
  const why = reason ? `; reason: ${quoted(reason)}` : ''
  const request = requestId ? `; request ${requestId}` : ''
  const who = whoText(actor)
  return printable(`${timeWithSeconds(at)}  ${who}  ${action}  ${quoted(target)}${facts}${why}${request}`)
}

/** Values that repeat the author and the reason of an entry, or that no person has set. */
const NOT_SHOWN: readonly string[] = ['by', 'blockedBy', 'reason', 'hint']

/** Their values are what was asked for, and change no setting. */
const WITH_ARGUMENTS: readonly string[] = ['limits.reset', 'limits.pause']

/** `plan set to pro`, `plan free → pro`, `plan was pro` */
function changesIn({ action, before, after }: AuditEntry): string[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])]
  return names
    .filter(name => !NOT_SHOWN.includes(name))
    .map(name => {
      const [was, is] = [before, after].map(
        facts => facts[name] !== undefined && valueText(name, facts[name]),
      )
      if (WITH_ARGUMENTS.includes(action)) return `${wordsOf(name)} ${is || was}`
      if (!was) return `${wordsOf(name)} set to ${is}`
      return is ? `${wordsOf(name)} ${was} → ${is}` : `${wordsOf(name)} was ${was}`
    })
}

/** `expires at` for `expiresAt`. The name of a rule behind `override ` stays as it is. */
const wordsOf = (name: string) =>
  name.includes(' ') ? name : name.replace(/Ms$/, '').replace(/[A-Z]/g, letter => ` ${letter.toLowerCase()}`)

function whoText(actor: AuditEntry['actor']): string {
  const name = quoted(actor.name)
  if (actor.kind === 'token') return `${name} (token ${actor.id})`
  return actor.kind === 'process' ? `process ${name}`.trim() : `${name} (claimed)`
}

/** Punctuation with which a name, a label or a reason could look like another part of the line, or like another entry. */
const MISLEADING = /\s\s|[^\S ]|[;:,](?:\s|$)|[()"→]/

const quoted = (text: string) => (MISLEADING.test(text) ? JSON.stringify(text) : text)

function valueText(name: string, value: unknown): string {
  if (Array.isArray(value)) return value.map(each => valueText(name, each)).join(' and ')
  if (typeof value === 'object' && value !== null) return fieldsText(value)
  if (typeof value === 'number' && name.endsWith('Ms')) return formatDuration(value * 1e3)
  if (typeof value !== 'string') return JSON.stringify(value)
  return TIME.test(value) ? timeWithSeconds(new Date(value)) : quoted(value)
}

/** As entries have times. */
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

/** `limit 9 and until 2026-12-01 00:00:00`. A burst that equals the limit is the default. */
function fieldsText(value: object): string {
  const { limit } = value as { limit?: unknown }
  return Object.entries(value)
    .filter(([name, each]) => name !== 'burst' || each !== limit)
    .map(([name, each]) => `${wordsOf(name)} ${valueText(name, each)}`)
    .join(' and ')
}
