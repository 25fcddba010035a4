/** Administration of service tokens. An id is that of `list`; the token itself works as well. */
import type { AdminContext } from '../context.ts'
import {
  type CreatedTokenDocument,
  createdTokenDocument,
  type RotatedTokenDocument,
  revokedTokenDocument,
  rotatedTokenDocument,
  type TokenDocument,
  tokenDocument,
} from '../documents/tokens.ts'
import { checkFields, type NewTokenInput, parseNewToken, parseOverlap } from '../inputs.ts'
import { createToken, findToken, listTokens, revokeToken, rotateToken } from '../tokens.ts'

export type TokenAdmin = ReturnType<typeof administerTokens>

export function administerTokens({ store, config, by }: AdminContext) {
  return {
    /** Creates a service token for the HTTP API. Only this document has the token. */
    async create(input: NewTokenInput): Promise<CreatedTokenDocument> {
      checkFields('tokens.create', input, ['name', 'scopes', 'expires'])
      return createdTokenDocument(
        await createToken(store, { ...parseNewToken(input, config.limits.keys()), by }),
      )
    },

    async list(): Promise<TokenDocument[]> {
      return (await listTokens(store)).map(tokenDocument)
    },

    async show(id: string): Promise<TokenDocument> {
      const found = await findToken(store, id)
      return tokenDocument({ id: found.id, ...found.record })
    },

    async revoke(id: string) {
      const found = await findToken(store, id)
      await revokeToken(store, found)
      return revokedTokenDocument(found.id)
    },

    /**
     * Replaces a token by a new one with the same name, scopes and lifetime.
     * @param overlap how long the old token stays valid. Default: 24h
     */
    async rotate(id: string, overlap = '24h'): Promise<RotatedTokenDocument> {
      const overlapMs = parseOverlap(overlap, 'overlap')
      const found = await findToken(store, id)
      return rotatedTokenDocument(found.id, await rotateToken(store, found, overlapMs, { by }))
    },
  }
}
