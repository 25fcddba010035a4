/**
 * The one error type of the gateway. A refused request is a value (limiter/decide.ts), never an error; errors
 * are for what the caller could not decide: a config that cannot be read, a store or an origin that fails.
 */
export type ErrorCode =
  | 'ERR_CONFIG_INVALID'
  | 'ERR_STORE_TIMEOUT'
  | 'ERR_STORE_UNREACHABLE'
  | 'ERR_STORE_REFUSED'
  | 'ERR_STORE_QUOTA'
  | 'ERR_STORE_REPLY_INVALID'

export class GatewayError extends Error {
  override readonly name = 'GatewayError'
  /** Stable, for programs: tests and logs use it, messages may change. */
  readonly code: ErrorCode

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}
