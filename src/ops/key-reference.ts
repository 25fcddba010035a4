/** Finds a key by its id, as `keys list` shows it, or by the key itself. */

import { nearest } from '../config/check/did-you-mean.ts'
import { consumerOfApiKey } from '../credentials/api-key.ts'
import { isOpaqueKey } from '../credentials/opaque-key.ts'
import { sha256 } from '../sha256.ts'
import { credentialIndexKey, pointerKey } from '../store/keys.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store-shape.ts'
import { type FoundKey, findKeyById, readFound } from './find-key.ts'
import { namesNear } from './key-pages.ts'
import { keyId } from './keys.ts'
import { parseConsumerName } from './names.ts'

const ID = /^([^/]{1,255})\/([0-9a-f]{4,64})$/s

/**
 * @param text an id or a key. It may be a secret, so no message repeats it.
 * @throws AdminError if no key or more than one matches; its message lists the consumer's keys
 */
export const findKey = async (store: AdminStore, text: string): Promise<FoundKey> =>
  (await byId(store, text)) ?? (await readFound(store, await byKey(store, text)))

/** @returns undefined if the text is not an id. An opaque key can look like the id of a consumer that does not exist. */
async function byId(store: AdminStore, text: string): Promise<FoundKey | undefined> {
  const [, owner, digits] = ID.exec(text) ?? []
  const consumer = owner && (await parseConsumerName(owner).catch(() => undefined))
  if (!consumer || !digits) return undefined
  const hasKeys = (await store.run('EXISTS', store.at(credentialIndexKey(consumer)))) === 1
  return isOpaqueKey(text) && !hasKeys ? undefined : await findKeyById(store, consumer, digits)
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
  const names = owner === undefined ? [] : await namesNear(store, owner)
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
