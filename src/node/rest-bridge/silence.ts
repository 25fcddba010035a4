/**
 * Detects that the server at the other end of a connection sends nothing although commands wait for its answers. All commands share one
 * timer, because nearly none of them needs it.
 */
export class Silence {
  readonly #limitMs: number
  readonly #onTooLong: () => void
  /** Commands without an answer. */
  #waiting = 0
  /** The time of the first command after the last answer (ms). Undefined if no command was sent since then. */
  #since: number | undefined
  #timer: NodeJS.Timeout | undefined

  /** @param onTooLong called when the first command after an answer has waited for `limitMs`, and nothing was answered in this time */
  constructor(limitMs: number, onTooLong: () => void) {
    this.#limitMs = limitMs
    this.#onTooLong = onTooLong
  }

  /** @param at when the command is sent, by performance.now() */
  commandSent(at: number): void {
    this.#waiting += 1
    this.#since ??= at
    this.#timer ??= this.#startTimer(this.#limitMs)
  }

  /** @param isAnswered whether the server has answered. Otherwise the connection broke, or the command was never sent */
  commandEnded(isAnswered: boolean): void {
    this.#waiting -= 1
    if (isAnswered || this.#waiting === 0) this.#since = undefined
  }

  #startTimer(ms: number): NodeJS.Timeout {
    return setTimeout(() => {
      this.#timer = undefined
      if (this.#since === undefined) return
      const leftMs = this.#since + this.#limitMs - performance.now()
      if (leftMs > 0) {
        this.#timer = this.#startTimer(leftMs)
        return
      }
      this.#since = undefined
      this.#onTooLong()
    }, ms).unref()
  }
}
