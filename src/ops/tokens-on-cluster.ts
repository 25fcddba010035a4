/** Tokens of a cluster, which are in different slots, as their index is. A Worker without `store.cluster` does not carry it. */
import { TOKEN_INDEX_KEY } from '../store/keys.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore, HeldClaim } from './admin-store-shape.ts'
import { notFound } from './digits.ts'
import { addToIndex, removeFromIndex } from './sorted-index.ts'
import type { RotatedToken, Rotation } from './token-shape.ts'
import { create, readAll, revokeToken, writeMinted, writeRotation } from './tokens.ts'

/** If the end of the old token cannot be set because of the store, the new one is returned all the same. @throws AdminError */
export async function rotateOnCluster(
  store: AdminStore,
  rotation: Rotation,
  claim: HeldClaim | undefined,
): Promise<RotatedToken> {
  const { old, created, next, endsAt } = rotation
  await writeMinted(store, created, () => create(store, created, next, { claim, replaces: old.id }))
  try {
    if (endsAt <= new Date() && !(await revokeToken(store, old))) throw notFound(store, 'token', old.id)
    if (endsAt > new Date()) await writeRotation(store, rotation, { keys: [], commands: [] })
    return { created, oldEndsAt: endsAt }
  } catch (error) {
    if (!(error instanceof AdminError)) throw error
    if (error.kind === 'store') return { created, failure: error }
    // Someone has rotated or revoked the old token meanwhile, so this one must not replace it.
    await revokeToken(store, { ...created, record: next })
    throw error
  }
}

/** No transaction covers the index and the tokens. */
export async function pruneOnCluster(store: AdminStore, gone: readonly string[]): Promise<void> {
  const index = store.at(TOKEN_INDEX_KEY)
  await store.runEach([removeFromIndex(index, gone)])
  const again = await readAll(store, gone)
  // A token that was stored between the two calls.
  const listed = gone.filter((_, i) => again[i] !== null)
  if (listed.length > 0) await store.runEach([addToIndex(index, listed)])
}
