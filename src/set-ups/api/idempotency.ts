/**
 * Keeps a creation from being repeated. Before anything is written, the request claims its Idempotency-Key, with the id of what it will
 * create. The script of the creation runs only while the claim is its own, and ends it. So if a reply was lost, a repeat knows what became of
 * the first request: either that has created something, or the repeat takes the claim over, and the first can no longer create anything.
 * On a cluster, the claim is in another slot than the creation, so there a repeat can only say how to find out.
 */
import { evalCommand } from '../../ops/admin-connection.ts'
import { notRedis } from '../../ops/admin-error.ts'
import type { AdminStore, HeldClaim } from '../../ops/admin-store-shape.ts'
import { claimLost } from '../../ops/write-from.ts'
import { sha256 } from '../../sha256.ts'
import { idempotencyKey } from '../../store/keys.ts'
import { ApiError, invalidInput } from './problems.ts'

const KEPT_SECONDS = 86_400

export interface Claim {
  /** Call it with the id of what will be created. @throws ApiError `repeated` if the key was used before */
  claim(id: string): Promise<HeldClaim | undefined>
  /**
   * Call it if the request was refused, so that it can be repeated.
   * @throws ApiError `repeated` if the first request has created something: it may be the reason of the refusal
   */
  release(): Promise<void>
  /** Whether a repeat of the request creates nothing twice. */
  isSafe(): boolean
}

/** ARGV: the text of the claim, the text of the claim to take over or an empty one, seconds. Replies the text that the key has then. */
const CLAIM = `
local text = redis.call('GET', KEYS[1])
if text and text ~= ARGV[2] then return text end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[3])
return ARGV[1]`

const RELEASE = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`

/** Of a claim whose request has created nothing yet. Those of earlier versions, and on a cluster, are an id alone. */
const PENDING = /^pending \S+ /

/**
 * @param given the Idempotency-Key; null: none
 * @param ids.tokenId of the caller: tokens share no keys
 */
export function createClaim(
  given: string | null,
  store: AdminStore,
  { tokenId, requestId }: { tokenId: string; requestId: string },
): Claim {
  if (given === null) return { claim: async () => undefined, release: async () => {}, isSafe: () => false }
  if (!/^[\x21-\x7e]{1,255}$/.test(given))
    throw invalidInput('Idempotency-Key', 'Use 1 to 255 visible ASCII characters.')
  const key = store.at(idempotencyKey(sha256(`${tokenId} ${given}`)))
  const { isCluster } = store.decisions
  let held: string | undefined
  const put = async (text: string, before: string) => {
    const found = await store.run(...evalCommand(CLAIM, [key], [text, before, KEPT_SECONDS]))
    if (typeof found === 'string') return found
    throw notRedis()
  }
  return {
    async claim(id) {
      const text = isCluster ? id : `pending ${requestId} ${id}`
      held = text
      let found = await put(text, '')
      if (found !== text && PENDING.test(found)) found = await put(text, found)
      if (found === text) return isCluster ? undefined : { key, text, done: id }
      held = undefined
      // It may never create what it has claimed.
      if (PENDING.test(found)) throw claimLost()
      throw repeated(found, isCluster)
    },
    async release() {
      if (held !== undefined) return void (await store.run(...evalCommand(RELEASE, [key], [held])))
      const found = await store.run<string | null>('GET', key)
      if (found !== null && !PENDING.test(found)) throw repeated(found, isCluster)
    },
    isSafe: () => held !== undefined && !isCluster,
  }
}

const repeated = (id: string, isCluster = false) =>
  new ApiError(
    'repeated',
    `This Idempotency-Key was used before, for ${id}. ${isCluster ? UNKNOWN : ''}If its secret was lost with the reply, rotate it.`,
    { extra: { id } },
  )

const UNKNOWN =
  'If a GET does not find it a minute later, the first request has failed: use another Idempotency-Key. '
