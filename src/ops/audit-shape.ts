/** Entries of the audit trail, and queries for them. */
import type { Change, Entry, Facts } from './change.ts'

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

export interface Range extends AuditQuery {
  /** ms since the epoch. */
  first: number
}

/** The entries before this one: by time, then by the name of the stream. */
export interface Position {
  id: string
  stream?: string | undefined
}
