/** The audit trail of administrative changes. */
import { readAudit } from '../../../ops/audit.ts'
import { auditDocument } from '../../../ops/documents/audit.ts'
import { USUAL_ITEMS } from '../cursor.ts'
import { object, text } from '../json-schema.ts'
import { parsed } from '../parse-input.ts'
import { adminRoute } from '../route.ts'
import { pageQuery } from '../schemas.ts'

const auditQuery = object({ ...pageQuery, 'target?': text(400) })

export const auditRoutes = [
  adminRoute({
    method: 'GET',
    path: 'audit',
    scopes: ['audit:read'],
    query: auditQuery,
    async run({ store, query: { target, cursor, limit = USUAL_ITEMS } }, { now }) {
      const query = { target, cursor, limit: Number(limit) }
      return auditDocument(await parsed('?cursor', () => readAudit(store, query, now())))
    },
  }),
]
