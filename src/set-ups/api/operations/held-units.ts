/** What the OpenAPI document says about units in flight that a receipt holds, in addition to limits by name. */
import type { PartOperations } from '../reply-schemas.ts'

export const heldUnitsOperations: PartOperations = {
  operations: {
    'POST limits/{name}/renew': [
      'renew',
      'Hold',
      'Hold units in flight for longer',
      'About every third of `renewWithinMs`. If the status is 422, they are held no longer: decide again.',
    ],
    'POST limits/{name}/release': ['release', 'Hold', 'Release units in flight. A repeat is harmless'],
  },
  schemas: { Hold: 'limit, renewWithinMs: integer "0: they are released."' },
}
