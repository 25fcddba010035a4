/** A request whose cost in units is estimated. */
import type { Amounts } from '../../usage/usage.ts'
import type { Problem } from './problem.ts'

export interface EstimatedRequest {
  /** Forward this request. */
  request: Request
  /** By unit, as far as it is known now: a large body is read while it passes. A unit that is left out costs its fixed estimate. */
  amounts(): Amounts
  /** Why the request must not be forwarded, or was broken off. */
  refusal(): Problem | undefined
  /** The request asks the origin for usage that the client must not get; as far as it is known now. */
  hidesUsage(): boolean
  /** It may still turn out that `hidesUsage`. */
  mayHideUsage: boolean
  /** The client has broken off the body, so the request must not be forwarded: workerd can end such a body as if it were whole. */
  isBroken: boolean
  /** Is aborted when the client breaks off the rest of its body. */
  bodyFailed?: AbortSignal | undefined
  /** The store has admitted the request, so that its caller is known from now on. */
  rememberCaller(): void
  /** Nothing of the body is held any more. */
  release(): void
}

/** A request whose body is not read. */
export const withoutBody = (request: Request, amounts: Amounts): EstimatedRequest => ({
  ...{ request, mayHideUsage: false, isBroken: false },
  amounts: () => amounts,
  refusal: () => undefined,
  hidesUsage: () => false,
  rememberCaller() {},
  release() {},
})
