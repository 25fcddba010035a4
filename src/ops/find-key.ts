/** Finds a key by the digits of its id. */
import { credentialIndexKey, credentialKey } from '../store/keys.ts'
import { type CredentialRecord, parseCredential } from '../store/records.ts'
import type { AdminStore } from './admin-store-shape.ts'
import { findDigest, notFound } from './digits.ts'
import { mustBeListed } from './key-pages.ts'
import { keyId } from './keys.ts'

export interface FoundKey {
  id: string
  consumer: string
  digest: string
  record: CredentialRecord
}

/**
 * @param prefix the first digits of its digest
 * @throws AdminError if no key or more than one matches
 */
export async function findKeyById(store: AdminStore, consumer: string, prefix: string): Promise<FoundKey> {
  const index = store.at(credentialIndexKey(consumer))
  const idOf = (digest: string, digits: number) => keyId(consumer, digest, digits)
  const found = await findDigest(store, 'key', index, prefix, idOf)
  if (found) return await readFound(store, { consumer, ...found })
  await mustBeListed(store, consumer)
  throw notFound(store, 'key', `${consumer}/${prefix}`)
}

/** @throws AdminError `not-found` if it is in the index alone */
export async function readFound(
  store: AdminStore,
  { id, consumer, digest }: Omit<FoundKey, 'record'>,
): Promise<FoundKey> {
  const text = await store.run<string | null>('GET', store.at(credentialKey(consumer, digest)))
  return { id, consumer, digest, record: validRecord(store, id, text ?? '') }
}

/** @throws AdminError `not-found` if the text is not a record: the key has expired or was revoked */
export function validRecord(store: AdminStore, id: string, text: string): CredentialRecord {
  const record = parseCredential(text)
  if (record) return record
  throw notFound(store, 'key', id)
}
