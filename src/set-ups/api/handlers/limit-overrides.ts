/** Overrides of limits by name: other numbers, or another mode, of a rule for one identity. */
import { listLimitOverrides, removeLimitOverride, setLimitOverride } from '../../../ops/limit-overrides.ts'
import { identityBody, limitOverrideBody } from '../limit-schemas.ts'
import { parsed, valuesOf } from '../parse-input.ts'
import { type AdminCall, adminRoute, type Services } from '../route.ts'
import { rulesOf } from './limits.ts'

const PATH = 'limits/{name}/overrides'
const scopes = ['overrides:write'] as const

/** @throws ApiError for an unknown limit */
function contextOf(call: AdminCall<unknown, unknown>, services: Services) {
  rulesOf(call, services)
  const { store, params } = call
  return { store, config: services.config, overrides: services.overridesOf(params.name!) }
}

export const limitOverridesRoutes = [
  adminRoute({
    ...{ method: 'GET', path: PATH, scopes },
    run: async (call, services) => await listLimitOverrides(contextOf(call, services), call.params.name!),
  }),
  adminRoute({
    ...{ method: 'PUT', path: `${PATH}/{rule}`, scopes, body: limitOverrideBody },
    async run(call, services) {
      const context = contextOf(call, services)
      const { until, removeStale, identity = {}, ...numbers } = await valuesOf(call.body, services)
      const { name = '', rule = '' } = call.params
      const input = { rule, ...numbers, ...(until && { until }) }
      const signature = { at: new Date(services.now()), by: call.change.actor.name, removeStale }
      return await parsed('', () => setLimitOverride(context, name, identity, input, signature))
    },
  }),
  adminRoute({
    ...{ method: 'POST', path: `${PATH}/{rule}/remove`, scopes, body: identityBody },
    async run(call, services) {
      const context = contextOf(call, services)
      const { name = '', rule = '' } = call.params
      return await parsed('', () => removeLimitOverride(context, name, call.body.identity ?? {}, rule))
    },
  }),
]
