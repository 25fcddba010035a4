/** Live switches. */
import { switchesDocument } from '../../../ops/documents/switches.ts'
import {
  checkRuleChange,
  findSwitchable,
  killLimits,
  readSwitches,
  resetRule,
  restoreLimits,
  switchRule,
} from '../../../ops/switches.ts'
import type { Switch, Switches } from '../../../switches/switches.ts'
import { type InputSchema, object } from '../json-schema.ts'
import { parsed, valuesOf } from '../parse-input.ts'
import { type AdminCall, adminRoute, type Services } from '../route.ts'
import { end, blockBody as killBody, label, mode } from '../schemas.ts'

const SCOPES = ['switches:write'] as const

const switchBody = object({
  'mode?': mode,
  'share?': { type: 'number', minimum: 0, maximum: 1 } as InputSchema<number>,
  'until?': end,
  'reason?': label,
})

export const switchesRoutes = [
  adminRoute({
    method: 'GET',
    path: 'switches',
    scopes: ['switches:write', 'stats:read'],
    run: async ({ store }, services) => documentOf(await readSwitches(store), services),
  }),
  adminRoute({
    method: 'PUT',
    path: 'switches/{rule}',
    scopes: SCOPES,
    body: switchBody,
    async run(call, services) {
      const { mode, share } = call.body
      await parsed('', () => checkRuleChange(call.body))
      const change = {
        ...(await switchOf(call, services)),
        ...(mode && { mode }),
        ...(share !== undefined && { share }),
      }
      findSwitchable(services.config, call.params.rule!)
      return documentOf(await switchRule(call.store, call.params.rule!, change), services)
    },
  }),
  adminRoute({
    method: 'DELETE',
    path: 'switches/{rule}',
    scopes: SCOPES,
    async run({ store, params }, services) {
      const { switches, isChanged } = await resetRule(store, params.rule!)
      // Without a switch, the name of the rule may be misspelled.
      if (!isChanged) findSwitchable(services.config, params.rule!)
      return documentOf(switches, services)
    },
  }),
  adminRoute({
    method: 'PUT',
    path: 'kill-switch',
    scopes: SCOPES,
    body: killBody,
    run: async (call, services) =>
      documentOf(await killLimits(call.store, await switchOf(call, services)), services),
  }),
  adminRoute({
    method: 'DELETE',
    path: 'kill-switch',
    scopes: SCOPES,
    run: async ({ store }, services) => documentOf((await restoreLimits(store)).switches, services),
  }),
]

const documentOf = (switches: Switches, { config }: Services) => switchesDocument(switches, config)

async function switchOf(
  { body, change: { actor, reason } }: AdminCall<{ until?: string | null }, unknown>,
  services: Services,
): Promise<Switch> {
  const { until } = await valuesOf(body, services)
  return {
    ...{ at: new Date(services.now()), by: actor.name },
    ...(until && { until }),
    ...(reason && { reason }),
  }
}
