/** Counts the requests in flight at an origin, by the caller in the header X-Caller. */
import type { IncomingMessage } from 'node:http'
import type { OriginObserver } from './ending-origin.ts'

interface Running {
  caller: string
  isAnswered: boolean
}

/**
 * A request counts as `running` and as `held` from its arrival until the last byte of its reply is written or its connection is closed.
 * If its client has left, the gateway closes the connection to the origin as soon as the head of the reply is written. From then on, the
 * request is no longer `held`, but `running` until the origin detects that the connection is closed.
 */
export class Tally implements OriginObserver {
  readonly #running = new Map<string, Running>()
  readonly #left = new Set<string>()
  /** The most requests at once, by caller. */
  readonly mostHeld = new Map<string, number>()
  readonly mostRunning = new Map<string, number>()
  arrivals = 0

  arrived(request: IncomingMessage): void {
    const caller = callerOf(request)
    this.arrivals += 1
    this.#running.set(nameOf(request), { caller, isAnswered: false })
    note(this.mostRunning, caller, this.running(caller))
    note(this.mostHeld, caller, this.held(caller))
  }

  answered(request: IncomingMessage): void {
    const running = this.#running.get(nameOf(request))
    if (running) running.isAnswered = true
  }

  over(request: IncomingMessage): void {
    this.#running.delete(nameOf(request))
    this.#left.delete(nameOf(request))
  }

  /** Records that the client of a request leaves now. */
  leave(name: string): void {
    this.#left.add(name)
  }

  running(caller?: string): number {
    return [...this.#running.values()].filter(each => caller === undefined || each.caller === caller).length
  }

  held(caller: string): number {
    const isHeld = ([name, running]: [string, Running]) =>
      running.caller === caller && !(running.isAnswered && this.#left.has(name))
    return [...this.#running].filter(isHeld).length
  }
}

const nameOf = ({ headers }: IncomingMessage) => String(headers['x-case'])
const callerOf = ({ headers }: IncomingMessage) => String(headers['x-caller'])

function note(most: Map<string, number>, caller: string, count: number): void {
  most.set(caller, Math.max(count, most.get(caller) ?? 0))
}
