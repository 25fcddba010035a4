/**
 * Keeps a creation from being repeated. Before anything is written, the request claims its Idempotency-Key, with the id of what it will
 * create. The script of the creation runs only while the claim is its own, and ends it. So if a reply was lost, a repeat knows what became of
 * the first request: either that has created something, or the repeat takes the claim over, and the first can no longer create anything.
 * On a cluster, the claim is in another slot than the creation, so there a repeat can only say how to find out.
 */

import { notRedis } from '../../ops/admin-error.ts'
import type { AdminStore, HeldClaim } from '../../ops/admin-store-shape.ts'
import { claimLost } from '../../ops/write.ts'
import { sha256 } from '../../sha256.ts'
import { type Command, evalCommand } from '../../store/admin-connection.ts'
import { idempotencyKey } from '../../store/keys.ts'
import type { ApiOnCluster } from './on-cluster.ts'
import { ApiError, invalidInput } from './problems.ts'

const KEPT_SECONDS = 86_400

export interface Claim {
  /** Call it with the id of what will be created. @throws ApiError `repeated` if the key was used before */
  claim(id: string): Promise<HeldClaim | undefined>
  /**
   * Call it if the request was refused, so that it can be repeated. The store need not answer.
   * @throws ApiError `repeated` if the first request has created something: it may be the reason of the refusal
   */
  release(): Promise<void>
  /** Whether a repeat of the request creates nothing twice. */
  isSafe(): boolean
}

interface ClaimOptions {
  /** Of the caller: tokens share no keys. */
  tokenId: string
  requestId: string
  /** Used only on a cluster. */
  onCluster: Pick<ApiOnCluster, 'firstRequest'>
}

/** ARGV: the text of the claim, the text of the claim to take over or an empty one, seconds. Replies the text that the key has then. */
const CLAIM = `
local text = redis.call('GET', KEYS[1])
if text and text ~= ARGV[2] then return text end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[3])
return ARGV[1]`

/** ARGV: the text of the claim. Replies another text that the key has. */
const RELEASE = `
local text = redis.call('GET', KEYS[1])
if text ~= ARGV[1] then return text end
return redis.call('DEL', KEYS[1])`

/** Of a claim whose request has created nothing yet. Those of earlier versions are an id alone, and on a cluster `<id> <request>`. */
const PENDING = /^pending \S+ /

/** Of a request without an Idempotency-Key. */
const NO_CLAIM: Claim = { claim: async () => undefined, release: async () => {}, isSafe: () => false }

/** @param given the Idempotency-Key; null: none */
export function createClaim(
  given: string | null,
  store: AdminStore,
  { tokenId, requestId, onCluster }: ClaimOptions,
): Claim {
  if (given === null) return NO_CLAIM
  if (!/^[\x21-\x7e]{1,255}$/.test(given))
    throw invalidInput('Idempotency-Key', 'Use 1 to 255 visible ASCII characters.')
  const key = store.at(idempotencyKey(sha256(`${tokenId} ${given}`)))
  const { isCluster } = store.decisions
  let held: string | undefined
  let isUsed = false

  async function put(text: string, before: string): Promise<string> {
    const found = await store.run(...evalCommand(CLAIM, [key], [text, before, KEPT_SECONDS]))
    if (typeof found === 'string') return found
    throw notRedis()
  }

  function repeated(text: string): ApiError {
    isUsed = true
    const [id = ''] = text.split(' ')
    const howToFindOut = isCluster ? `${onCluster.firstRequest} ` : ''
    return new ApiError(
      'repeated',
      `This Idempotency-Key was used before, for ${id}. ${howToFindOut}If its secret was lost with the reply, rotate it.`,
      { extra: { id } },
    )
  }

  return {
    async claim(id) {
      // With the request: the id of an imported key is the same in all of them.
      const text = isCluster ? `${id} ${requestId}` : `pending ${requestId} ${id}`
      held = text
      let found = await put(text, '')
      if (found !== text && PENDING.test(found)) found = await put(text, found)
      if (found === text) return isCluster ? undefined : { key, text, done: id }
      held = undefined
      // It may never create what it has claimed.
      if (PENDING.test(found)) throw claimLost()
      throw repeated(found)
    },
    async release() {
      if (isUsed) return
      const command: Command = held === undefined ? ['GET', key] : evalCommand(RELEASE, [key], [held])
      // If the store fails, the claim ends by itself.
      const found = await store.run(...command).catch(() => null)
      if (typeof found === 'string' && !PENDING.test(found)) throw repeated(found)
    },
    isSafe: () => held !== undefined && !isCluster,
  }
}
