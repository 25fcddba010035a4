/** Keeps a creation from being repeated: the id of what will be created is stored under its Idempotency-Key, before anything is written. */
import type { AdminStore } from '../../ops/admin-store.ts'
import { sha256 } from '../../sha256.ts'
import { idempotencyKey } from '../../store/keys.ts'
import { ApiError, invalidInput } from './problems.ts'

const KEPT_SECONDS = 86_400

export interface Claim {
  /** Call it with the id of what will be created. @throws ApiError `repeated` if the key was used before */
  claim(id: string): Promise<void>
  /** Call it if nothing was created, so that the request can be repeated. */
  release(): Promise<void>
}

/** @param tokenId of the caller: tokens share no keys */
export function createClaim({ headers }: Request, store: AdminStore, tokenId: string): Claim {
  const text = headers.get('idempotency-key')
  if (text === null) return { claim: async () => {}, release: async () => {} }
  if (!/^[\x21-\x7e]{1,255}$/.test(text))
    throw invalidInput('Idempotency-Key', 'Use 1 to 255 visible ASCII characters.')
  const key = store.at(idempotencyKey(sha256(`${tokenId} ${text}`)))
  let isClaimed = false
  return {
    async claim(id) {
      const reply = await store.run<string | null>('SET', key, id, 'NX', 'EX', KEPT_SECONDS)
      isClaimed = reply !== null
      if (isClaimed) return
      const before = (await store.run<string | null>('GET', key)) ?? ''
      throw new ApiError(
        'repeated',
        `This Idempotency-Key was used before, for ${before}. If that does not exist, the first request has failed: ` +
          'use another Idempotency-Key. A secret cannot be shown again.',
        { extra: { id: before } },
      )
    },
    async release() {
      if (isClaimed) await store.run('DEL', key)
    },
  }
}
