/** All routes of the API. The router, the OpenAPI document and docs/api-reference.md are made from this list. */
import type { ApiRoutes } from '../../config/check/schema.ts'
import type { Config } from '../../config/compile.ts'
import { auditRoutes } from './handlers/audit.ts'
import { consumersRoutes } from './handlers/consumers.ts'
import { heldUnitsRoutes } from './handlers/held-units.ts'
import { importRoutes } from './handlers/import-key.ts'
import { keysRoutes } from './handlers/keys.ts'
import { limitOverridesRoutes } from './handlers/limit-overrides.ts'
import { limitsRoutes } from './handlers/limits.ts'
import { createOpenapiRoutes } from './handlers/openapi.ts'
import { overridesRoutes } from './handlers/overrides.ts'
import { reservationsRoutes } from './handlers/reservations.ts'
import { statsRoutes } from './handlers/stats.ts'
import { switchesRoutes } from './handlers/switches.ts'
import { tokensRoutes } from './handlers/tokens.ts'
import { usageRoutes } from './handlers/usage.ts'
import { whyRoutes } from './handlers/why.ts'
import { API_OPERATIONS } from './openapi-operations.ts'
import type { Route } from './route.ts'
import { type FurtherRoutes, furtherRoutes, servedParts } from './routes-needed.ts'

/** Those that only some configs need. */
const FURTHER: Readonly<Record<FurtherRoutes, readonly Route[]>> = {
  import: importRoutes,
  reservations: reservationsRoutes,
  heldUnits: heldUnitsRoutes,
  limitOverrides: limitOverridesRoutes,
}

/** By the names of the setting `api.routes`. A built Worker carries only those that its config serves (built.ts). */
export const API_ROUTES: Readonly<Record<ApiRoutes, readonly Route[]>> = {
  openapi: createOpenapiRoutes(Object.values(API_OPERATIONS)),
  limits: [...limitsRoutes, ...FURTHER.reservations, ...FURTHER.heldUnits],
  usage: usageRoutes,
  keys: [...keysRoutes, ...FURTHER.import],
  consumers: consumersRoutes,
  overrides: [...overridesRoutes, ...FURTHER.limitOverrides],
  switches: switchesRoutes,
  stats: statsRoutes,
  why: whyRoutes,
  tokens: tokensRoutes,
  audit: auditRoutes,
}

export const ROUTES: readonly Route[] = Object.values(API_ROUTES).flat()

/** Those that a config serves: as many as a Worker carries that is built for it. */
export function routesServedBy(config: Config): Route[] {
  const parts = servedParts(Object.keys(API_ROUTES) as ApiRoutes[], config)
  const further = parts.flatMap(part => furtherRoutes(part, config))
  const unneeded = Object.entries(FURTHER).flatMap(([name, routes]) =>
    further.includes(name as FurtherRoutes) ? [] : routes,
  )
  return parts.flatMap(part => API_ROUTES[part]).filter(route => !unneeded.includes(route))
}
