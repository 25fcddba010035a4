/** Changes of a key: label, plan, expiry, revocation, rotation. A change applies from the next request that reaches the store. */
import { sha256 } from '../sha256.ts'
import { credentialIndexKey, credentialKey, pointerKey } from '../store/keys.ts'
import { type CredentialRecord, formatCredential, parseCredential } from '../store/records.ts'
import { type Command, evalCommand } from './admin-connection.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store.ts'
import { credentialFacts } from './audit-facts.ts'
import type { FoundKey } from './key-reference.ts'
import { type BeforeCreation, type CreatedKey, createKey, type KeyInfo, keyId } from './keys.ts'
import { removeFromIndex, sortedKey } from './sorted-index.ts'

/** What is known of a key. */
export async function showKey(
  store: AdminStore,
  { id, consumer, digest, record }: FoundKey,
): Promise<KeyInfo> {
  const kind = (await isOpaque(store, consumer, digest)) ? 'opaque-key' : 'api-key'
  return { id, consumer, kind, mode: 'live', ...record }
}

/** What to change of a key. null: none, and of `expiresAt` never. */
export interface KeyChange {
  label?: string | null
  /** Without one, the plan of the consumer applies. */
  plan?: string | null
  /** Never: a rotation of the key is undone. A time in the past revokes the key. */
  expiresAt?: Date | null
  /** Id of the key that replaces it. */
  replacedBy?: string
}

export async function changeKey(store: AdminStore, key: FoundKey, change: KeyChange): Promise<void> {
  const { expiresAt: at } = change
  if (at && at <= new Date()) return void (await revokeKey(store, key))
  if (at === undefined) return await writeKey(store, key, record => changed(record, change))
  // The pointer of an opaque key must live at least as long as the key, because it names the consumer.
  const { expiresAt } = key.record
  const isLonger = !at || (expiresAt !== undefined && at > expiresAt)
  if (isLonger) await expirePointer(store, key, at ?? undefined)
  const write = (record: CredentialRecord) => {
    if (change.replacedBy !== undefined) mustHaveNoSuccessor(key.id, record)
    return changed(record, change)
  }
  await writeKey(store, key, write, at ?? 'never')
  if (!isLonger) await expirePointer(store, key, at ?? undefined)
}

function changed(
  { label, plan, expiresAt, replacedBy, ...rest }: CredentialRecord,
  change: KeyChange,
): CredentialRecord {
  const after = <T>(before: T | undefined, given: T | null | undefined) =>
    given === undefined ? before : (given ?? undefined)
  const [newLabel, newPlan] = [after(label, change.label), after(plan, change.plan)]
  const end = after(expiresAt, change.expiresAt)
  const successor = change.expiresAt === null ? undefined : after(replacedBy, change.replacedBy)
  return {
    ...rest,
    ...(newPlan && { plan: newPlan }),
    ...(end && { expiresAt: end }),
    ...(newLabel && { label: newLabel }),
    ...(successor && { replacedBy: successor }),
  }
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
  return await store.write({
    keys: [own, index, sortedKey(index), ...pointers.keys],
    onlyIf: own,
    commands: [['DEL', own], ...removeFromIndex(index, [digest]), ...pointers.commands],
    entry: { action: 'keys.revoke', target: id, before: record && credentialFacts(record) },
  })
}

export interface Rotated {
  created: CreatedKey
  /** When the old key expires. Absent: its expiry could not be set, because of `failure`. */
  oldEndsAt?: Date
  failure?: AdminError
}

/**
 * Replaces a key by a new one with the same plan, label, mode and lifetime. If the expiry of the old key cannot be set because of the
 * store, the new key is returned all the same, because it is valid and cannot be shown again.
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
  const { consumer, digest, record } = key
  if (await isOpaque(store, consumer, digest)) {
    throw new AdminError(
      'refused',
      'An opaque key cannot be rotated, because it was created elsewhere. Import a new one and revoke this one.',
    )
  }
  const { plan, label, mode, createdAt, expiresAt } = record
  mustHaveNoSuccessor(key.id, record)
  const now = Date.now()
  const next = {
    consumer,
    replaces: key.id,
    ...(plan && { plan }),
    ...(label && { label }),
    ...(mode && { mode }),
    ...(expiresAt && { expiresAt: new Date(now + expiresAt.getTime() - createdAt.getTime()) }),
  }
  const created = await createKey(store, next, before)
  const endsAt = new Date(Math.min(now + overlapMs, expiresAt?.getTime() ?? Number.POSITIVE_INFINITY))
  try {
    if (endsAt > new Date()) await changeKey(store, key, { expiresAt: endsAt, replacedBy: created.id })
    else if (!(await revokeKey(store, key))) throw notValid(key.id)
    return { created, oldEndsAt: endsAt }
  } catch (error) {
    if (!(error instanceof AdminError)) throw error
    if (error.kind === 'store') return { created, failure: error }
    // Someone has rotated or revoked the old key meanwhile, so this one must not replace it.
    await revokeKey(store, { consumer, digest: sha256(created.key), id: created.id })
    throw error
  }
}

function mustHaveNoSuccessor(id: string, { replacedBy, expiresAt }: CredentialRecord): void {
  if (!replacedBy) return
  const end = expiresAt ? ` and expires at ${expiresAt.toISOString().replace(/\.\d+/, '')}` : ''
  throw new AdminError(
    'refused',
    `Key '${id}' is already replaced by '${replacedBy}'${end}. Rotate that one.`,
  )
}

const notValid = (id: string) =>
  new AdminError('not-found', `Key '${id}' is no longer valid: it has expired or was revoked.`)

async function writeKey(
  store: AdminStore,
  { id, consumer, digest }: FoundKey,
  change: (record: CredentialRecord) => CredentialRecord,
  expiry?: 'never' | Date,
): Promise<void> {
  let [before, after] = [{} as CredentialRecord, {} as CredentialRecord]
  await store.change(
    credentialKey(consumer, digest),
    text => {
      const record = parseCredential(text ?? '')
      if (!record) throw notValid(id)
      ;[before, after] = [record, change(record)]
      return { text: formatCredential(after), ...(expiry && { expiry }) }
    },
    () => {
      const isRotated = after.replacedBy !== undefined && after.replacedBy !== before.replacedBy
      const action = isRotated ? 'keys.rotate' : 'keys.update'
      return { action, target: id, before: credentialFacts(before), after: credentialFacts(after) }
    },
  )
}

async function isOpaque(store: AdminStore, consumer: string, digest: string): Promise<boolean> {
  return (await store.run<string | null>('GET', store.at(pointerKey(digest)))) === consumer
}

async function expirePointer(store: AdminStore, key: FoundKey, at: Date | undefined): Promise<void> {
  const { consumer, digest } = key
  if (!(await isOpaque(store, consumer, digest))) return
  await store.change(pointerKey(digest), owner => {
    // The key has been imported for another consumer since.
    if (owner !== consumer)
      throw new AdminError(
        'conflict',
        `Another process is importing key '${key.id}' at this moment. Try again.`,
      )
    return { text: owner, expiry: at ?? 'never' }
  })
}

const DELETE_IF_OWNED = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`

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
  await store.runEach(keys.map(key => evalCommand(DELETE_IF_OWNED, [key], [consumer])))
  return { keys: [], commands: [] }
}
