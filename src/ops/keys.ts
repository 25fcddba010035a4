/**
 * API keys and opaque keys: making them, bringing them in, and what there is. Never the secret: of a key the store knows
 * the SHA-256 and a few letters.
 */
import { isConsumerName } from '../config/forms.ts'
import { mintApiKey } from '../credentials/api-key.ts'
import { isOpaqueKey } from '../credentials/opaque-key.ts'
import { sha256 } from '../sha256.ts'
import {
  CONSUMER_INDEX_KEY,
  consumerKey,
  credentialIndexKey,
  credentialKey,
  pointerKey,
} from '../store/keys.ts'
import { type CredentialRecord, formatCredential, parseCredential } from '../store/records.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store.ts'

export interface NewKey {
  /** As it stands in keys (names.ts). */
  consumer: string
  /** Absent: that of the consumer. */
  plan?: string
  label?: string
  /** Absent: until it is revoked. */
  expiresAt?: Date
}

export interface KeyInfo extends CredentialRecord {
  id: string
  consumer: string
  kind: 'api-key' | 'opaque-key'
}

/** The key beside what is known of it: it cannot be had again. */
export interface CreatedKey extends KeyInfo {
  key: string
}

const ID_DIGITS = 12

/** @param digits more only where two keys begin alike */
export function keyId(consumer: string, digest: string, digits = ID_DIGITS): string {
  return `${consumer}/${digest.slice(0, digits)}`
}

/** How many digits tell the keys of a consumer apart. */
export function digitsOf(digests: readonly string[]): number {
  const all = new Set(digests).size
  let digits = ID_DIGITS
  while (digits < 64 && new Set(digests.map(digest => digest.slice(0, digits))).size < all) digits += 4
  return digits
}

export async function createKey(store: AdminStore, { consumer, ...rest }: NewKey): Promise<CreatedKey> {
  if (!isConsumerName(consumer)) {
    throw new AdminError(
      'usage',
      'A consumer of tokens cannot have API keys, because the issuer of the tokens vouches for it. Use another consumer.',
    )
  }
  const key = mintApiKey(consumer, store.keyStart)
  const digest = sha256(key)
  const record = { ...rest, createdAt: new Date(), hint: hintOf(key) }
  await enlist(store, consumer)
  await write(store, consumer, digest, record)
  return { key, id: keyId(consumer, digest), consumer, kind: 'api-key', ...record }
}

/** An opaque key, as it is imported: its text, or its SHA-256 where the text is not at hand. */
export type OpaqueKey = { key: string } | { digest: string }

/** @throws AdminError for a key of ours, for what cannot be a key, and for one that belongs to a consumer already */
export async function importKey(
  store: AdminStore,
  opaque: OpaqueKey,
  { consumer, ...rest }: NewKey,
): Promise<KeyInfo> {
  const digest = await digestOf(store, opaque)
  const record = { ...rest, createdAt: new Date(), ...('key' in opaque && hinted(opaque.key)) }
  const owner = await freeOwner(store, digest)
  await enlist(store, consumer)
  await claim(store, digest, consumer, owner, rest.expiresAt)
  await write(store, consumer, digest, record)
  return { id: keyId(consumer, digest), consumer, kind: 'opaque-key', ...record }
}

async function digestOf({ keyPrefix }: AdminStore, opaque: OpaqueKey): Promise<string> {
  if ('digest' in opaque) {
    const digest = opaque.digest.toLowerCase()
    if (/^[0-9a-f]{64}$/.test(digest)) return digest
    throw new AdminError('usage', 'This is not a SHA-256 digest. Use 64 hexadecimal digits.')
  }
  if (opaque.key.startsWith(`${keyPrefix}_`)) {
    throw new AdminError(
      'refused',
      `Keys that begin with ${keyPrefix}_ cannot be imported. Create one with npx sluicegate keys create.`,
    )
  }
  if (isOpaqueKey(opaque.key)) return sha256(opaque.key)
  throw new AdminError(
    'usage',
    'This cannot be a key. Use 16 to 512 visible ASCII characters, without spaces.',
  )
}

/**
 * The pointer says whose a key is, so only one consumer can have it. One that leads to no record is free.
 * @returns what the free pointer says
 * @throws AdminError for a key that belongs to a consumer
 */
async function freeOwner(store: AdminStore, digest: string): Promise<string | null> {
  const owner = await store.ask(redis => redis.get<string>(store.at(pointerKey(digest))))
  if (owner !== null) {
    const record = await store.ask(redis => redis.exists(store.at(credentialKey(owner, digest))))
    if (Number(record) === 1)
      throw new AdminError(
        'refused',
        `This key already belongs to consumer '${owner}': ${keyId(owner, digest)}.`,
      )
  }
  return owner
}

async function claim(
  store: AdminStore,
  digest: string,
  consumer: string,
  owner: string | null,
  expiresAt: Date | undefined,
): Promise<void> {
  await store.change(pointerKey(digest), now => {
    if ((now ?? null) !== owner)
      throw new AdminError('refused', 'Another process is importing this key at this moment. Try again.')
    return { text: consumer, expiry: expiresAt ?? 'never' }
  })
}

/** Of all consumers, or of one. Drops those from the index that have expired. */
export async function listKeys(store: AdminStore, only?: string): Promise<KeyInfo[]> {
  const consumers = only === undefined ? await consumersOf(store) : [only]
  const indexes = await store.askEach<string, string[]>(consumers, (pipeline, consumer) =>
    pipeline.smembers(store.at(credentialIndexKey(consumer))),
  )
  const all = consumers.flatMap((consumer, i) => {
    const digits = digitsOf(indexes[i]!)
    return indexes[i]!.map(digest => ({ consumer, digest, id: keyId(consumer, digest, digits) }))
  })
  const texts = await store.askEach<Key, string | null>(all, (pipeline, { consumer, digest }) =>
    pipeline.get(store.at(credentialKey(consumer, digest))),
  )
  const owners = await store.askEach<Key, string | null>(all, (pipeline, { digest }) =>
    pipeline.get(store.at(pointerKey(digest))),
  )
  await prune(
    store,
    all.filter((_, i) => texts[i] === null),
  )
  return all
    .flatMap(({ consumer, id }, i): KeyInfo[] => {
      const record = parseCredential(texts[i] ?? '')
      const kind = owners[i] === consumer ? 'opaque-key' : 'api-key'
      return record ? [{ id, consumer, kind, ...record }] : []
    })
    .sort((a, b) => compare(a.consumer, b.consumer) || a.createdAt.getTime() - b.createdAt.getTime())
}

interface Key {
  consumer: string
  digest: string
}

/** In the same step as the look at the record: one that was brought in again meanwhile stays. */
const DROP_IF_GONE = `
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
return redis.call('SREM', KEYS[1], ARGV[1])`

async function prune(store: AdminStore, gone: readonly Key[]): Promise<void> {
  await store.askEach(gone, (pipeline, { consumer, digest }) => {
    const keys = [credentialIndexKey(consumer), credentialKey(consumer, digest)].map(store.at)
    pipeline.eval(DROP_IF_GONE, keys, [digest])
  })
}

/** Every consumer that has or had keys or settings here. */
export async function consumersOf(store: AdminStore): Promise<string[]> {
  const consumers = await store.ask(redis => redis.smembers(store.at(CONSUMER_INDEX_KEY)))
  return consumers.sort(compare)
}

/** Before anything of a consumer is written, so that nothing good is without a place in a list. */
export async function enlist(store: AdminStore, consumer: string): Promise<boolean> {
  return Number(await store.ask(redis => redis.sadd(store.at(CONSUMER_INDEX_KEY), consumer))) === 1
}

/** Takes a consumer off the list of which nothing is left. */
export async function unlistIfEmpty(store: AdminStore, consumer: string): Promise<void> {
  const keys = [consumerKey(consumer), credentialIndexKey(consumer)].map(store.at)
  const left = await store.ask(redis => redis.exists(...keys))
  if (Number(left) === 0) await store.ask(redis => redis.srem(store.at(CONSUMER_INDEX_KEY), consumer))
}

async function write(
  store: AdminStore,
  consumer: string,
  digest: string,
  record: CredentialRecord,
): Promise<void> {
  const { expiresAt } = record
  const expiry = expiresAt && { pxat: expiresAt.getTime() }
  await store.ask(redis =>
    redis
      .multi()
      .set(store.at(credentialKey(consumer, digest)), formatCredential(record), expiry)
      .sadd(store.at(credentialIndexKey(consumer)), digest)
      .exec(),
  )
}

/** The last letters of an API key are of its checksum; of other keys they are shown where enough is left. */
const hintOf = (key: string) => key.slice(-4)
const hinted = (key: string) => (key.length >= 24 ? { hint: hintOf(key) } : {})

const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0)
