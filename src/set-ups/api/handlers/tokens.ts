/** Service tokens. A token makes, rotates and revokes only tokens whose scopes it has itself. */
import {
  createdTokenDocument,
  revokedTokenDocument,
  rotatedTokenDocument,
  tokenDocument,
} from '../../../ops/documents/tokens.ts'
import { createToken, findTokenById, readTokenPage, revokeToken, rotateToken } from '../../../ops/tokens.ts'
import { isScope, SCOPE_NAMES } from '../../../scopes.ts'
import { pageDocument, pageOf } from '../cursor.ts'
import { overlapOf, valuesOf } from '../parse-input.ts'
import { invalidInput } from '../problems.ts'
import { type AdminCall, adminRoute } from '../route.ts'
import { createTokenBody, listQuery, rotateBody } from '../schemas.ts'

const SCOPES = ['tokens:write'] as const

export const tokensRoutes = [
  adminRoute({
    method: 'GET',
    path: 'tokens',
    scopes: SCOPES,
    query: listQuery,
    async run({ store, query }) {
      const page = await readTokenPage(store, pageOf(query, 'tokens'))
      return pageDocument('tokens', page, tokenDocument)
    },
  }),
  adminRoute({
    method: 'POST',
    path: 'tokens',
    scopes: SCOPES,
    body: createTokenBody,
    isCreation: true,
    async run({ store, body, token, claim }, services) {
      const { name, scopes, expiresAt } = await valuesOf(body, services)
      const unknown = scopes.findIndex(scope => !isScope(scope))
      if (unknown >= 0)
        throw invalidInput(
          `/scopes/${unknown}`,
          `There is no such scope. Scopes: ${SCOPE_NAMES.join(', ')}, limits:use:<limit>.`,
        )
      const created = await createToken(
        store,
        { name, scopes, ...(expiresAt && { expiresAt }), by: token.name },
        { maker: token, before: claim },
      )
      return createdTokenDocument(created)
    },
  }),
  adminRoute({
    method: 'GET',
    path: 'tokens/{id}',
    scopes: SCOPES,
    async run(call) {
      const { id, record } = await tokenOf(call)
      return tokenDocument({ id, ...record })
    },
  }),
  adminRoute({
    method: 'POST',
    path: 'tokens/{id}/rotate',
    scopes: SCOPES,
    body: rotateBody,
    isCreation: true,
    async run(call, { tokens }) {
      const overlapMs = overlapOf(call.body)
      const found = await tokenOf(call)
      const { token, claim } = call
      const rotated = await rotateToken(call.store, found, overlapMs, {
        maker: token,
        before: claim,
        by: token.name,
      })
      tokens.forget(found.digest)
      return rotatedTokenDocument(found.id, rotated)
    },
  }),
  adminRoute({
    method: 'DELETE',
    path: 'tokens/{id}',
    scopes: SCOPES,
    async run(call, { tokens }) {
      const found = await tokenOf(call)
      await revokeToken(call.store, found, call.token)
      tokens.forget(found.digest)
      return revokedTokenDocument(found.id)
    },
  }),
]

async function tokenOf({ store, params }: AdminCall<unknown, unknown>) {
  if (!/^[0-9a-f]{4,64}$/.test(params.id!)) throw invalidInput('{id}', 'Use the id of a token.')
  return await findTokenById(store, params.id!)
}
