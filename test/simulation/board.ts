/**
 * Simulates how signals travel. Each isolate sums its measurements and sends them once a second. Messages take time, and some are lost.
 * The board sums them in windows of a second. The first isolate that reads a closed window computes the controller's next state.
 * board.test.ts compares the board with the real one.
 */
import type { Controller } from '../../src/shedding/controller.ts'
import type { Chance } from './chance.ts'
import type { Events } from './events.ts'

const WINDOW_MS = 1000

export interface Travel {
  /** The longest time that a message takes (ms). */
  delayMs: number
  /** The share of messages that are lost, in each direction. */
  loss: number
}

export class Board {
  readonly #controller: Controller<unknown>
  #text: string | undefined
  /** The last window that is included in the state. */
  #lastWindow = -1
  readonly #windows = new Map<number, number[]>()

  constructor(controller: Controller<unknown>) {
    this.#controller = controller
  }

  add(now: number, sums: readonly number[]): void {
    const number = Math.floor(now / WINDOW_MS)
    const window = this.#windows.get(number)
    this.#windows.set(number, window ? window.map((sum, i) => sum + sums[i]!) : [...sums])
  }

  /** @returns the state, which includes the last closed window */
  read(now: number): unknown {
    const controller = this.#controller
    const closed = Math.floor(now / WINDOW_MS) - 1
    const state = (this.#text !== undefined && controller.read(this.#text)) || controller.initial
    if (closed <= this.#lastWindow) return state
    const ms = this.#lastWindow < 0 ? WINDOW_MS : (closed - this.#lastWindow) * WINDOW_MS
    const next = controller.next(state, { sums: this.#windows.get(closed) ?? [], ms })
    this.#text = controller.write(next)
    this.#lastWindow = closed
    for (const number of this.#windows.keys()) if (number <= closed) this.#windows.delete(number)
    return next
  }
}

/** A controller that is shared by the isolates of a fleet. */
export class Fleet<State> {
  readonly #states: State[]
  readonly #sums: number[][]

  constructor(
    controller: Controller<State>,
    isolates: number,
    width: number,
    events: Events,
    chance: Chance,
    travel: Travel,
  ) {
    const board = new Board(controller as Controller<unknown>)
    this.#states = Array.from({ length: isolates }, () => controller.initial)
    this.#sums = this.#states.map(() => new Array<number>(width).fill(0))
    const send = (run: () => void) => {
      if (chance.uniform() >= travel.loss) events.after(chance.uniform() * travel.delayMs, run)
    }
    for (const i of this.#states.keys()) {
      const tick = () => {
        const sums = this.#sums[i]!
        this.#sums[i] = new Array<number>(width).fill(0)
        // An isolate without samples adds nothing, because zeros would count as a report. It still reads the state.
        const hasSums = sums.some(sum => sum > 0)
        send(() => {
          if (hasSums) board.add(events.now, sums)
          const state = board.read(events.now) as State
          send(() => {
            this.#states[i] = state
          })
        })
        events.after(WINDOW_MS, tick)
      }
      events.after(chance.uniform() * WINDOW_MS, tick)
    }
  }

  /** The latest state that this isolate has received. */
  stateOf(isolate: number): State {
    return this.#states[isolate]!
  }

  report(isolate: number, sums: readonly number[]): void {
    const own = this.#sums[isolate]!
    for (let i = 0; i < own.length; i++) own[i]! += sums[i]!
  }
}
