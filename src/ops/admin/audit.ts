/** The audit trail. */
import { AdminError } from '../admin-error.ts'
import { type AuditQuery, readAudit, sinceOf } from '../audit.ts'
import type { AdminContext } from '../context.ts'
import { type AuditDocument, auditDocument } from '../documents/audit.ts'

export interface AuditInput extends Pick<AuditQuery, 'target' | 'cursor'> {
  /** How far back, such as `7d`. Default: all that is kept. */
  since?: string
  /** How many entries at most, from 1 to 1000. Default: 50. */
  limit?: number
}

export type AuditAdmin = ReturnType<typeof administerAudit>

export function administerAudit({ store }: Pick<AdminContext, 'store'>) {
  return {
    /** Changes of keys, consumers, switches, limits and tokens, newest first. The names of operators are claimed. */
    async audit({ target, cursor, since, limit = 50 }: AuditInput = {}): Promise<AuditDocument> {
      if (!(Number.isInteger(limit) && limit >= 1 && limit <= 1000))
        throw new AdminError('usage', 'The limit is not valid. Use a whole number from 1 to 1000.')
      const query = { target, cursor, limit, ...(since !== undefined && { since: parseSince(since) }) }
      return auditDocument(await readAudit(store, query))
    },
  }
}

function parseSince(text: string): Date {
  const since = sinceOf(text)
  if (since) return since
  throw new AdminError('usage', "since is not valid. Use a duration such as '7d'.")
}
