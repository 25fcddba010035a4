/** The last time that a date can have (ms since the epoch). */
const LAST_MS = 864e13

/** A call would have to wait longer than its client allows. The request was not sent, or a limit has refused it. */
export class LimitError extends Error {
  declare readonly name: 'LimitError'
  /** How long to wait before the next attempt (ms). Infinite if no wait helps. */
  declare readonly retryAfterMs: number
  /** The same as a time. If no wait helps, the last time that there is. */
  declare readonly retryAt: Date
  /** The origin of the API, such as `https://api.example.com`. */
  declare readonly origin: string
  /** The name of the policy, or of the limit of your own limiter; empty if the API names none. */
  declare readonly policy: string
  /**
   * Whether the limit is used up: it has refused a call, or has no unit left. False: units are left, and calls are only spread over the
   * time until it is full again, or wait for the first reply. With a longer `maxWaitMs`, this call would have been sent.
   */
  declare readonly isUsedUp: boolean

  constructor(retryAfterMs: number, origin: string, policy: string, isUsedUp = true) {
    const why = isUsedUp ? 'used up' : 'calls are spread'
    super(`${origin}${policy && ` ${policy}`}: ${why}, next call in ${Math.ceil(retryAfterMs / 1e3)} s`)
    Object.assign(this, {
      name: 'LimitError',
      retryAfterMs: Math.ceil(retryAfterMs),
      retryAt: new Date(Math.min(Date.now() + retryAfterMs, LAST_MS)),
      origin,
      policy,
      isUsedUp,
    })
  }
}
