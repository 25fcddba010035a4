/**
 * The one error type of Sluice. A refused request is a value (limiter/decision.ts), never an error. Errors are for a config that
 * cannot be read, for a store that fails, and for a hook of the config that fails.
 */
export type ErrorCode =
  | 'ERR_CONFIG_INVALID'
  | 'ERR_STORE_TIMEOUT'
  | 'ERR_STORE_UNREACHABLE'
  | 'ERR_STORE_REFUSED'
  | 'ERR_STORE_QUOTA'
  | 'ERR_STORE_BREAKER_OPEN'
  | 'ERR_STORE_REPLY_INVALID'
  | 'ERR_STORE_OVERLOAD'
  | 'ERR_HOOK_FAILED'

export class GatewayError extends Error {
  override readonly name = 'GatewayError'
  /** Stable, for programs: tests and logs use it, messages may change. */
  readonly code: ErrorCode

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}

/** Where it happened. Of foreign errors not their message: it may quote what was being handled. */
export function traceOf(error: unknown): string {
  if (!(error instanceof Error)) return typeof error
  const { name, message, stack = '' } = error
  // A message can look like a frame, so only lines behind the message are used.
  const head = message ? `${name}: ${message}` : name
  const frames = stack.startsWith(head) ? stack.slice(head.length).split('\n') : []
  const what = error instanceof GatewayError ? head : name
  return [what, ...frames.filter(line => /^\s+at /.test(line))].join('\n')
}
