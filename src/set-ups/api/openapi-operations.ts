/** What the OpenAPI document says about all routes of the API. A built Worker has only what its routes need (built.ts). */
import type { ApiRoutes } from '../../config/check/schema.ts'
import { auditOperations } from './operations/audit.ts'
import { consumersOperations } from './operations/consumers.ts'
import { heldUnitsOperations } from './operations/held-units.ts'
import { importOperations } from './operations/import-key.ts'
import { keysOperations } from './operations/keys.ts'
import { limitOverridesOperations } from './operations/limit-overrides.ts'
import { limitsOperations } from './operations/limits.ts'
import { openapiOperations } from './operations/openapi.ts'
import { overridesOperations } from './operations/overrides.ts'
import { PROBLEM } from './operations/problem.ts'
import { reservationsOperations } from './operations/reservations.ts'
import { statsOperations } from './operations/stats.ts'
import { switchesOperations } from './operations/switches.ts'
import { tokensOperations } from './operations/tokens.ts'
import { usageOperations } from './operations/usage.ts'
import { whyOperations } from './operations/why.ts'
import { createReplySchemas, type PartOperations } from './reply-schemas.ts'

const merge = (...parts: PartOperations[]): PartOperations => ({
  operations: Object.assign({}, ...parts.map(part => part.operations)),
  schemas: Object.assign({}, ...parts.map(part => part.schemas)),
})

/** By the names of the setting `api.routes`. */
export const API_OPERATIONS: Readonly<Record<ApiRoutes, PartOperations>> = {
  openapi: openapiOperations,
  limits: merge(limitsOperations, reservationsOperations, heldUnitsOperations),
  usage: usageOperations,
  keys: merge(keysOperations, importOperations),
  consumers: consumersOperations,
  overrides: merge(overridesOperations, limitOverridesOperations),
  switches: switchesOperations,
  stats: statsOperations,
  why: whyOperations,
  tokens: tokensOperations,
  audit: auditOperations,
}

const { operations: OPERATIONS, schemas: SCHEMAS } = merge(...Object.values(API_OPERATIONS))

/** JSON Schema 2020-12. */
export type JsonSchema = Readonly<Record<string, unknown>>

const components: Record<string, JsonSchema> = {}

const schemaOf = createReplySchemas({ ...PROBLEM, ...SCHEMAS }, (_, name, create) => {
  components[name] ??= create() as JsonSchema
  return { $ref: `#/components/schemas/${name}` }
})

for (const type of ['Problem', ...Object.values(OPERATIONS).map(([, reply]) => reply)]) schemaOf(type)

/** The schemas of replies, by their names in the document. */
export const COMPONENTS: Readonly<Record<string, JsonSchema>> = components

/**
 * What the document says about a route: `result` is the schema of its success. The command line knows routes by their ids.
 *
 * @throws Error for a route that operations/ lacks
 */
export function operationOf({ method, path }: { method: string; path: string }) {
  const operation = OPERATIONS[`${method} ${path}`]
  if (!operation) throw new Error(`operations/ has no ${method} ${path}.`)
  const [id, reply, summary] = operation
  return { id, summary, result: schemaOf(reply) as JsonSchema }
}
