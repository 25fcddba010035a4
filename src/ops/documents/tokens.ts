/** Documents about service tokens. Only the one of a new token has the token. */
import type { CreatedToken, RotatedToken, TokenInfo } from '../tokens.ts'
import { type Json, toJson } from './json.ts'

export type TokenDocument = Json<TokenInfo>

/** With the token, which cannot be shown again. */
export type CreatedTokenDocument = Json<Omit<CreatedToken, 'digest'>>

export type RotatedTokenDocument = CreatedTokenDocument & {
  /** The old token, and when it expires. null: its expiry could not be set. */
  replaces: { id: string; expiresAt: string | null }
}

export const tokenDocument = (token: TokenInfo): TokenDocument => toJson(token)

export const createdTokenDocument = ({ digest: _, ...rest }: CreatedToken): CreatedTokenDocument =>
  toJson(rest)

export const rotatedTokenDocument = (
  id: string,
  { created, oldEndsAt }: RotatedToken,
): RotatedTokenDocument =>
  toJson({ ...createdTokenDocument(created), replaces: { id, expiresAt: oldEndsAt ?? null } })

export const revokedTokenDocument = (id: string) => ({ id, revoked: true as const })
