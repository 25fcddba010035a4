/**
 * Makes calls of limits by name for service tokens. The check of the token is in the script of each call, before anything is counted; on a
 * cluster, it is in a trip before. A Worker without limits by name does not carry it.
 */
import { serviceTokenId } from '../../credentials/service-token.ts'
import { GatewayError } from '../../errors.ts'
import type { CallFailure, CallGuard } from '../../limiter/call-guard.ts'
import { toDegraded } from '../../limiter/evaluate.ts'
import type { Scope } from '../../scopes.ts'
import { guardCall, isGuardReply } from '../../script/guard.ts'
import { tokenKey } from '../../store/keys.ts'
import {
  type CallListener,
  fitOneCall,
  type ScriptCall,
  type Store,
  type StoreCall,
} from '../../store/store.ts'
import { keysOf } from '../../trips/rider.ts'
import type { GuardableLimiter, Limiter } from '../limits/limiter.ts'
import type { Attempt, CheckedToken, TokenMemory, TokenRefusal } from './token-check.ts'

/** The result of calls of a limiter, or why the token may not make them. */
export type GuardedResult<T> =
  | { ok: true; token: Pick<CheckedToken, 'id' | 'digest'>; value: T }
  | TokenRefusal

/**
 * Makes calls of a limiter for a token.
 * @param needed at least one
 * @throws whatever `call` throws, such as a TypeError for wrong arguments, if the token is admitted
 */
export type GuardedCalls = <T, L extends Limiter>(
  text: string | undefined,
  needed: readonly Scope[],
  address: string | undefined,
  limiterFor: GuardableLimiter<L>,
  call: (limiter: L) => Promise<T>,
) => Promise<GuardedResult<T>>

/** Ends the calls of a limiter if the guard refuses. Only `guarded` sees it. */
class CallRefused extends Error {
  readonly refusal: TokenRefusal

  constructor(refusal: TokenRefusal) {
    super(`The service token was refused: ${refusal.reason}.`)
    this.refusal = refusal
  }
}

export function createGuardedCalls(store: Store, tokens: TokenMemory): GuardedCalls {
  function createGuard(attempt: Attempt): CallGuard & { mustBeAdmitted(): Promise<void> } {
    let refusal: TokenRefusal | undefined
    let isAdmitted = false

    function refused(by: TokenRefusal): GatewayError {
      refusal = by
      // Nothing has run, so the isolate need not correct what it says about units in flight.
      return new GatewayError('ERR_STORE_REFUSED', 'The service token was refused.', { fate: 'not-sent' })
    }

    /** Checks the token alone, unless that was done within the last second. @throws GatewayError */
    async function mustPermit(from: Store): Promise<void> {
      if (tokens.isFresh(attempt)) return
      const checked = await tokens.read(attempt, from)
      if (!checked.ok) throw refused(checked)
      isAdmitted = true
    }

    async function runGuarded(from: Store, calls: readonly StoreCall[], listener?: CallListener) {
      if (!calls.every(call => fitOneCall(from, [tokenKey(attempt.digest), ...keysOf(call)]))) {
        await mustPermit(from)
        return await from.run(calls, listener)
      }
      const at = tokens.now()
      const { digest, needed } = attempt
      const check = { key: tokenKey(digest), scopes: needed }
      const guarded = await Promise.all(calls.map(call => guardCall(call as ScriptCall, check)))
      const replies = await from.run(guarded, listener)
      const refusing = replies.find(isGuardReply)
      if (refusing) throw refused(tokens.refuse(attempt, refusing))
      isAdmitted = true
      tokens.admit(attempt, at)
      return replies
    }

    const guard = {
      isFresh: () => tokens.isFresh(attempt),
      on: (from: Store): Store => ({
        ...from,
        run: (calls, listener) => runGuarded(from, calls, listener),
      }),

      passFailure({ cause, fate }: CallFailure) {
        if (!refusal && tokens.isFresh(attempt)) return
        refusal ??= { ok: false, reason: 'store', failure: { cause, fate } }
        throw new CallRefused(refusal)
      },

      /** For calls that have made no trip, because there was nothing to do, or their arguments were wrong. */
      async mustBeAdmitted() {
        if (!isAdmitted) await mustPermit(store).catch(error => guard.passFailure(toDegraded(error)))
      },
    }
    return guard
  }

  return async (text, needed, address, limiterFor, call) => {
    const attempt = tokens.begin(text, needed, address)
    if (!attempt.ok) return attempt
    const { digest } = attempt
    const guard = createGuard(attempt)
    try {
      const value = await callOf(guard)
      await guard.mustBeAdmitted()
      return { ok: true, token: { id: serviceTokenId(digest), digest }, value }
    } catch (error) {
      if (error instanceof CallRefused) return error.refusal
      throw error
    }

    async function callOf(guard: ReturnType<typeof createGuard>) {
      try {
        return await call(limiterFor(guard))
      } catch (error) {
        if (!(error instanceof CallRefused)) await guard.mustBeAdmitted()
        throw error
      }
    }
  }
}
