/** The virtual clock of a simulation. */
import { NOON } from './traffic.ts'

/** A clock that jumps from one event to the next. */
export class VirtualClock {
  nowMs = NOON / 1e3
  /** A binary heap, ordered by time. */
  readonly #events: { at: number; run: () => unknown; isOff?: boolean }[] = []

  after(ms: number, run: () => unknown): () => void {
    const event = { at: this.nowMs + ms, run, isOff: false }
    const events = this.#events
    let i = events.push(event) - 1
    for (let up = (i - 1) >> 1; i > 0 && events[up]!.at > event.at; i = up, up = (i - 1) >> 1) {
      events[i] = events[up]!
    }
    events[i] = event
    return () => {
      event.isOff = true
    }
  }

  pass(ms: number): Promise<void> {
    return new Promise(resolve => this.after(ms, resolve))
  }

  async run(untilMs: number): Promise<void> {
    for (let event = this.#next(untilMs); event; event = this.#next(untilMs)) {
      if (event.isOff) continue
      this.nowMs = event.at
      event.run()
      // Promises that follow from the event settle before time passes.
      await new Promise(resolve => setImmediate(resolve))
    }
    this.nowMs = untilMs
  }

  #next(untilMs: number) {
    const events = this.#events
    const first = events[0]
    if (!first || first.at > untilMs) return undefined
    const last = events.pop()!
    if (events.length === 0) return first
    let i = 0
    for (;;) {
      let child = 2 * i + 1
      if (child >= events.length) break
      if (child + 1 < events.length && events[child + 1]!.at < events[child]!.at) child += 1
      if (events[child]!.at >= last.at) break
      events[i] = events[child]!
      i = child
    }
    events[i] = last
    return first
  }
}
