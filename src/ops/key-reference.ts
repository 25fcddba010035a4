/** Finds a key by its id, as `keys list` shows it, or by the key itself. */

import { didYouMean, nearest } from '../config/check/did-you-mean.ts'
import { consumerOfApiKey } from '../credentials/api-key.ts'
import { isOpaqueKey } from '../credentials/opaque-key.ts'
import { sha256 } from '../sha256.ts'
import { credentialIndexKey, credentialKey, pointerKey } from '../store/keys.ts'
import { type CredentialRecord, parseCredential } from '../store/records.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store.ts'
import { distinguishingDigits, keyId, listConsumerNames } from './keys.ts'
import { parseConsumerName } from './names.ts'

export interface FoundKey {
  id: string
  consumer: string
  digest: string
  record: CredentialRecord
}

const ID = /^([^/]{1,255})\/([0-9a-f]{4,64})$/s

/**
 * @param text an id or a key. It may be a secret, so no message repeats it.
 * @throws AdminError if no key or more than one matches; its message lists the consumer's keys
 */
export async function findKey(store: AdminStore, text: string): Promise<FoundKey> {
  const { consumer, digest, id } = (await byId(store, text)) ?? (await byKey(store, text))
  const record = await store.run<string | null>('GET', store.at(credentialKey(consumer, digest)))
  const parsed = parseCredential(record ?? '')
  if (parsed) return { id, consumer, digest, record: parsed }
  throw new AdminError(
    'not-found',
    `There is no key '${id}' ${whereOf(store)}: it never existed, has expired, or was revoked. ` +
      'If it belongs to another environment, use --env <name>.',
  )
}

function whereOf({ environment }: AdminStore): string {
  return environment === undefined ? 'in the unnamed environment' : `in environment '${environment}'`
}

/** @returns undefined if the text is not an id. An opaque key can look like the id of a consumer that does not exist. */
async function byId(store: AdminStore, text: string): Promise<Found | undefined> {
  const [, owner, prefix] = ID.exec(text) ?? []
  const consumer = owner && (await parseConsumerName(owner).catch(() => undefined))
  if (!consumer || !prefix) return undefined
  const digests = await store.run<string[]>('SMEMBERS', store.at(credentialIndexKey(consumer)))
  const matching = digests.filter(digest => digest.startsWith(prefix))
  const digits = distinguishingDigits(digests)
  if (matching.length === 1) {
    const digest = matching[0]!
    return { consumer, digest, id: keyId(consumer, digest, digits) }
  }
  if (matching.length > 1) {
    const all = formatIds(consumer, matching, digits)
    throw new AdminError('refused', `More than one key begins like this: ${all}. Add more digits of the ID.`)
  }
  if (digests.length > 0) {
    const all = formatIds(consumer, digests, digits)
    throw new AdminError('not-found', `Consumer '${consumer}' has no such key. Its keys: ${all}.`)
  }
  if (isOpaqueKey(text)) return undefined
  const meant = didYouMean(consumer, await listConsumerNames(store))
  throw new AdminError(
    'not-found',
    `Consumer '${consumer}' has no keys.${meant} To list all keys: npx sluicegate keys list`,
  )
}

async function byKey(store: AdminStore, text: string): Promise<Found> {
  if (text.startsWith(`${store.keyPrefix}_`)) {
    const consumer = consumerOfApiKey(text, store.keyStart)
    if (consumer !== undefined) return foundKey(consumer, sha256(text))
    const where = store.environment === undefined ? '' : ` of environment '${store.environment}'`
    throw new AdminError(
      'not-found',
      `This is not an API key${where}: its form or its checksum is wrong. Check that it was copied whole.`,
    )
  }
  if (!isOpaqueKey(text)) {
    throw new AdminError(
      'usage',
      "This is not a key. Use the ID of the key, such as 'acme/0f3a9c1d2b4e' (npx sluicegate keys list), or the key itself.",
    )
  }
  const digest = sha256(text)
  const consumer = await store.run<string | null>('GET', store.at(pointerKey(digest)))
  if (consumer !== null) return foundKey(consumer, digest)
  // The message names only consumers that the store has, and never the text, which may be a key.
  const owner = ID.exec(text)?.[1]
  const names = owner === undefined ? [] : await listConsumerNames(store)
  const meant = owner === undefined || names.includes(owner) ? undefined : nearest(owner, names)
  throw new AdminError(
    'not-found',
    `There is no key with this ID: it never existed, has expired, or was revoked. No such key was imported either.${meant === undefined ? '' : ` Did you mean a key of consumer '${meant}'?`} To list all keys: npx sluicegate keys list`,
  )
}

type Found = Omit<FoundKey, 'record'>

function foundKey(consumer: string, digest: string): Found {
  return { consumer, digest, id: keyId(consumer, digest) }
}

function formatIds(consumer: string, digests: readonly string[], digits: number): string {
  const most = 10
  // Sorted, because a set of Redis has no order.
  const shown = [...digests]
    .sort()
    .slice(0, most)
    .map(digest => keyId(consumer, digest, digits))
  return shown.join(', ') + (digests.length > most ? `, and ${digests.length - most} more` : '')
}
