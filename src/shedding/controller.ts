/**
 * What a load shedder or an adaptive limit does once a second. Signals of all isolates are summed in Redis in windows of one second,
 * beside the controller's state. Each isolate reads the last closed window and the state, and computes the next state by itself:
 * the same state and window give the same next state everywhere, so it does not matter which isolate stores it.
 */
export interface Controller<State> {
  /** Where nothing is stored. */
  readonly initial: State
  /**
   * Pure. What it returns survives `write` and `read` unchanged, so that an isolate that computed a state and one that read it agree.
   * Sums that no isolate can have sent (negative, not finite) count as none.
   */
  next(state: State, window: SignalWindow): State
  /** @returns at most 100 characters of `[0-9A-Za-z .-]` */
  write(state: State): string
  /** @returns undefined for a text that `write` does not write */
  read(text: string): State | undefined
}

/** What all isolates have reported within a second. */
export interface SignalWindow {
  /** What they mean is up to the controller. */
  readonly sums: readonly number[]
  /** Time since the window that last moved the state: 1000, or more if windows were empty or skipped. */
  readonly ms: number
}

/** A sum as it can be relied on. */
export function sumAt({ sums }: SignalWindow, index: number): number {
  const sum = sums[index]
  return sum !== undefined && Number.isFinite(sum) && sum > 0 ? sum : 0
}

/** The time of a window as it can be relied on. A clock that was set back counts as 0. */
export function elapsedMs({ ms }: SignalWindow): number {
  return ms > 0 ? Math.round(Math.min(ms, Number.MAX_SAFE_INTEGER)) : 0
}

/** @returns the numbers of a text as `write` of a controller writes it, or undefined if there are others or not so many */
export function numbersOf(text: string, count: number): number[] | undefined {
  if (text.length > 100) return undefined
  const parts = text.split(' ')
  return parts.length === count && parts.every(part => NUMBER.test(part)) ? parts.map(Number) : undefined
}

/** No sign, no exponent, no leading zeros, and not so long that digits were lost. */
const NUMBER = /^(?:0|[1-9]\d{0,14})(?:\.\d{1,6})?$/
