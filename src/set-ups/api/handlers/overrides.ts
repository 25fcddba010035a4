/** Overrides: other numbers, or another mode, for one rule and one consumer. */
import { overrideChangeDocument, settingsDocument } from '../../../ops/documents/consumers.ts'
import { removeOverride, setOverride } from '../../../ops/override-changes.ts'
import { consumerOf, parsed, valuesOf } from '../parse-input.ts'
import { adminRoute } from '../route.ts'
import { overrideBody } from '../schemas.ts'

const PATH = 'consumers/{consumer}'

export const overridesRoutes = [
  adminRoute({
    method: 'PUT',
    path: `${PATH}/overrides/{rule}`,
    scopes: ['overrides:write'],
    body: overrideBody,
    async run(call, services) {
      const { overrides, now } = services
      const { until, removeStale, ...numbers } = await valuesOf(call.body, services)
      const consumer = await consumerOf(call)
      const compiled = await parsed('', () =>
        overrides.compile({ rule: call.params.rule!, ...numbers, ...(until && { until }) }),
      )
      const override = { ...compiled, at: new Date(now()), by: call.change.actor.name }
      const change = await setOverride(call.store, consumer, override, {
        rules: overrides,
        removeStale,
      })
      return overrideChangeDocument(consumer, override, change, services)
    },
  }),
  adminRoute({
    method: 'DELETE',
    path: `${PATH}/overrides/{rule}`,
    scopes: ['overrides:write'],
    async run(call, services) {
      const consumer = await consumerOf(call)
      const rule = call.params.rule!
      const { record, isChanged } = await removeOverride(call.store, consumer, rule)
      // Without an override, the name of the rule may be misspelled.
      if (!isChanged) services.overrides.find(rule)
      return settingsDocument(consumer, record, services)
    },
  }),
]
