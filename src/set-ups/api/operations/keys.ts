/** What the OpenAPI document says about API keys and imported keys. What it says about their import is in import-key.ts. */
import type { PartOperations } from '../reply-schemas.ts'
import { CREDENTIAL, KEY, PAGE, REMOVED, WITH_PLAN } from './shared.ts'

export const keysOperations: PartOperations = {
  operations: {
    'GET keys': ['listKeys', 'KeyPage', 'List keys'],
    'POST keys': ['createKey', 'CreatedKey', 'Create an API key', WITH_PLAN],
    'GET keys/{consumer}/{digits}': ['showKey', 'Key', 'Show a key'],
    'PATCH keys/{consumer}/{digits}': [
      'changeKey',
      'Key',
      'Change the label, the plan or the end of a key',
      `null removes a value. ${WITH_PLAN}`,
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
