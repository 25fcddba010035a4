/** What the OpenAPI document says about consumers. */
import type { PartOperations } from '../reply-schemas.ts'
import { KEY, OVERRIDE, SETTINGS } from './shared.ts'

export const consumersOperations: PartOperations = {
  operations: {
    'GET consumers': 'listConsumers ConsumerPage',
    'GET consumers/{consumer}': 'showConsumer Consumer',
    'PATCH consumers/{consumer}': 'changeConsumer ConsumerChange',
    'PUT consumers/{consumer}/block': 'blockConsumer ConsumerChange',
    'DELETE consumers/{consumer}/block': 'unblockConsumer ConsumerChange',
    'DELETE consumers/{consumer}': 'removeConsumer RemovedConsumer',
  },
  schemas: {
    ...{ ...KEY, ...OVERRIDE, ...SETTINGS },
    ConsumerPage: 'items: Consumer[], cursor?',
    Consumer: '...Settings, keys: Key[], hasMoreKeys?: boolean, overrides: Override[]',
    ConsumerChange: '...Settings, overrides: string[], keysOnOtherPlans?: PlanOfKey[]',
    PlanOfKey: 'id, plan?',
    RemovedConsumer: 'consumer, removed: boolean, keys: integer',
  },
}
