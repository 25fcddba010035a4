/** What the OpenAPI document says about the import of keys. */
import type { PartOperations } from '../reply-schemas.ts'
import { KEY, WITH_PLAN } from './shared.ts'

export const importOperations: PartOperations = {
  operations: {
    'POST keys/import': [
      'importKey',
      'Key',
      'Import a key that was created elsewhere',
      `By its SHA-256, or as text. The config needs \`credentials.opaqueKeys\`. ${WITH_PLAN}`,
    ],
  },
  schemas: KEY,
}
