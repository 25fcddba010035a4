/**
 * Creates API keys, imports opaque keys, and lists both. The store never has the secret, only the SHA-256 of a key and a few of
 * its letters.
 */
import { chunked } from '../chunked.ts'
import type { CallerMode } from '../config/caller-mode.ts'
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
import type { AdminStore, BeforeCreation, Listed, Write } from './admin-store-shape.ts'
import { recordFacts } from './audit-facts.ts'
import { distinguishingDigits, ID_DIGITS } from './digits.ts'
import { addToIndex, allOf, READ_AT_ONCE, removeIfGone, unlistIfGone } from './sorted-index.ts'
import { NONE, setCommand, write } from './write.ts'

export interface NewKey {
  /** The consumer as written in Redis keys (names.ts). */
  consumer: string
  /** Absent: the plan of the consumer applies. */
  plan?: string
  label?: string
  /** Default: live. */
  mode?: CallerMode
  /** Absent: the key is valid until it is revoked. */
  expiresAt?: Date
}

export interface KeyInfo extends Omit<CredentialRecord, 'mode'> {
  id: string
  consumer: string
  mode: CallerMode
  kind: 'api-key' | 'opaque-key'
}

/** A new key with its secret, which cannot be shown again. */
export interface CreatedKey extends KeyInfo {
  key: string
}

/** @param digits more than the default only if the digests of two keys begin with the same digits */
export function keyId(consumer: string, digest: string, digits = ID_DIGITS): string {
  return `${consumer}/${digest.slice(0, digits)}`
}

export async function createKey(
  store: AdminStore,
  newKey: NewKey,
  before?: BeforeCreation,
): Promise<CreatedKey> {
  const minted = await mintKey(store, newKey)
  const { id, consumer } = minted.created
  const claim = await before?.(id)
  const entry = { action: 'keys.create', target: id, after: recordFacts(minted.record) } as const
  const change = { ...writeOfKey(store, consumer, minted), claim, entry }
  await write(store, change).catch(store.advice?.lostKey(id))
  return minted.created
}

/** A key before it is stored. */
export interface MintedKey {
  created: CreatedKey
  digest: string
  record: CredentialRecord
}

export async function mintKey(store: AdminStore, newKey: NewKey): Promise<MintedKey> {
  const { consumer, mode = 'live' } = newKey
  if (!isConsumerName(consumer)) {
    throw new AdminError(
      'usage',
      'This consumer is identified by the tokens of an issuer, so it cannot have API keys. Use another consumer.',
    )
  }
  const createdAt = new Date()
  const { keyStart: start, keySigner } = store
  const key = keySigner
    ? await keySigner.mint({ consumer, start, mode, issuedAt: createdAt.getTime() })
    : mintApiKey(consumer, start, mode)
  const digest = sha256(key)
  const record = {
    ...recordOf(newKey, createdAt),
    hint: hintOf(key),
    ...(keySigner && { signedBy: keySigner.id }),
  }
  const created = { key, ...infoOf(keyId(consumer, digest), consumer, 'api-key', record) }
  return { created, digest, record }
}

const recordOf = ({ consumer: _, mode, ...rest }: NewKey, createdAt: Date): CredentialRecord => ({
  ...{ ...rest, createdAt },
  ...(mode === 'test' && { mode }),
})

export const infoOf = (
  id: string,
  consumer: string,
  kind: KeyInfo['kind'],
  record: CredentialRecord,
): KeyInfo => ({ id, consumer, kind, mode: 'live', ...record })

/** An opaque key to import: its text, or its SHA-256 (64 hexadecimal digits) if the text is not available. */
export type OpaqueKey = { key: string } | { digest: string }

/** @throws AdminError for an API key, for a text that cannot be a key, and for a key that already belongs to a consumer */
export async function importKey(
  store: AdminStore,
  opaque: OpaqueKey,
  newKey: NewKey,
  before?: BeforeCreation,
): Promise<KeyInfo> {
  const { consumer, expiresAt } = newKey
  const digest = digestOf(store, opaque)
  const id = keyId(consumer, digest)
  const hint = 'key' in opaque && opaqueKeyHint(opaque.key)
  const record = { ...recordOf(newKey, new Date()), ...hint }
  const owner = await staleOwnerOf(store, digest, consumer)
  const held = await before?.(id)
  const { isCluster } = store.decisions
  await claim(store, digest, consumer, owner, expiresAt)
  if (isCluster && owner !== null) await store.onCluster.confirmClaim(store, { digest, consumer, owner })
  const key = store.at(credentialKey(consumer, digest))
  // On a cluster, the pointer is in another slot.
  const mine = isCluster ? [] : [[store.at(pointerKey(digest)), consumer] as const]
  const { keys, ...others } = writeOfKey(store, consumer, { digest, record })
  const isMade = await write(store, {
    ...{ ...others, keys: [...keys, ...mine.map(([pointer]) => pointer)], claim: held },
    onlyIf: [[key, NONE], ...mine],
    entry: { action: 'keys.import', target: id, after: recordFacts(record) },
  })
  if (!isMade) throw importedByAnother()
  if (isCluster) await store.onCluster.confirmImport(store, { digest, consumer, id })
  return infoOf(id, consumer, 'opaque-key', record)
}

function digestOf({ keyPrefix, advice }: AdminStore, opaque: OpaqueKey): string {
  if ('digest' in opaque) return opaque.digest.toLowerCase()
  if (opaque.key.startsWith(`${keyPrefix}_`)) {
    throw new AdminError(
      'refused',
      `Keys that begin with ${keyPrefix}_ cannot be imported.${advice?.createKey ?? ''}`,
    )
  }
  if (isOpaqueKey(opaque.key)) return sha256(opaque.key)
  throw new AdminError(
    'usage',
    'This cannot be a key. Use 16 to 512 visible ASCII characters, without spaces.',
  )
}

/**
 * The pointer of a key names its consumer, so only one consumer can have the key. A pointer without a record is stale, and may be
 * replaced. An API key has a record without a pointer: its digest must not be imported for its own consumer, because the new record would
 * take the place of the one with its plan and its end.
 * @returns the consumer of a stale pointer, or null if there is no pointer
 * @throws AdminError if the key belongs to a consumer
 */
async function staleOwnerOf(store: AdminStore, digest: string, consumer: string): Promise<string | null> {
  const owner = await store.run<string | null>('GET', store.at(pointerKey(digest)))
  for (const holder of new Set([owner ?? consumer, consumer]))
    if ((await store.run('EXISTS', store.at(credentialKey(holder, digest)))) === 1)
      throw new AdminError(
        'refused',
        `This key already belongs to consumer '${holder}': ${keyId(holder, digest)}.`,
      )
  return owner
}

async function claim(
  store: AdminStore,
  digest: string,
  consumer: string,
  owner: string | null,
  expiresAt: Date | undefined,
): Promise<void> {
  const pointer = store.at(pointerKey(digest))
  // The first owner can write its record until the pointer is replaced. On a cluster, its record is in another slot.
  const records = owner === null || store.decisions.isCluster ? [] : [store.at(credentialKey(owner, digest))]
  const isMade = await write(store, {
    keys: [pointer, ...records],
    onlyIf: [[pointer, owner ?? NONE], ...records.map(key => [key, NONE] as const)],
    commands: [setCommand(pointer, consumer, expiresAt)],
  })
  if (!isMade) throw importedByAnother()
}

export const importedByAnother = () =>
  new AdminError('conflict', 'Another process is importing this key at this moment. Try again.')

/** Lists the keys of all consumers, or of some. Removes expired keys from the index. */
export async function listKeys(store: AdminStore, of?: string | readonly string[]): Promise<KeyInfo[]> {
  const consumers = of === undefined ? await listConsumerNames(store) : [of].flat()
  const indexes = await store.runEach<string[]>(
    consumers.map(consumer => allOf(store.at(credentialIndexKey(consumer)))),
  )
  const keys: KeyInfo[] = []
  const all = consumers.flatMap((consumer, i) => withIds(consumer, indexes[i]!))
  for (const some of chunked(all, READ_AT_ONCE)) keys.push(...(await readKeys(store, some)))
  return keys.sort((a, b) => compare(a.consumer, b.consumer) || a.createdAt.getTime() - b.createdAt.getTime())
}

/** A key in the index of its consumer. It may have expired. */
export interface IndexedKey {
  id: string
  consumer: string
  digest: string
}

/** @param known the digests from which their ids differ */
export function withIds(
  consumer: string,
  digests: readonly string[],
  known: readonly string[] = digests,
): IndexedKey[] {
  const digits = distinguishingDigits(known)
  return digests.map(digest => ({ consumer, digest, id: keyId(consumer, digest, digits) }))
}

/** Reads the records of keys, and removes those that have expired from the index. */
export async function readKeys(store: AdminStore, all: readonly IndexedKey[]): Promise<KeyInfo[]> {
  const replies = await store.runEach<string | null>(
    all.flatMap(({ consumer, digest }) => [
      ['GET', store.at(credentialKey(consumer, digest))],
      ['GET', store.at(pointerKey(digest))],
    ]),
  )
  await prune(
    store,
    all.filter((_, i) => replies[2 * i] === null),
  )
  return all.flatMap(({ consumer, id }, i): KeyInfo[] => {
    const record = parseCredential(replies[2 * i] ?? '')
    const kind = replies[2 * i + 1] === consumer ? 'opaque-key' : 'api-key'
    return record ? [infoOf(id, consumer, kind, record)] : []
  })
}

/** The plan that all keys have. Undefined if their plans differ, if one has none, or if there is no key. */
export function planOfAll(keys: readonly Pick<KeyInfo, 'plan'>[]): string | undefined {
  const plan = keys[0]?.plan
  return keys.every(key => key.plan === plan) ? plan : undefined
}

/** How many API keys are signed. Opaque keys never are. */
export interface KeyStats {
  /** How many are signed with each secret, by its id. */
  signed: Readonly<Record<string, number>>
  /** The keys that are not signed. */
  unsigned: readonly KeyInfo[]
  /** From when on all keys are signed. Absent: a key that is not signed never expires. */
  allSignedAt?: Date
}

/** @param now ms since the epoch; the result for keys that are all signed */
export function keyStatsOf(keys: readonly KeyInfo[], now = Date.now()): KeyStats {
  const apiKeys = keys.filter(({ kind }) => kind === 'api-key')
  const unsigned = apiKeys.filter(({ signedBy }) => !signedBy)
  const signed: Record<string, number> = {}
  for (const { signedBy } of apiKeys) if (signedBy) signed[signedBy] = (signed[signedBy] ?? 0) + 1
  const ends = unsigned.map(({ expiresAt }) => expiresAt?.getTime() ?? Number.POSITIVE_INFINITY)
  const last = Math.max(now, ...ends)
  return { signed, unsigned, ...(Number.isFinite(last) && { allSignedAt: new Date(last) }) }
}

interface Key {
  consumer: string
  digest: string
}

async function prune(store: AdminStore, gone: readonly Key[]): Promise<void> {
  const commands = [...Map.groupBy(gone, ({ consumer }) => consumer)].map(([consumer, keys]) => {
    const digests = keys.map(({ digest }) => digest)
    const records = digests.map(digest => store.at(credentialKey(consumer, digest)))
    return removeIfGone(store.at(credentialIndexKey(consumer)), digests, records)
  })
  await store.runEach(commands)
}

/** Every consumer that has or had keys or settings in the store, sorted. */
export async function listConsumerNames(store: AdminStore): Promise<string[]> {
  const consumers = await store.run<string[]>(...allOf(store.at(CONSUMER_INDEX_KEY)))
  return consumers.sort(compare)
}

/** The place of a consumer in the index of all. */
export const listedConsumer = (store: AdminStore, consumer: string): Listed => ({
  ...{ index: store.at(CONSUMER_INDEX_KEY), member: consumer },
  records: [consumerKey(consumer), credentialIndexKey(consumer)].map(store.at),
})

/** Removes a consumer without keys and settings from the index. */
export async function removeFromIndexIfEmpty(store: AdminStore, consumer: string): Promise<void> {
  const { index, records } = listedConsumer(store, consumer)
  await unlistIfGone(store, index, [consumer], records)
}

/** Writes the record of a new key, and its place in the indexes. */
export function writeOfKey(
  store: AdminStore,
  consumer: string,
  { digest, record }: Pick<MintedKey, 'digest' | 'record'>,
): Pick<Write, 'keys' | 'commands' | 'listed'> {
  const [key, index] = [store.at(credentialKey(consumer, digest)), store.at(credentialIndexKey(consumer))]
  return {
    listed: listedConsumer(store, consumer),
    keys: [key, index],
    commands: [setCommand(key, formatCredential(record), record.expiresAt), addToIndex(index, [digest])],
  }
}

/** The last letters of an API key belong to its checksum. For opaque keys, they are a hint only if the rest of the key is long enough. */
const hintOf = (key: string) => key.slice(-4)
const opaqueKeyHint = (key: string) => (key.length >= 24 ? { hint: hintOf(key) } : {})

const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0)
