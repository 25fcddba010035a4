/** Changes of a key: label, plan, expiry, revocation, rotation. A change applies from the next request that reaches the store. */

import type { Command } from '../store/admin-connection.ts'
import { credentialIndexKey, credentialKey, pointerKey } from '../store/keys.ts'
import { type CredentialRecord, formatCredential } from '../store/records.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore, BeforeCreation } from './admin-store-shape.ts'
import { recordFacts } from './audit-facts.ts'
import { type FoundKey, validRecord } from './find-key.ts'
import { type CreatedKey, infoOf, type KeyInfo, keyId, mintKey, writeOfKey } from './keys.ts'
import { endsOf, mustHaveNoSuccessor, writeSuccession } from './rotation.ts'
import { removeFromIndex } from './sorted-index.ts'
import { ANY, changeText, write } from './write.ts'

/** What is known of a key. */
export async function showKey(
  store: AdminStore,
  { id, consumer, digest, record }: FoundKey,
): Promise<KeyInfo> {
  const kind = (await isOpaque(store, consumer, digest)) ? 'opaque-key' : 'api-key'
  return infoOf(id, consumer, kind, record)
}

/** What to change of a key. null: none, and of `expiresAt` never. */
export interface KeyChange {
  label?: string | null
  /** Without one, the plan of the consumer applies. */
  plan?: string | null
  /** Never: a rotation of the key is undone. A time in the past revokes the key. */
  expiresAt?: Date | null
}

export async function changeKey(store: AdminStore, key: FoundKey, change: KeyChange): Promise<void> {
  const { expiresAt: at } = change
  if (at && at <= new Date()) return void (await revokeKey(store, key))
  // The pointer of an opaque key must live at least as long as the key, because it names the consumer.
  const { expiresAt } = key.record
  const isLonger = at === null || (at && expiresAt && at > expiresAt)
  if (isLonger) await expirePointer(store, key, at)
  const { id, consumer, digest } = key
  await changeText(store, credentialKey(consumer, digest), text => {
    const before = validRecord(store, id, text ?? '')
    const after = changed(before, change)
    const facts = { before: recordFacts(before), after: recordFacts(after) }
    return {
      ...{ text: formatCredential(after), expiresAt: after.expiresAt },
      entry: { action: 'keys.update', target: id, ...facts },
    }
  })
  if (at && !isLonger) await expirePointer(store, key, at)
}

function changed(record: CredentialRecord, change: KeyChange): CredentialRecord {
  const after = { ...record, ...change, ...(change.expiresAt === null && { replacedBy: null }) }
  const left = Object.entries(after).filter(([, value]) => value !== null && value !== undefined)
  return Object.fromEntries(left) as unknown as CredentialRecord
}

/** @param label undefined removes the label */
export const setKeyLabel = (store: AdminStore, key: FoundKey, label: string | undefined): Promise<void> =>
  changeKey(store, key, { label: label ?? null })

/** @param plan undefined: the plan of the consumer applies */
export const setKeyPlan = (store: AdminStore, key: FoundKey, plan: string | undefined): Promise<void> =>
  changeKey(store, key, { plan: plan ?? null })

/** Sets when a key expires. @param at undefined: never */
export const expireKey = (store: AdminStore, key: FoundKey, at: Date | undefined): Promise<void> =>
  changeKey(store, key, { expiresAt: at ?? null })

/** @returns false if it was revoked before */
export async function revokeKey(
  store: AdminStore,
  key: Pick<FoundKey, 'consumer' | 'digest'> & Partial<FoundKey>,
): Promise<boolean> {
  const { consumer, digest, id = keyId(consumer, digest), record } = key
  const pointers = await pointersToDrop(store, consumer, [digest])
  const [own, index] = [store.at(credentialKey(consumer, digest)), store.at(credentialIndexKey(consumer))]
  return await write(store, {
    keys: [own, index, ...pointers.keys],
    onlyIf: [[own, ANY]],
    // The index last: if Redis refuses that, nothing of the key is left that could be used.
    commands: [...pointers.commands, ['DEL', own], removeFromIndex(index, [digest])],
    entry: { action: 'keys.revoke', target: id, before: record && recordFacts(record) },
  })
}

export interface Rotated {
  created: CreatedKey
  /** When the old key expires. */
  oldEndsAt: Date
}

/**
 * Replaces a key by a new one with the same plan, label, mode and lifetime, all or nothing.
 * @param overlapMs how long the old key stays valid
 * @throws AdminError for an opaque key, for a key that is revoked meanwhile, and for a key that is being replaced already: its full lifetime
 * is no longer known
 */
export async function rotateKey(
  store: AdminStore,
  key: FoundKey,
  overlapMs: number,
  before?: BeforeCreation,
): Promise<Rotated> {
  const { id, consumer, digest, record } = key
  if (await isOpaque(store, consumer, digest)) {
    throw new AdminError(
      'refused',
      'An opaque key cannot be rotated, because it was created elsewhere. Import a new one and revoke this one.',
    )
  }
  mustHaveNoSuccessor('Key', id, record)
  const { endsAt, nextEnd } = endsOf(record, overlapMs)
  const { createdAt: _, hint: __, signedBy: ___, ...settings } = record
  const minted = await mintKey(store, { consumer, ...settings, ...(nextEnd && { expiresAt: nextEnd }) })
  const { created } = minted
  const claim = await before?.(created.id)
  const [own, index] = [store.at(credentialKey(consumer, digest)), store.at(credentialIndexKey(consumer))]
  const succession = {
    ...({ action: 'keys.rotate', what: 'Key', key: own, id, endsAt, successor: created } as const),
    read: (text: string) => validRecord(store, id, text),
    format: formatCredential,
    atEnd: [removeFromIndex(index, [digest])],
  }
  const next = { ...writeOfKey(store, consumer, minted), claim }
  await writeSuccession(store, succession, next).catch(store.advice?.lostRotation(id, created.id))
  return { created, oldEndsAt: endsAt }
}

async function isOpaque(store: AdminStore, consumer: string, digest: string): Promise<boolean> {
  return (await store.run<string | null>('GET', store.at(pointerKey(digest)))) === consumer
}

async function expirePointer(store: AdminStore, key: FoundKey, at: Date | null): Promise<void> {
  const { consumer, digest } = key
  if (!(await isOpaque(store, consumer, digest))) return
  await changeText(store, pointerKey(digest), owner => {
    // The key has been imported for another consumer since.
    if (owner !== consumer)
      throw new AdminError(
        'conflict',
        `Another process is importing key '${key.id}' at this moment. Try again.`,
      )
    return { text: owner, expiresAt: at ?? undefined }
  })
}

/**
 * Deletes the pointers of a consumer's opaque keys; API keys have none. On a cluster, they are in slots of their own, so this deletes them
 * before the keys: a repeated call still finds the keys if this one ends in between.
 * @returns else what deletes them together with the keys
 */
export async function pointersToDrop(
  store: AdminStore,
  consumer: string,
  digests: readonly string[],
): Promise<{ keys: string[]; commands: Command[] }> {
  const keys = digests.map(digest => store.at(pointerKey(digest)))
  if (!store.decisions.isCluster) return { keys, commands: keys.map(key => ['DELETE-IF', key, consumer]) }
  await store.onCluster.deleteEachIf(store, keys, consumer)
  return { keys: [], commands: [] }
}
