/** All routes of the API. The router, the OpenAPI document and docs/api-reference.md are made from this list. */
import type { ApiRoutes } from '../../config/check/schema.ts'
import { auditRoutes } from './handlers/audit.ts'
import { consumersRoutes } from './handlers/consumers.ts'
import { importRoutes } from './handlers/import-key.ts'
import { keysRoutes } from './handlers/keys.ts'
import { limitsRoutes } from './handlers/limits.ts'
import { createOpenapiRoutes } from './handlers/openapi.ts'
import { overridesRoutes } from './handlers/overrides.ts'
import { statsRoutes } from './handlers/stats.ts'
import { switchesRoutes } from './handlers/switches.ts'
import { tokensRoutes } from './handlers/tokens.ts'
import { usageRoutes } from './handlers/usage.ts'
import { whyRoutes } from './handlers/why.ts'
import { API_OPERATIONS } from './openapi-operations.ts'
import type { Route } from './route.ts'

/** By the names of the setting `api.routes`. A built Worker carries only those that its config serves (built.ts). */
export const API_ROUTES: Readonly<Record<ApiRoutes, readonly Route[]>> = {
  openapi: createOpenapiRoutes(Object.values(API_OPERATIONS)),
  limits: limitsRoutes,
  usage: usageRoutes,
  keys: [...keysRoutes, ...importRoutes],
  consumers: consumersRoutes,
  overrides: overridesRoutes,
  switches: switchesRoutes,
  stats: statsRoutes,
  why: whyRoutes,
  tokens: tokensRoutes,
  audit: auditRoutes,
}

export const ROUTES: readonly Route[] = Object.values(API_ROUTES).flat()
