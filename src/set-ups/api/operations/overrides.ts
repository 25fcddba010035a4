/** What the OpenAPI document says about overrides. */
import type { PartOperations } from '../reply-schemas.ts'
import { OVERRIDE, SETTINGS } from './shared.ts'

export const overridesOperations: PartOperations = {
  operations: {
    'PUT consumers/{consumer}/overrides/{rule}': [
      'setOverride',
      'OverrideChange',
      'Give a consumer other numbers, or another mode, for a rule',
    ],
    'DELETE consumers/{consumer}/overrides/{rule}': [
      'removeOverride',
      'ConsumerSettings',
      'Remove an override',
    ],
  },
  schemas: {
    ...{ ...OVERRIDE, ...SETTINGS },
    OverrideChange: 'consumer, ...Override, removed: Override[]',
    ConsumerSettings: '...Settings, overrides: Override[]',
  },
}
