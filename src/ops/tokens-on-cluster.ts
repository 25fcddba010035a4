/** Rotations of tokens on a cluster, which are in different slots. A Worker without `store.cluster` does not carry it. */
import { AdminError } from './admin-error.ts'
import type { AdminStore, HeldClaim } from './admin-store-shape.ts'
import { notFound } from './digits.ts'
import type { RotatedToken, Rotation } from './token-shape.ts'
import { create, revokeToken, writeRotation } from './tokens.ts'

/** If the end of the old token cannot be set because of the store, the new one is returned all the same. @throws AdminError */
export async function rotateOnCluster(
  store: AdminStore,
  rotation: Rotation,
  claim: HeldClaim | undefined,
): Promise<RotatedToken> {
  const { old, created, next, endsAt } = rotation
  await create(store, created, next, { claim, replaces: old.id })
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
