/** Documents about the audit trail. */
import type { AuditEntry, AuditPage } from '../audit.ts'
import { type Json, toJson } from './json.ts'

export interface AuditEntryDocument {
  at: string
  /** `isClaimed`: the name was given by someone with the token of the store, and nothing verified it. */
  actor:
    | { kind: 'token'; id: string; name: string }
    | { kind: 'operator' | 'process'; name: string; isClaimed: true }
  /** Such as `consumers.block`. */
  action: string
  target: string
  /** Only what has changed. */
  before: Json<AuditEntry['before']>
  after: Json<AuditEntry['after']>
  reason?: string
  /** Of the HTTP API. */
  requestId?: string
  id: string
}

export interface AuditDocument {
  /** Newest first. */
  items: AuditEntryDocument[]
  /** Of the next page. A page can have less than its limit, or no items, and still a cursor. */
  cursor?: string
}

export const auditEntryDocument = ({ actor, ...entry }: AuditEntry): AuditEntryDocument => ({
  ...toJson(entry),
  actor: actor.kind === 'token' ? actor : { ...actor, isClaimed: true },
})

export const auditDocument = ({ entries, cursor }: AuditPage): AuditDocument => ({
  items: entries.map(auditEntryDocument),
  ...(cursor !== undefined && { cursor }),
})
