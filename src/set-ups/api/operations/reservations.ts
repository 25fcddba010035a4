/** What the OpenAPI document says about reservations, in addition to limits by name. */
import type { PartOperations } from '../reply-schemas.ts'

export const reservationsOperations: PartOperations = {
  operations: {
    'POST limits/{name}/reserve': ['reserve', 'Decision', 'Reserve units whose amount is known only later'],
    'POST limits/{name}/settle': ['settle', 'Settlement', 'Replace reserved units by what the call has cost'],
  },
  schemas: {
    Settlement: `...State, receipt: Receipt,
      applied: boolean "Whether this request has replaced the reserved units."`,
  },
}
