/** What the OpenAPI document says about all routes of the API. A built Worker has only what its routes need (built.ts). */
import type { ApiRoutes } from '../../config/check/schema.ts'
import { auditOperations } from './operations/audit.ts'
import { consumersOperations } from './operations/consumers.ts'
import { keysOperations } from './operations/keys.ts'
import { limitsOperations } from './operations/limits.ts'
import { openapiOperations } from './operations/openapi.ts'
import { overridesOperations } from './operations/overrides.ts'
import { statsOperations } from './operations/stats.ts'
import { switchesOperations } from './operations/switches.ts'
import { tokensOperations } from './operations/tokens.ts'
import { usageOperations } from './operations/usage.ts'
import { whyOperations } from './operations/why.ts'
import type { PartOperations } from './reply-schemas.ts'

/** By the names of the setting `api.routes`. */
export const API_OPERATIONS: Readonly<Record<ApiRoutes, PartOperations>> = {
  openapi: openapiOperations,
  limits: limitsOperations,
  usage: usageOperations,
  keys: keysOperations,
  consumers: consumersOperations,
  overrides: overridesOperations,
  switches: switchesOperations,
  stats: statsOperations,
  why: whyOperations,
  tokens: tokensOperations,
  audit: auditOperations,
}

const OPERATIONS: PartOperations['operations'] = Object.assign(
  {},
  ...Object.values(API_OPERATIONS).map(part => part.operations),
)

/** The id of the operation of a route, in the document and the command line. @throws Error for a route that operations/ lacks */
export function operationIdOf({ method, path }: { method: string; path: string }): string {
  const operation = OPERATIONS[`${method} ${path}`]
  if (!operation) throw new Error(`src/set-ups/api/operations/ has no ${method} ${path}.`)
  return operation.split(' ')[0]!
}
