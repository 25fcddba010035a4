/** The OpenAPI document. */
import { openApiDocument } from '../openapi.ts'
import type { OpenRoute } from '../route.ts'

export const openapiRoutes: readonly OpenRoute[] = [
  {
    kind: 'open',
    method: 'GET',
    path: 'openapi.json',
    create(routes) {
      const text = JSON.stringify(openApiDocument(routes))
      return () => new Response(text, { headers: { 'content-type': 'application/json' } })
    },
  },
]
