/** The OpenAPI document. */
import { OPENAPI } from '../openapi.generated.ts'
import type { OpenRoute } from '../route.ts'

export const openapiRoutes: readonly OpenRoute[] = [
  {
    kind: 'open',
    id: 'openapi',
    method: 'GET',
    path: 'openapi.json',
    run: () => new Response(OPENAPI, { headers: { 'content-type': 'application/json' } }),
  },
]
