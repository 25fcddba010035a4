/** The OpenAPI document. */
import { openApiDocument } from '../openapi.ts'
import type { PartOperations } from '../reply-schemas.ts'
import type { Route } from '../route.ts'

/** @param parts that are served, with what the document says about them */
export const createOpenapiRoutes = (parts: readonly PartOperations[]): readonly Route[] => [
  {
    kind: 'open',
    method: 'GET',
    path: 'openapi.json',
    create({ routes }) {
      let text: string | undefined
      return () => {
        text ??= JSON.stringify(openApiDocument(routes, parts))
        return text
      }
    },
  },
]
