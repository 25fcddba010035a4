/** Imports keys that were created elsewhere. A Worker without `credentials.opaqueKeys`, which would not accept them, does not carry it. */
import { keyDocument } from '../../../ops/documents/keys.ts'
import { importKey } from '../../../ops/keys.ts'
import { object, text, textOf } from '../json-schema.ts'
import { parsed } from '../parse-input.ts'
import { invalidInput } from '../problems.ts'
import { adminRoute } from '../route.ts'
import { newKey } from '../schemas.ts'
import { newKeyOf } from './keys.ts'

/** Either the key, or its SHA-256. */
const importKeyBody = object({
  ...newKey,
  'sha256?': textOf('^[0-9a-fA-F]{64}$'),
  'key?': text(512, 16),
})

export const importRoutes = [
  adminRoute({
    method: 'POST',
    path: 'keys/import',
    scopes: ['keys:write'],
    body: importKeyBody,
    isCreation: true,
    async run(call, services) {
      const { key, sha256: digest, ...body } = call.body
      if ((key === undefined) === (digest === undefined))
        throw invalidInput('', 'Send either key or sha256, not both.')
      const opaque = digest === undefined ? { key: key! } : { digest }
      const newKey = await newKeyOf({ ...call, body }, services)
      const imported = await parsed('/key', () => importKey(call.store, opaque, newKey, call.claim))
      return keyDocument(imported)
    },
  }),
]
