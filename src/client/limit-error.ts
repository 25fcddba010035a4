/** A call would have to wait longer than its client allows. The request was not sent, or a limit has refused it. */
export class LimitError extends Error {
  declare readonly name: 'LimitError'
  /** How long to wait before the next attempt (ms). Infinite if no wait helps. */
  declare readonly retryAfterMs: number
  /** The same as a time. */
  declare readonly retryAt: Date
  /** The origin of the API, such as `https://api.example.com`. */
  declare readonly origin: string
  /** The name of the policy, or of the limit of your own limiter; empty if the API names none. */
  declare readonly policy: string

  constructor(retryAfterMs: number, origin: string, policy: string) {
    super(`${origin} ${policy}: next call in ${Math.ceil(retryAfterMs / 1e3)} s`)
    Object.assign(this, {
      name: 'LimitError',
      retryAfterMs: Math.ceil(retryAfterMs),
      retryAt: new Date(Date.now() + retryAfterMs),
      origin,
      policy,
    })
  }
}
