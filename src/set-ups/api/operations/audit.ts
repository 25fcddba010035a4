/** What the OpenAPI document says about the audit trail. */
import type { PartOperations } from '../reply-schemas.ts'
import { PAGE } from './shared.ts'

export const auditOperations: PartOperations = {
  operations: {
    'GET audit': ['audit', 'AuditPage', 'Show who has changed what, newest first'],
  },
  schemas: {
    ...PAGE,
    AuditPage: 'items: AuditEntry[], ...Page',
    AuditEntry:
      'id, at: time, actor: Actor, action, target, before: object, after: object, reason?, requestId?',
    Actor: 'kind: (token|operator|process), name, id?, isClaimed?: boolean',
  },
}
