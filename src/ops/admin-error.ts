/** What keeps an operation from being done, told to people. No message holds a key, a token, or text of a command. */
export type AdminFailure =
  /** It was asked in a way that cannot be done: nothing was sent. */
  | 'usage'
  | 'not-found'
  /** What is there does not allow it. */
  | 'refused'
  /** The store did not answer, or not with what was asked. */
  | 'store'

export class AdminError extends Error {
  override readonly name = 'AdminError'
  readonly kind: AdminFailure

  constructor(kind: AdminFailure, message: string) {
    super(message)
    this.kind = kind
  }
}
