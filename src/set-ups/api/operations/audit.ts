/** What the OpenAPI document says about the audit trail. */
import type { PartOperations } from '../reply-schemas.ts'

export const auditOperations: PartOperations = {
  operations: {
    'GET audit': 'audit AuditPage',
  },
  schemas: {
    AuditPage: 'items: AuditEntry[], cursor?',
    AuditEntry:
      'id, at: time, actor: Actor, action, target, before: object, after: object, reason?, requestId?',
    Actor: 'kind: (token|operator|process), name, id?, isClaimed?: boolean',
  },
}
