/** What the OpenAPI document says about overrides. */
import type { PartOperations } from '../reply-schemas.ts'
import { OVERRIDE, SETTINGS } from './shared.ts'

export const overridesOperations: PartOperations = {
  operations: {
    'PUT consumers/{consumer}/overrides/{rule}': 'setOverride OverrideChange',
    'DELETE consumers/{consumer}/overrides/{rule}': 'removeOverride ConsumerSettings',
  },
  schemas: {
    ...{ ...OVERRIDE, ...SETTINGS },
    OverrideChange: 'consumer, ...Override, removed: Override[]',
    ConsumerSettings: '...Settings, overrides: Override[]',
  },
}
