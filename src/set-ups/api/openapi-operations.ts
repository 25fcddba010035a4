/** What the OpenAPI document says about all routes of the API. A built Worker has only what its routes need (built.ts). */
import type { ApiRoutes } from '../../config/check/schema.ts'
import { auditOperations } from './operations/audit.ts'
import { consumersOperations } from './operations/consumers.ts'
import { importOperations } from './operations/import-key.ts'
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
  keys: {
    operations: { ...keysOperations.operations, ...importOperations.operations },
    schemas: keysOperations.schemas,
  },
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

/** What the document says about a route. The command line knows routes by their ids. @throws Error for a route that operations/ lacks */
export function operationOf({ method, path }: { method: string; path: string }) {
  const operation = OPERATIONS[`${method} ${path}`]
  if (!operation) throw new Error(`src/set-ups/api/operations/ has no ${method} ${path}.`)
  const [id, , summary] = operation
  return { id, summary }
}
