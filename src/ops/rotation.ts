/** What rotations of keys and of tokens have in common: the new one is written, and the old one ends, all or nothing. */

import type { Command } from '../store/admin-connection.ts'
import type { CredentialRecord, TokenRecord } from '../store/records.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore, Write } from './admin-store-shape.ts'
import { recordFacts } from './audit-facts.ts'
import type { AuditAction } from './change.ts'
import { setCommand, writeFrom } from './write.ts'

/** @throws AdminError `refused` if the key or the token is being replaced already: its full lifetime is no longer known */
export function mustHaveNoSuccessor(
  what: 'Key' | 'Token',
  id: string,
  { replacedBy, expiresAt }: CredentialRecord | TokenRecord,
): void {
  if (!replacedBy) return
  const end = expiresAt ? ` and ends at ${expiresAt.toISOString().replace(/\.\d+/, '')}` : ''
  throw new AdminError(
    'refused',
    `${what} '${id}' is already replaced by '${replacedBy}'${end}. Rotate that one.`,
  )
}

/** What ends, and what comes after it. */
export interface Succession<R extends CredentialRecord | TokenRecord> {
  action: AuditAction
  what: 'Key' | 'Token'
  /** The record of the old one, with its environment. */
  key: string
  id: string
  /** @throws AdminError if the old one has ended */
  read(text: string): R
  format(record: R): string
  /** When the old one ends. */
  endsAt: Date
  /** What is done, besides, if the old one ends at once. */
  atEnd?: readonly Command[]
  successor: { id: string; expiresAt?: Date }
}

/**
 * Ends the old one, and writes the new one in the same run.
 * @param next what writes the new one, whose record is the first key. Without keys, it has been written before
 * @throws AdminError, also if the old one has a successor, but not if the reply is lost and the new one has been written
 */
export async function writeSuccession<R extends CredentialRecord | TokenRecord>(
  store: AdminStore,
  { action, what, key, id, read, format, endsAt, atEnd = [], successor }: Succession<R>,
  next: Pick<Write, 'keys' | 'commands' | 'claim' | 'listed'>,
): Promise<void> {
  const { keys, commands, claim, listed } = next
  const isOver = endsAt <= new Date()
  await writeFrom(store, key, text => {
    const record = read(text ?? '')
    mustHaveNoSuccessor(what, id, record)
    const after = { ...record, expiresAt: endsAt, replacedBy: successor.id }
    const ending = isOver ? [...atEnd, ['DEL', key] as const] : [setCommand(key, format(after), endsAt)]
    return {
      keys: [key, ...keys],
      // The end of the old one first: if the new one has been written, whatever the error, the old one has ended.
      commands: [...ending, ...commands],
      ...{ claim, listed },
      entry: {
        ...{ action, target: id, before: recordFacts(record) },
        after: { ...recordFacts(after), replacementEndsAt: successor.expiresAt },
      },
    }
  }).catch(async error => {
    // The old one ends, so the new one must not be lost with the reply.
    const [written] = keys
    const isLost = error instanceof AdminError && error.kind === 'store' && written !== undefined
    if (!isLost || (await store.run('EXISTS', written).catch(() => 0)) !== 1) throw error
  })
}

/**
 * When the old one ends, and the new one, if it lasts as long: undefined, never.
 * @param overlapMs how long the old one stays valid
 */
export function endsOf(
  { createdAt, expiresAt }: Pick<CredentialRecord, 'createdAt' | 'expiresAt'>,
  overlapMs: number,
): { endsAt: Date; nextEnd: Date | undefined } {
  const now = Date.now()
  return {
    endsAt: earlier(new Date(now + overlapMs), expiresAt),
    nextEnd: expiresAt && new Date(now + expiresAt.getTime() - createdAt.getTime()),
  }
}

/** @param other undefined: never */
export const earlier = (end: Date, other: Date | undefined): Date => (other && other < end ? other : end)
