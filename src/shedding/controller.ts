/**
 * The interface of a load shedder or an adaptive limit, which moves its state once a second. Redis sums the signals of all isolates in
 * windows of one second, beside the state of the controller. Each isolate reads the last closed window and the state, and computes the next
 * state itself. The same state and window give the same next state everywhere, so it does not matter which isolate stores it.
 */
export interface Controller<State> {
  /** The state before anything is stored. */
  readonly initial: State
  /**
   * Computes the next state. Pure. `write` and `read` keep the returned state unchanged, so that an isolate that computed a state and one
   * that read it agree. Sums that no isolate can have sent (negative, not finite) count as 0.
   */
  next(state: State, window: SignalWindow): State
  /** Writes a state as text: at most 100 characters of `[0-9A-Za-z .-]`. */
  write(state: State): string
  /** Reads a state. @returns undefined for a text that `write` does not write */
  read(text: string): State | undefined
}

/** The reports of all isolates within one window. */
export interface SignalWindow {
  /** Each controller defines their meaning. */
  readonly sums: readonly number[]
  /** Time since the window that last moved the state: 1000, or more if windows were empty or skipped. */
  readonly ms: number
}

/** A sum of the window. Missing, negative and infinite sums count as 0. */
export function sumAt({ sums }: SignalWindow, index: number): number {
  const sum = sums[index]
  return sum !== undefined && Number.isFinite(sum) && sum > 0 ? sum : 0
}

/** The time of the window in whole ms. After the clock was set back, it is 0. */
export function elapsedMs({ ms }: SignalWindow): number {
  return ms > 0 ? Math.round(Math.min(ms, Number.MAX_SAFE_INTEGER)) : 0
}

/**
 * Writes the numbers of a state as text, and reads them.
 * @param initial the text has the numbers in the order of its fields
 * @param restore returns the state for numbers that were read, or undefined if the controller cannot have written them
 */
export function numbersAsText<State extends object>(
  initial: State,
  restore: (numbers: State) => State | undefined,
): Pick<Controller<State>, 'write' | 'read'> {
  const fields = Object.keys(initial) as (keyof State)[]
  return {
    write: state => fields.map(field => state[field]).join(' '),
    read(text) {
      const parts = text.length > 100 ? [] : text.split(' ')
      if (parts.length !== fields.length || !parts.every(part => NUMBER.test(part))) return undefined
      return restore(Object.fromEntries(fields.map((field, i) => [field, Number(parts[i])])) as State)
    },
  }
}

/** More than any latency in ms (almost three hours) or number in flight. Eight numbers with three decimals have at most 100 characters. */
const MAX = 9_999_999

/**
 * Rounds to the three decimals that are stored, within 0 and ten million. So a state that was just computed equals
 * the same state after it was stored and read.
 */
export function roundForStore(value: number): number {
  // Adding 0 turns -0 into 0.
  return Math.round(Math.min(Math.max(0, value), MAX) * 1000) / 1000 + 0
}

/** No sign, no exponent, no leading zeros, and short enough to keep all digits. */
const NUMBER = /^(?:0|[1-9]\d{0,14})(?:\.\d{1,6})?$/
