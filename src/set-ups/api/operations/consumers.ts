/** What the OpenAPI document says about consumers. */
import type { PartOperations } from '../reply-schemas.ts'
import { KEY, OVERRIDE, PAGE, REMOVED, SETTINGS } from './shared.ts'

export const consumersOperations: PartOperations = {
  operations: {
    'GET consumers': ['listConsumers', 'ConsumerPage', 'List consumers'],
    'GET consumers/{consumer}': ['showConsumer', 'Consumer', 'Show a consumer'],
    'PATCH consumers/{consumer}': ['changeConsumer', 'ConsumerChange', 'Set the plan of a consumer'],
    'PUT consumers/{consumer}/block': ['blockConsumer', 'ConsumerChange', 'Block a consumer'],
    'DELETE consumers/{consumer}/block': ['unblockConsumer', 'ConsumerChange', 'Unblock a consumer'],
    'DELETE consumers/{consumer}': [
      'removeConsumer',
      'RemovedConsumer',
      'Remove a consumer with its keys, settings and counters',
      REMOVED,
    ],
  },
  schemas: {
    ...{ ...PAGE, ...KEY, ...OVERRIDE, ...SETTINGS },
    ConsumerPage: 'items: Consumer[], ...Page',
    Consumer: `...Settings,
      keys: Key[] "At most 100: listKeys has all.",
      hasMoreKeys?: boolean, overrides: Override[]`,
    ConsumerChange: `...Settings,
      overrides: string[] "Names of rules.",
      keysOnOtherPlans?: PlanOfKey[] "At most 100, of the first 1,000 keys.",
      hasMoreKeys?: boolean "Other keys may have other plans, too."`,
    PlanOfKey: 'id, plan?',
    RemovedConsumer: 'consumer, removed: boolean, keys: integer',
  },
}
