/**
 * Checks service tokens for the HTTP API in one trip. Those for limits by name are checked in the trip of the call (guarded-calls.ts). An
 * isolate remembers an admitted token for a second, so its end, its revocation and its rotation take effect within a second. Plain data in
 * bounded memory.
 */
import { type Clock, elapsed, latestOf, SYSTEM_CLOCK } from '../../clock.ts'
import { readServiceToken, serviceTokenId } from '../../credentials/service-token.ts'
import { GatewayError } from '../../errors.ts'
import type { CallFailure } from '../../limiter/call-guard.ts'
import { toDegraded } from '../../limiter/evaluate.ts'
import { prepareLookUp, runCall } from '../../limiter/prepared-call.ts'
import { Lru } from '../../lru.ts'
import { hasAnyOf, type Scope } from '../../scopes.ts'
import { sha256 } from '../../sha256.ts'
import { tokenKey } from '../../store/keys.ts'
import { parseToken, type TokenRecord } from '../../store/records.ts'
import type { Store } from '../../store/store.ts'
import { createTokenAttempts } from './token-attempts.ts'

/** A token that the store has admitted. */
export interface CheckedToken extends TokenRecord {
  id: string
  digest: string
}

/** Why a token was refused. */
export interface TokenRefusal {
  ok: false
  reason: 'missing' | 'malformed' | 'unknown' | 'scope' | 'too-many' | 'store'
  /** With `scope`: the token needs any one of them. */
  needed?: readonly Scope[]
  /** With `too-many`: when to try again (ms). */
  retryAfterMs?: number
  /** With `store`. */
  failure?: CallFailure
}

export type TokenCheck = { ok: true; token: CheckedToken } | TokenRefusal

export interface TokenChecks {
  /**
   * Checks a token in one trip, or without one if the store has admitted it within the last second.
   * @param text what follows `Bearer `; undefined: nothing was sent
   * @param needed any one of them; empty: any token
   * @param address of the client, as rules count it; undefined: unknown
   */
  check(text: string | undefined, needed: readonly Scope[], address: string | undefined): Promise<TokenCheck>
  /** Forgets a token that this isolate has revoked or replaced. */
  forget(digest: string): void
}

/** What checks that travel with calls need (guarded-calls.ts). */
export interface TokenMemory extends TokenChecks {
  /** Refuses what needs no trip, and counts the attempt. */
  begin(
    text: string | undefined,
    needed: readonly Scope[],
    address: string | undefined,
  ): ({ ok: true } & Attempt) | TokenRefusal
  /** Whether the store has admitted it within the last second. */
  isFresh(attempt: Attempt): boolean
  /** @param at when the trip began that has admitted the token (ms) */
  admit(attempt: Attempt, at: number): void
  refuse(attempt: Attempt, reason: 'unknown' | 'scope'): TokenRefusal
  /** Checks a token in one trip, unless its record was read within the last second. @throws GatewayError as Store.run */
  read(attempt: Attempt, from: Store): Promise<TokenCheck>
  /** ms, by a clock that is never set back. */
  now(): number
}

/** How long an admitted token is remembered (ms), from before the trip that has checked it. */
const REMEMBERED_MS = 1000

/** About 1 kB each. The Lru keeps up to twice as many. */
const MAX_TOKENS = 500

/** What the store has said about a token. It is kept for longer than a second: the next check of this token does not count as a guess. */
interface Known {
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
  let tokens = new Lru<Known>({ size: MAX_TOKENS })
  const now = latestOf(
    () => elapsed(clock),
    () => {
      tokens = new Lru<Known>({ size: MAX_TOKENS })
    },
  )
  const attempts = createTokenAttempts(now)
  const isRecent = (at: number | undefined) => at !== undefined && now() < at + REMEMBERED_MS

  function find(digest: string): Known | undefined {
    // First, because it forgets all tokens if the clock was set back.
    now()
    return tokens.get(digest)
  }

  function begin(
    text: string | undefined,
    needed: readonly Scope[],
    address = '',
  ): ({ ok: true } & Attempt) | TokenRefusal {
    if (!text) return { ok: false, reason: 'missing' }
    const form = readServiceToken(text)
    if (!form) return { ok: false, reason: 'malformed' }
    if (form.environment !== environment) return { ok: false, reason: 'unknown' }
    const digest = sha256(text)
    const attempt = { digest, needed, address }
    if (find(digest)) return { ok: true, ...attempt }
    const result = attempts.begin(address, digest)
    if (result === 'wrong') return { ok: false, reason: 'unknown' }
    if (result !== undefined) return { ok: false, reason: 'too-many', retryAfterMs: result }
    return { ok: true, ...attempt }
  }

  function isFresh({ digest, needed }: Attempt): boolean {
    const known = find(digest)
    return (
      isRecent(known?.admitted.get(needed.join(','))) || (isRecent(known?.readAt) && permits(known, needed))
    )
  }

  function admit({ digest, needed, address }: Attempt, at: number): void {
    attempts.end(address, digest, true)
    const known: Known = find(digest) ?? { admitted: new Map() }
    known.admitted.set(needed.join(','), at)
    tokens.set(digest, known)
  }

  function refuse({ digest, needed, address }: Attempt, reason: 'unknown' | 'scope'): TokenRefusal {
    attempts.end(address, digest, reason === 'scope')
    if (reason === 'scope') return { ok: false, reason, needed }
    tokens.delete(digest)
    return { ok: false, reason }
  }

  async function read(attempt: Attempt, from: Store): Promise<TokenCheck> {
    const { digest, needed } = attempt
    let known = find(digest)
    if (!isRecent(known?.readAt)) {
      const readAt = now()
      const found = await runCall(from, prepareLookUp(tokenKey(digest))).catch(error => {
        throw changedNothing(error)
      })
      const record = parseToken(found ?? '')
      if (!record) return refuse(attempt, 'unknown')
      const token = { ...record, id: serviceTokenId(digest), digest }
      known = { admitted: find(digest)?.admitted ?? new Map(), token, readAt }
      tokens.set(digest, known)
      attempts.end(attempt.address, digest, true)
    }
    return permits(known, needed) ? { ok: true, token: known!.token! } : refuse(attempt, 'scope')
  }

  return {
    async check(text, needed, address) {
      const attempt = begin(text, needed, address)
      if (!attempt.ok) return attempt
      return await read(attempt, store).catch((error): TokenRefusal => {
        const { cause, fate } = toDegraded(error)
        return { ok: false, reason: 'store', failure: { cause, fate } }
      })
    },

    forget: digest => tokens.delete(digest),
    ...{ begin, isFresh, admit, refuse, read, now },
  }
}

/** A failed check, which only reads. */
const changedNothing = (error: unknown): unknown =>
  error instanceof GatewayError
    ? new GatewayError(error.code, error.message, { cause: error, fate: 'not-sent' })
    : error

const permits = (known: Known | undefined, needed: readonly Scope[]) =>
  known?.token !== undefined && hasAnyOf(known.token.scopes, needed)
