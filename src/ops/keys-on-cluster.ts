/**
 * Imports of opaque keys on a cluster, which has the pointer and the record of a key in different slots. Each of two imports at once writes
 * its own part first and then reads that of the other, so at least one of them sees the other and withdraws. A Worker without
 * `store.cluster` does not carry it.
 */
import { credentialIndexKey, credentialKey, pointerKey } from '../store/keys.ts'
import { parseCredential } from '../store/records.ts'
import type { AdminStore, OnCluster } from './admin-store-shape.ts'
import { importedByAnother, removeFromIndexIfEmpty } from './keys.ts'
import { removeFromIndex } from './sorted-index.ts'
import { ANY, setCommand, write } from './write.ts'

export async function confirmClaim(
  store: AdminStore,
  { digest, consumer, owner }: Parameters<OnCluster['confirmClaim']>[1],
): Promise<void> {
  const record = await store.run<string | null>('GET', store.at(credentialKey(owner, digest)))
  if (record === null) return
  const pointer = store.at(pointerKey(digest))
  await write(store, {
    ...{ keys: [pointer], onlyIf: [[pointer, consumer]] },
    commands: [setCommand(pointer, owner, parseCredential(record)?.expiresAt)],
  })
  throw importedByAnother()
}

export async function confirmImport(
  store: AdminStore,
  { digest, consumer, id }: Parameters<OnCluster['confirmImport']>[1],
): Promise<void> {
  if ((await store.run('GET', store.at(pointerKey(digest)))) === consumer) return
  const [own, index] = [store.at(credentialKey(consumer, digest)), store.at(credentialIndexKey(consumer))]
  await write(store, {
    ...{ keys: [own, index], onlyIf: [[own, ANY]] },
    commands: [['DEL', own], removeFromIndex(index, [digest])],
    entry: { action: 'keys.revoke', target: id },
  })
  await removeFromIndexIfEmpty(store, consumer)
  throw importedByAnother()
}
