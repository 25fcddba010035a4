/** What the OpenAPI document says about itself. */
import type { PartOperations } from '../reply-schemas.ts'

export const openapiOperations: PartOperations = {
  operations: { 'GET openapi.json': ['openapi', 'object', 'This document'] },
  schemas: {},
}
