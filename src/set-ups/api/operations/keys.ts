/** What the OpenAPI document says about API keys and imported keys. */
import type { PartOperations } from '../reply-schemas.ts'
import { CREDENTIAL, KEY, PAGE, REMOVED } from './shared.ts'

export const keysOperations: PartOperations = {
  operations: {
    'GET keys': ['listKeys', 'KeyPage', 'List keys'],
    'POST keys': [
      'createKey',
      'CreatedKey',
      'Create an API key',
      'With `plan`, the scope consumers:write is needed too.',
    ],
    'POST keys/import': [
      'importKey',
      'Key',
      'Import a key that was created elsewhere',
      'By its SHA-256, or as text. With `plan`, the scope consumers:write is needed too.',
    ],
    'GET keys/{consumer}/{digits}': ['showKey', 'Key', 'Show a key'],
    'PATCH keys/{consumer}/{digits}': [
      'changeKey',
      'Key',
      'Change the label, the plan or the end of a key',
      'null removes a value. With `plan`, the scope consumers:write is needed too.',
    ],
    'POST keys/{consumer}/{digits}/rotate': ['rotateKey', 'RotatedKey', 'Replace a key by a new one'],
    'DELETE keys/{consumer}/{digits}': ['revokeKey', 'Revoked', 'Revoke a key', REMOVED],
  },
  schemas: {
    ...{ ...PAGE, ...KEY, ...CREDENTIAL },
    KeyPage: 'items: Key[], ...Page',
    CreatedKey: '...Key, key "The key itself. It cannot be shown again."',
    RotatedKey: '...CreatedKey, replaces: Replaced',
  },
}
