/**
 * Limits how many service tokens a client can try. A token that the store has not admitted yet is an attempt until it is admitted. Each isolate
 * counts by itself, in bounded memory.
 */
import { Lru } from '../../lru.ts'
import { tooManyTokens, unknownToken } from './authenticate.ts'

/** Tokens that the clients of one address can try within `PERIOD_MS` in an isolate. */
export const MAX_ATTEMPTS = 20
export const PERIOD_MS = 60_000

/** The Lru keeps up to twice as many: 1.5 MB if all of them try 20 tokens. */
const MAX_ADDRESSES = 250

interface Attempt {
  /** ms */
  at: number
  isWrong: boolean
}

export type TokenAttempts = ReturnType<typeof createTokenAttempts>

/** @param now monotonic time (ms) */
export function createTokenAttempts(now: () => number) {
  /** The attempts of each address by the digest of the token, the oldest first. */
  const byAddress = new Lru<Map<string, Attempt>>({ size: MAX_ADDRESSES })

  function attemptsOf(address: string): Map<string, Attempt> {
    const attempts = byAddress.get(address) ?? new Map<string, Attempt>()
    for (const [digest, { at }] of attempts) {
      if (now() < at + PERIOD_MS) break
      attempts.delete(digest)
    }
    return attempts
  }

  return {
    /**
     * Begins an attempt. The same token can be tried several times at once: a client may begin with many calls.
     * @throws ApiError if there were too many, or the token was found to be wrong before
     */
    begin(address: string, digest: string): void {
      const attempts = attemptsOf(address)
      const known = attempts.get(digest)
      if (known?.isWrong) throw unknownToken()
      if (known) return
      if (attempts.size >= MAX_ATTEMPTS)
        throw tooManyTokens(attempts.values().next().value!.at + PERIOD_MS - now())
      attempts.set(digest, { at: now(), isWrong: false })
      byAddress.set(address, attempts)
    },
    end(address: string, digest: string, isRight: boolean): void {
      const attempts = byAddress.peek(address)
      const attempt = attempts?.get(digest)
      if (isRight) attempts?.delete(digest)
      else if (attempt) attempt.isWrong = true
    },
  }
}
