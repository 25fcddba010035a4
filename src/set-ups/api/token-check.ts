/**
 * Checks service tokens for the HTTP API in one trip. Those for limits by name are checked in the trip of the call (guarded-calls.ts). An
 * isolate remembers an admitted token for a second, so its end, its revocation and its rotation take effect within a second. Plain data in
 * bounded memory.
 */
import { type Clock, elapsed, latestOf, SYSTEM_CLOCK } from '../../clock.ts'
import { serviceTokenId } from '../../credentials/service-token.ts'
import { GatewayError } from '../../errors.ts'
import { prepareLookUp, runCall } from '../../limiter/prepared-call.ts'
import { Lru } from '../../lru.ts'
import type { Scope } from '../../scopes.ts'
import { sha256 } from '../../sha256.ts'
import { tokenKey } from '../../store/keys.ts'
import { parseToken, type TokenRecord } from '../../store/records.ts'
import type { Store } from '../../store/store.ts'
import { environmentOf, mustHaveAny, unknownToken } from './authenticate.ts'
import type { ApiError } from './problems.ts'
import { storeError } from './store-error.ts'
import { createTokenAttempts } from './token-attempts.ts'

/** A token that the store has admitted. */
export interface CheckedToken extends TokenRecord {
  id: string
  digest: string
}

export interface TokenChecks {
  /**
   * Checks a token in one trip, or without one if the store has admitted it within the last second.
   * @param text what follows `Bearer `; undefined: nothing was sent
   * @param needed any one of them; empty: any token
   * @param address of the client, as rules count it; undefined: unknown
   * @throws ApiError if the token is refused, or the store does not answer
   */
  check(
    text: string | undefined,
    needed: readonly Scope[],
    address: string | undefined,
  ): Promise<CheckedToken>
  /** Forgets a token that this isolate has revoked or replaced. */
  forget(digest: string): void
}

/** What checks that travel with calls need (guarded-calls.ts). */
export interface TokenMemory extends TokenChecks {
  /** Refuses what needs no trip, and counts the attempt. @throws ApiError */
  begin(text: string | undefined, needed: readonly Scope[], address: string | undefined): Attempt
  /** Checks a token in one trip, unless its record was read within the last second. @throws ApiError; GatewayError as Store.run */
  read(attempt: Attempt, from: Store): Promise<CheckedToken>
  find(digest: string): KnownToken | undefined
  /** Ends an attempt: the store has the token. */
  remember(attempt: Attempt): KnownToken
  /** Ends an attempt: the store has no such token. */
  refuse(attempt: Attempt): ApiError
  /** @param at when a trip began (ms). @returns whether that was within the last second */
  isRecent(at: number | undefined): boolean
  /** ms, by a clock that is never set back. */
  now(): number
}

/** How long an admitted token is remembered (ms), from before the trip that has checked it. */
const REMEMBERED_MS = 1000

/** About 1 kB each. The Lru keeps up to twice as many. */
const MAX_TOKENS = 500

/** What the store has said about a token. It is kept for longer than a second: the next check of this token does not count as a guess. */
export interface KnownToken {
  /** By which scopes the token was admitted, and when the last trip began that has done it (ms). */
  admitted: Map<string, number>
  token?: CheckedToken
  /** When the trip began that has brought `token` (ms). */
  readAt?: number
}

/** A token whose form is right, and what a request needs it for. */
export interface Attempt {
  digest: string
  needed: readonly Scope[]
  address: string
}

/**
 * Creates the checks of an isolate.
 * @param environment whose tokens are valid
 */
export function createTokenChecks(
  store: Store,
  environment: string | undefined,
  clock: Clock = SYSTEM_CLOCK,
): TokenMemory {
  let tokens = new Lru<KnownToken>({ size: MAX_TOKENS })
  const now = latestOf(
    () => elapsed(clock),
    () => {
      tokens = new Lru<KnownToken>({ size: MAX_TOKENS })
    },
  )
  const attempts = createTokenAttempts(now)
  const isRecent = (at: number | undefined) => at !== undefined && now() < at + REMEMBERED_MS

  function find(digest: string): KnownToken | undefined {
    // First, because it forgets all tokens if the clock was set back.
    now()
    return tokens.get(digest)
  }

  function begin(text: string | undefined, needed: readonly Scope[], address = ''): Attempt {
    if (environmentOf(text) !== environment) throw unknownToken()
    const digest = sha256(text!)
    if (!find(digest)) attempts.begin(address, digest)
    return { digest, needed, address }
  }

  function remember({ digest, address }: Attempt): KnownToken {
    attempts.end(address, digest, true)
    const known = find(digest) ?? { admitted: new Map() }
    tokens.set(digest, known)
    return known
  }

  function refuse({ digest, address }: Attempt): ApiError {
    attempts.end(address, digest, false)
    tokens.delete(digest)
    return unknownToken()
  }

  async function read(attempt: Attempt, from: Store): Promise<CheckedToken> {
    const { digest, needed } = attempt
    let known = find(digest)
    if (!isRecent(known?.readAt)) {
      const readAt = now()
      const record = parseToken((await runCall(from, prepareLookUp(tokenKey(digest)))) ?? '')
      if (!record) throw refuse(attempt)
      known = remember(attempt)
      known.token = { ...record, id: serviceTokenId(digest), digest }
      known.readAt = readAt
    }
    const { token } = known as Required<KnownToken>
    mustHaveAny(token, needed)
    return token
  }

  return {
    async check(...args) {
      const attempt = begin(...args)
      return await read(attempt, store).catch((error: unknown) => {
        throw error instanceof GatewayError ? storeError('none', error.message) : error
      })
    },
    forget: digest => tokens.delete(digest),
    ...{ begin, read, find, remember, refuse, isRecent, now },
  }
}
