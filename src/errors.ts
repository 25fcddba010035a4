/**
 * The error type of Sluice, for an invalid config, a store that fails, and a hook that fails. A refused request is not an error but a
 * value (limiter/decision.ts).
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
  | 'ERR_STORE_CALLS_EXHAUSTED'
  | 'ERR_HOOK_FAILED'

/**
 * What is known about a call to the store that has failed: it was not sent; the store has answered with an error, so it has counted
 * nothing; or it may have run, and only the answer is missing. The code alone does not show it: an isolate that is too busy gives up
 * calls before and after they are sent.
 */
export type CallFate = 'not-sent' | 'answered' | 'may-have-run'

export class GatewayError extends Error {
  override readonly name = 'GatewayError'
  /** Stable, so programs can rely on it. The message may change. */
  readonly code: ErrorCode
  readonly fate: CallFate

  /** @param options `fate`: if it is not the usual one of this code */
  constructor(code: ErrorCode, message: string, options?: ErrorOptions & { fate?: CallFate }) {
    super(message, options)
    this.code = code
    this.fate = options?.fate ?? FATES[code] ?? 'may-have-run'
  }
}

/** The usual fate of a call that failed with a code, if it is not `may-have-run`. */
const FATES: { readonly [code in ErrorCode]?: CallFate } = {
  ERR_STORE_REFUSED: 'answered',
  ERR_STORE_QUOTA: 'answered',
  ERR_STORE_BREAKER_OPEN: 'not-sent',
  ERR_STORE_CALLS_EXHAUSTED: 'not-sent',
  ERR_CONFIG_INVALID: 'not-sent',
}

/**
 * The name and the stack of an error, for logs. The message is included only for a `GatewayError`: messages of other errors may
 * quote data of the request.
 */
export function traceOf(error: unknown): string {
  if (!(error instanceof Error)) return typeof error
  const { name, message, stack = '' } = error
  // A message can contain lines that look like frames, so the message is cut off first.
  const head = message ? `${name}: ${message}` : name
  const frames = stack.startsWith(head) ? stack.slice(head.length).split('\n') : []
  const what = error instanceof GatewayError ? head : name
  return [what, ...frames.filter(line => /^\s+at /.test(line))].join('\n')
}
