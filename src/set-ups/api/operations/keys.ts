/** What the OpenAPI document says about API keys and imported keys. */
import type { PartOperations } from '../reply-schemas.ts'
import { CREDENTIAL, KEY } from './shared.ts'

export const keysOperations: PartOperations = {
  operations: {
    'GET keys': 'listKeys KeyPage',
    'POST keys': 'createKey CreatedKey',
    'POST keys/import': 'importKey Key',
    'GET keys/{consumer}/{digits}': 'showKey Key',
    'PATCH keys/{consumer}/{digits}': 'changeKey Key',
    'POST keys/{consumer}/{digits}/rotate': 'rotateKey RotatedKey',
    'DELETE keys/{consumer}/{digits}': 'revokeKey Revoked',
  },
  schemas: {
    ...{ ...KEY, ...CREDENTIAL },
    KeyPage: 'items: Key[], cursor?',
    CreatedKey: '...Key, key',
    RotatedKey: '...CreatedKey, replaces: Replaced',
  },
}
