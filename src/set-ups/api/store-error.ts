/** What the API replies if the store fails, and if an operation is refused. */
import type { CallFate } from '../../errors.ts'
import type { AdminError } from '../../ops/admin-error.ts'
import { unknownToken } from './authenticate.ts'
import { ApiError, type ChangeState, invalidInput } from './problems.ts'

const CHANGE: Record<ChangeState, string> = {
  none: 'Nothing was changed. Try again later.',
  unknown: 'The request may have taken effect, in part or as a whole. Read the state before you repeat it.',
}

const NO_ANSWER = 'The store did not answer.'

const REPEAT = 'Repeat it with the same Idempotency-Key: nothing is created twice.'

/** What is known about a change, if the store has failed with this fate. */
export const changeState = (fate: CallFate): ChangeState => (fate === 'may-have-run' ? 'unknown' : 'none')

/** @param what has happened, in a sentence that is for everyone */
export function storeError(change: ChangeState, what = NO_ANSWER, fix = CHANGE[change]): ApiError {
  return new ApiError('store-unavailable', `${what} ${fix}`, {
    headers: { 'retry-after': '1' },
    extra: { change },
  })
}

/**
 * @param change of a request that has failed because of the store
 * @param isSafe whether a repeat creates nothing twice
 */
export function adminError(error: AdminError, change: ChangeState, isSafe: boolean): ApiError {
  const { kind, message, failure } = error
  if (kind === 'usage') return invalidInput('', message)
  if (kind === 'store') return storeError(change, failure?.message, isSafe ? REPEAT : undefined)
  if (kind === 'ended') return unknownToken()
  // No route has bounds for statistics.
  return new ApiError(kind as Exclude<typeof kind, 'above'>, message)
}
