/** Virtual time, which jumps from event to event. No clock is read, so every run has the same result. */

export type Run = () => void

/** A binary heap, ordered by time. Events that are due at the same time run in the order in which they were scheduled. */
export class Events {
  /** ms since the start of the simulation. */
  now = 0
  #times: number[] = []
  #numbers: number[] = []
  #runs: Run[] = []
  #count = 0

  after(ms: number, run: Run): void {
    this.at(this.now + ms, run)
  }

  at(time: number, run: Run): void {
    let i = this.#times.length
    const number = this.#count++
    this.#times.push(time)
    this.#numbers.push(number)
    this.#runs.push(run)
    while (i > 0) {
      const parent = (i - 1) >> 1
      if (!this.#isBefore(time, number, parent)) break
      this.#move(parent, i)
      i = parent
    }
    this.#put(i, time, number, run)
  }

  /** Runs the events before this time (ms), and those that they schedule. */
  runUntil(end: number): void {
    while (this.#times.length > 0 && this.#times[0]! < end) {
      this.now = this.#times[0]!
      this.#takeFirst()()
    }
    this.now = end
  }

  #takeFirst(): Run {
    const first = this.#runs[0]!
    const [time, number, run] = [this.#times.pop()!, this.#numbers.pop()!, this.#runs.pop()!]
    const size = this.#times.length
    if (size === 0) return first
    let i = 0
    for (;;) {
      let child = 2 * i + 1
      if (child >= size) break
      if (child + 1 < size && !this.#isBefore(this.#times[child]!, this.#numbers[child]!, child + 1)) child++
      if (this.#isBefore(time, number, child)) break
      this.#move(child, i)
      i = child
    }
    this.#put(i, time, number, run)
    return first
  }

  #isBefore(time: number, number: number, other: number): boolean {
    const otherTime = this.#times[other]!
    return time < otherTime || (time === otherTime && number < this.#numbers[other]!)
  }

  #move(from: number, to: number): void {
    this.#put(to, this.#times[from]!, this.#numbers[from]!, this.#runs[from]!)
  }

  #put(i: number, time: number, number: number, run: Run): void {
    this.#times[i] = time
    this.#numbers[i] = number
    this.#runs[i] = run
  }
}
