/** Why an administrative operation failed. */
export type AdminFailure =
  /** The arguments are invalid. Nothing was sent. */
  | 'usage'
  | 'not-found'
  /** The stored data does not allow the operation. */
  | 'refused'
  /** The store did not answer, or its answer was invalid. */
  | 'store'

/** An error of an administrative operation, with a message for users. No message contains a key, a token, or the text of a command. */
export class AdminError extends Error {
  override readonly name = 'AdminError'
  readonly kind: AdminFailure

  constructor(kind: AdminFailure, message: string) {
    super(message)
    this.kind = kind
  }
}
