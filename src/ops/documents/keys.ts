/** Documents about keys. Only the one of a new key has its secret. */
import type { Rotated } from '../key-changes.ts'
import type { CreatedKey, KeyInfo, KeyStats } from '../keys.ts'
import { type Json, toJson } from './json.ts'

export type KeyDocument = Json<KeyInfo>

/** With the secret, which cannot be shown again. */
export type CreatedKeyDocument = Json<CreatedKey>

export type RotatedKeyDocument = CreatedKeyDocument & {
  /** The old key, and when it expires. null: its expiry could not be set. */
  replaces: { id: string; expiresAt: string }
}

/** How many keys each secret has signed, by its id; the ids of the others, and when the last of these expires. null: never. */
export interface KeyStatsDocument {
  signed: Record<string, number>
  unsigned: string[]
  allSignedAt: string | null
}

export const keyDocument = (key: KeyInfo): KeyDocument => toJson(key)

export const createdKeyDocument = (key: CreatedKey): CreatedKeyDocument => toJson(key)

export const rotatedKeyDocument = (id: string, { created, oldEndsAt }: Rotated): RotatedKeyDocument =>
  toJson({ ...created, replaces: { id, expiresAt: oldEndsAt } })

/** @param label undefined: none */
export const keyLabelDocument = (id: string, label: string | undefined) => ({ id, label: label ?? null })

/** @param plan undefined: that of the consumer */
export const keyPlanDocument = (id: string, plan: string | undefined) => ({ id, plan: plan ?? null })

/** @param at undefined: never */
export const keyExpiryDocument = (id: string, at: Date | undefined) => toJson({ id, expiresAt: at ?? null })

export const revokedKeyDocument = (id: string) => ({ id, revoked: true as const })

export const keyStatsDocument = ({ signed, unsigned, allSignedAt }: KeyStats): KeyStatsDocument =>
  toJson({ signed, unsigned: unsigned.map(({ id }) => id), allSignedAt: allSignedAt ?? null })
