/** API keys and imported keys. What imports them is in import-key.ts. */
import {
  createdKeyDocument,
  keyDocument,
  revokedKeyDocument,
  rotatedKeyDocument,
} from '../../../ops/documents/keys.ts'
import { type FoundKey, findKeyById } from '../../../ops/find-key.ts'
import { changeKey, revokeKey, rotateKey, showKey } from '../../../ops/key-changes.ts'
import { readKeyPage } from '../../../ops/key-pages.ts'
import { createKey, type NewKey } from '../../../ops/keys.ts'
import { parseConsumerName } from '../../../ops/names.ts'
import { mustHaveAny } from '../authenticate.ts'
import { pageDocument, pageOf } from '../cursor.ts'
import type { InputOf } from '../json-schema.ts'
import { consumerOf, overlapOf, parsed, valuesOf } from '../parse-input.ts'
import { invalidInput } from '../problems.ts'
import { type AdminCall, adminRoute, type Services } from '../route.ts'
import { changeKeyBody, createKeyBody, keysQuery, rotateBody } from '../schemas.ts'

const SCOPES = ['keys:write'] as const
const PATH = 'keys/{consumer}/{digits}'

export const keysRoutes = [
  adminRoute({
    method: 'GET',
    path: 'keys',
    scopes: SCOPES,
    query: keysQuery,
    async run({ store, query }) {
      const { consumer: name } = query
      const consumer =
        name === undefined ? undefined : await parsed('?consumer', () => parseConsumerName(name))
      const page = await readKeyPage(store, consumer, pageOf(query, 'keys'))
      return pageDocument('keys', page, keyDocument)
    },
  }),
  adminRoute({
    method: 'POST',
    path: 'keys',
    scopes: SCOPES,
    body: createKeyBody,
    isCreation: true,
    async run(call, services) {
      services.signing?.mustSign(call.store)
      const created = await createKey(call.store, await newKeyOf(call, services), call.claim)
      return createdKeyDocument(created)
    },
  }),
  adminRoute({
    method: 'GET',
    path: PATH,
    scopes: SCOPES,
    run: async call => keyDocument(await showKey(call.store, await keyOf(call))),
  }),
  adminRoute({
    method: 'PATCH',
    path: PATH,
    scopes: SCOPES,
    body: changeKeyBody,
    async run(call, services) {
      checkPlanScope(call)
      const change = await valuesOf(call.body, services)
      await changeKey(call.store, await keyOf(call), change)
      return keyDocument(await showKey(call.store, await keyOf(call)))
    },
  }),
  adminRoute({
    method: 'POST',
    path: `${PATH}/rotate`,
    scopes: SCOPES,
    body: rotateBody,
    isCreation: true,
    async run(call, { signing }) {
      signing?.mustSign(call.store)
      const overlapMs = overlapOf(call.body)
      const found = await keyOf(call)
      return rotatedKeyDocument(found.id, await rotateKey(call.store, found, overlapMs, call.claim))
    },
  }),
  adminRoute({
    method: 'DELETE',
    path: PATH,
    scopes: SCOPES,
    async run(call) {
      const found = await keyOf(call)
      await revokeKey(call.store, found)
      return revokedKeyDocument(found.id)
    },
  }),
]

async function keyOf(call: AdminCall<unknown, unknown>): Promise<FoundKey> {
  const consumer = await consumerOf(call)
  const { digits } = call.params
  if (!/^[0-9a-f]{4,64}$/.test(digits!)) throw invalidInput('{digits}', 'Use the digits of the id of a key.')
  return await findKeyById(call.store, consumer, digits!)
}

type NewKeyBody = InputOf<typeof createKeyBody>

export async function newKeyOf(call: AdminCall<NewKeyBody, unknown>, services: Services): Promise<NewKey> {
  checkPlanScope(call)
  const { expiresAt, ...values } = await valuesOf(call.body, services)
  return { ...values, ...(expiresAt && { expiresAt }) }
}

/** A plan raises limits, so it needs the scope for plans. @throws ApiError */
function checkPlanScope({ body, token }: AdminCall<{ plan?: string | null }, unknown>): void {
  if (body.plan !== undefined) mustHaveAny(token, ['consumers:write'], 'A plan')
}
