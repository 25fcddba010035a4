/**
 * Detects that the server at the other end of a connection sends nothing although commands wait for its answers. All commands share one
 * timer, because nearly none of them needs it. Time in which this process was too busy to read does not count: a flood of calls must not look
 * like a server that is gone.
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
    this.#timer ??= this.#startTimer(at)
  }

  /** @param isAnswered whether the server has answered. Otherwise the connection broke, or the command was never sent */
  commandEnded(isAnswered: boolean): void {
    this.#waiting -= 1
    if (isAnswered || this.#waiting === 0) this.#since = undefined
  }

  #startTimer(now: number): NodeJS.Timeout {
    const ms = Math.min(this.#limitMs - (now - this.#since!), this.#limitMs / STEPS)
    // The immediate runs after Node has read the answers that have arrived.
    return setTimeout(() => setImmediate(() => this.#endStep(now + ms)), ms).unref()
  }

  #endStep(dueAt: number): void {
    this.#timer = undefined
    if (this.#since === undefined) return
    const now = performance.now()
    const lateMs = now - dueAt
    if (lateMs > TOLERANCE_MS) this.#since = Math.min(now, this.#since + lateMs)
    if (now - this.#since < this.#limitMs) {
      this.#timer = this.#startTimer(now)
      return
    }
    this.#since = undefined
    this.#onTooLong()
  }
}

/** The limit is measured in so many steps. Only a process that is busy for longer than a step can miss an answer. */
const STEPS = 5

/** Timers of an idle process can be a few ms late. */
const TOLERANCE_MS = 5
