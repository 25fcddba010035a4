/** Rotates a token of a cluster, which has the old and the new token in different slots. A Worker without `store.cluster` does not carry it. */
import { AdminError } from './admin-error.ts'
import type { AdminStore, HeldClaim } from './admin-store-shape.ts'
import type { RotatedToken, Rotation } from './token-shape.ts'
import { create, notFound, revoke, revokeToken, writeMinted, writeRotation } from './tokens.ts'

/** If the end of the old token cannot be set because of the store, the new one is returned all the same. @throws AdminError */
export async function rotateOnCluster(
  store: AdminStore,
  rotation: Rotation,
  claim: HeldClaim | undefined,
): Promise<RotatedToken> {
  const { old, created, next, endsAt } = rotation
  await writeMinted(store, created, () => create(store, created, next, { claim, replaces: old.id }))
  try {
    if (endsAt <= new Date() && !(await revoke(store, old))) throw notFound(store, old.id)
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
