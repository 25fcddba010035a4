/** How the audit trail is printed: one entry a line. */
import { setTimeout as wait } from 'node:timers/promises'
import { AdminError } from '../../ops/admin-error.ts'
import type { AdminStore } from '../../ops/admin-store.ts'
import { type AuditEntry, type AuditQuery, readAudit } from '../../ops/audit.ts'
import type { Facts } from '../../ops/change.ts'
import { auditEntryDocument } from '../../ops/documents/audit.ts'
import { printable } from '../../ops/names.ts'
import { jsonText } from './output.ts'
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
    else for (const entry of page.entries) console.log(textOf(entry))
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
      for (const entry of fresh) console.log(json ? jsonText(auditEntryDocument(entry)) : textOf(entry))
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

/** `2026-11-26 02:14:07  ops (claimed)  consumers.block  acme: blockedAt none → 2026-…; because unpaid` */
export function textOf({ at, actor, action, target, before, after, reason, requestId }: AuditEntry): string {
  const time = at.toISOString().slice(0, 19).replace('T', ' ')
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])]
  const changes = names.map(name => `${name} ${valueText(before, name)} → ${valueText(after, name)}`)
  const facts = changes.length > 0 ? `: ${changes.join(', ')}` : ''
  const why = reason ? `; reason: ${quoted(reason)}` : ''
  const request = requestId ? `; request ${requestId}` : ''
  const who = whoText(actor)
  return printable(`${time}  ${who}  ${action}  ${quoted(target)}${facts}${why}${request}`)
}

function whoText(actor: AuditEntry['actor']): string {
  const name = quoted(actor.name)
  if (actor.kind === 'token') return `${name} (token ${actor.id})`
  return actor.kind === 'process' ? `process ${name}`.trim() : `${name} (claimed)`
}

/** Punctuation with which a name, a label or a reason could look like another part of the line, or like another entry. */
const MISLEADING = /\s\s|[^\S ]|[;:,](?:\s|$)|[()"→]/

const quoted = (text: string) => (MISLEADING.test(text) ? JSON.stringify(text) : text)

function valueText(facts: Facts, name: string): string {
  const value = facts[name]
  if (value === undefined) return 'none'
  return typeof value === 'string' ? quoted(value) : JSON.stringify(value)
}
