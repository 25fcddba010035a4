/** Why an administrative operation failed. */
export type AdminFailure =
  /** The arguments are invalid. Nothing was sent. */
  | 'usage'
  | 'not-found'
  /** The service token that asks for the operation may not do it. */
  | 'forbidden'
  /** It has ended, or was revoked. Nothing was changed. The HTTP API has its own message. */
  | 'ended'
  /** The stored data does not allow the operation. */
  | 'refused'
  /** Another writer was faster. The same operation may succeed if it is repeated. */
  | 'conflict'
  /** The store did not answer, or its answer was invalid. */
  | 'store'
  /** A share of the statistics is above its bound. */
  | 'above'

/** An error of an administrative operation, with a message for users. No message contains a key, a token, or the text of a command. */
export class AdminError extends Error {
  override readonly name = 'AdminError'
  readonly kind: AdminFailure
  /** What to do now, in lines of their own: which settings to check, and the command that tests them. */
  readonly nextStep: string | undefined

  constructor(kind: AdminFailure, message: string, nextStep?: string) {
    super(message)
    this.kind = kind
    this.nextStep = nextStep
  }
}

/** Something between Redis and this process replies by itself. */
export const notRedis = (): AdminError =>
  new AdminError('store', 'The store does not answer as a Redis does.')

/** ` Did you mean 'pro'?`, or an empty text. The HTTP API lists the names that exist, and suggests none: a Worker does not carry this. */
export type Suggest = (word: string, known: readonly string[]) => string

/**
 * The error about a name that does not exist, with those that do.
 * @param problem a sentence
 * @param what they are, as in `Rules`
 */
export function unknownName(
  kind: AdminFailure,
  problem: string,
  name: string,
  [what, known]: readonly [what: string, known: readonly string[]],
  suggest: Suggest = () => '',
): AdminError {
  return new AdminError(kind, `${problem}${suggest(name, known)} ${what}: ${known.join(', ') || 'none'}.`)
}
