/** The OpenAPI document. */
import { openApiDocument } from '../openapi.ts'
import type { Route } from '../route.ts'

export const openapiRoutes: readonly Route[] = [
  {
    kind: 'open',
    method: 'GET',
    path: 'openapi.json',
    create({ routes }) {
      let text: string | undefined
      return () => {
        text ??= JSON.stringify(openApiDocument(routes))
        return text
      }
    },
  },
]
