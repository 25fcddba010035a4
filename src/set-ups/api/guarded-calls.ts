/**
 * Makes calls of limits by name for service tokens. The check of the token is in the script of each call, before anything is counted; on a
 * cluster, it is in a trip before. A Worker without limits by name does not carry it.
 */
import { GatewayError } from '../../errors.ts'
import type { CallFailure, CallGuard } from '../../limiter/call-guard.ts'
import { toDegraded } from '../../limiter/evaluate.ts'
import { hasAnyOf, type Scope } from '../../scopes.ts'
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
import { scopeError } from './authenticate.ts'
import { ApiError } from './problems.ts'
import { changeState, storeError } from './store-error.ts'
import type { Attempt, TokenMemory } from './token-check.ts'

/**
 * Makes calls of a limiter for a token.
 * @param needed at least one
 * @throws ApiError if the token is refused; whatever `call` throws, such as a TypeError for wrong arguments, if it is admitted
 */
export type GuardedCalls = <T, L extends Limiter>(
  text: string | undefined,
  needed: readonly Scope[],
  address: string | undefined,
  limiterFor: GuardableLimiter<L>,
  call: (limiter: L, mustHave: MustHave) => Promise<T>,
) => Promise<T>

/** Checks that the token also has any one of these scopes, in a trip of its own, at most one a second. @throws ApiError */
export type MustHave = (needed: readonly Scope[]) => Promise<void>

export function createGuardedCalls(store: Store, tokens: TokenMemory): GuardedCalls {
  function createGuard(attempt: Attempt): CallGuard & { mustBeAdmitted(): Promise<void> } {
    const { digest, needed } = attempt
    let refusal: ApiError | undefined
    let isAdmitted = false

    /** Whether the store has admitted it within the last second. */
    function isFresh(): boolean {
      const { admitted, token, readAt } = tokens.find(digest) ?? {}
      return (
        tokens.isRecent(admitted?.get(needed.join())) ||
        (tokens.isRecent(readAt) && hasAnyOf(token!.scopes, needed))
      )
    }

    /** @param at when the trip began that has admitted it (ms) */
    function admit(at: number): void {
      isAdmitted = true
      tokens.remember(attempt).admitted.set(needed.join(), at)
    }

    /** Nothing has run, so the isolate need not correct what it says about units in flight. */
    const nothingRan = (error: GatewayError) =>
      new GatewayError(error.code, error.message, { cause: error, fate: 'not-sent' })

    function refused(by: ApiError): GatewayError {
      refusal = by
      return nothingRan(new GatewayError('ERR_STORE_REFUSED', 'The service token was refused.'))
    }

    /** Checks the token alone, unless that was done within the last second. @throws GatewayError */
    async function mustPermit(from: Store): Promise<void> {
      if (isFresh()) return
      await tokens.read(attempt, from).catch((error: unknown) => {
        if (error instanceof ApiError) throw refused(error)
        throw error instanceof GatewayError ? nothingRan(error) : error
      })
      isAdmitted = true
    }

    async function runGuarded(from: Store, calls: readonly StoreCall[], listener?: CallListener) {
      if (!calls.every(call => fitOneCall(from, [tokenKey(digest), ...keysOf(call)]))) {
        await mustPermit(from)
        return await from.run(calls, listener)
      }
      const at = tokens.now()
      const check = { key: tokenKey(digest), scopes: needed }
      const guarded = await Promise.all(calls.map(call => guardCall(call as ScriptCall, check)))
      const replies = await from.run(guarded, listener)
      const refusing = replies.find(isGuardReply)
      if (refusing === 'scope') {
        tokens.remember(attempt)
        throw refused(scopeError(needed))
      }
      if (refusing) throw refused(tokens.refuse(attempt))
      admit(at)
      return replies
    }

    const guard = {
      isFresh,
      on: (from: Store): Store => ({
        ...from,
        run: (calls, listener) => runGuarded(from, calls, listener),
      }),

      passFailure({ cause, fate }: CallFailure) {
        if (!refusal && isFresh()) return
        refusal ??= storeError(changeState(fate), `The store did not answer (${cause}).`)
        throw refusal
      },

      /** For calls that have made no trip, because there was nothing to do, or their arguments were wrong. @throws ApiError */
      async mustBeAdmitted() {
        if (isAdmitted) return
        if (refusal) throw refusal
        await mustPermit(store).catch(error => guard.passFailure(toDegraded(error)))
      },
    }
    return guard
  }

  return async (text, needed, address, limiterFor, call) => {
    const attempt = tokens.begin(text, needed, address)
    const guard = createGuard(attempt)
    const mustHave: MustHave = async also => {
      await guard.mustBeAdmitted()
      await tokens.read({ ...attempt, needed: also }, store).catch((error: unknown) => {
        throw error instanceof GatewayError ? storeError('none', error.message) : error
      })
    }
    try {
      return await call(limiterFor(guard), mustHave)
    } finally {
      await guard.mustBeAdmitted()
    }
  }
}
