/** An origin: machines with a finite number of workers, a queue with a bound, and service times from a lognormal distribution. */
import type { Chance } from './chance.ts'
import type { Events } from './events.ts'

export interface OriginOptions {
  machines: number
  /** Of each machine: so many requests are served at a time. */
  workers: number
  /** Of each machine: so many may wait; a request that finds the queue full fails at once. */
  queue: number
  /** Mean (ms). */
  serviceMs: number
  /** Of the logarithm of the service time: 0.5 makes the slowest 1 % three times as slow as the median. */
  sigma: number
  /** After so long the gateway gives up. The origin notices only when it begins: it skips requests that were given up. */
  timeoutMs: number
}

export interface Response {
  /** False: refused by a full queue, or not answered in time. */
  isOk: boolean
  latencyMs: number
  /** What the machine says of itself (0 to 1), where it answered. */
  utilization: number | undefined
}

interface Waiting {
  isOver: boolean
  start(): void
}

class Machine {
  workers: number
  /** Service times are multiplied by it. */
  slowness = 1
  /** Whether its responses say how busy it is. */
  hasSignal = true
  busy = 0
  readonly waiting: Waiting[] = []
  /** Time that workers were busy (ms), up to `#at`; and what that was a second ago. */
  #busyMs = 0
  #at = 0
  #utilization = 0

  constructor(workers: number) {
    this.workers = workers
  }

  get inside(): number {
    return this.busy + this.waiting.length
  }

  count(now: number, change: number): void {
    this.#busyMs += this.busy * (now - this.#at)
    this.#at = now
    this.busy += change
  }

  /** Once a second: the share of its workers that were busy in it, as a machine measures its CPU. */
  measure(now: number): void {
    this.count(now, 0)
    this.#utilization = Math.min(1, this.#busyMs / 1000 / Math.max(1, this.workers))
    this.#busyMs = 0
  }

  get utilization(): number | undefined {
    return this.hasSignal ? this.#utilization : undefined
  }
}

export class Origin {
  readonly machines: readonly Machine[]
  serviceMs: number
  readonly #options: OriginOptions
  readonly #events: Events
  readonly #chance: Chance

  constructor(options: OriginOptions, events: Events, chance: Chance) {
    this.#options = options
    this.#events = events
    this.#chance = chance
    this.serviceMs = options.serviceMs
    this.machines = Array.from({ length: options.machines }, () => new Machine(options.workers))
    const measure = () => {
      for (const machine of this.machines) machine.measure(events.now)
      events.after(1000, measure)
    }
    events.after(1000, measure)
  }

  /** The share of workers that are busy now. */
  get busyShare(): number {
    const workers = this.machines.reduce((sum, machine) => sum + machine.workers, 0)
    return this.machines.reduce((sum, { busy }) => sum + busy, 0) / workers
  }

  /** Whether a request that comes now would be served at once by every machine. */
  get hasRoom(): boolean {
    return this.machines.every(({ busy, workers }) => busy < workers)
  }

  setWorkers(workers: number): void {
    for (const machine of this.machines) {
      machine.workers = workers
      while (machine.busy < machine.workers && machine.waiting.length > 0) this.#startNext(machine)
    }
  }

  handle(reply: (response: Response) => void): void {
    const [events, startedAt] = [this.#events, this.#events.now]
    const machine = this.#leastOfTwo()
    if (machine.busy >= machine.workers && machine.waiting.length >= this.#options.queue) {
      events.after(1, () => reply({ isOk: false, latencyMs: 1, utilization: machine.utilization }))
      return
    }
    let isOver = false
    const end = (isOk: boolean) => {
      if (isOver) return
      isOver = true
      waiting.isOver = true
      reply({ isOk, latencyMs: events.now - startedAt, utilization: isOk ? machine.utilization : undefined })
    }
    const waiting: Waiting = {
      isOver: false,
      start: () => {
        machine.count(events.now, 1)
        const serviceMs = this.#chance.lognormal(this.serviceMs * machine.slowness, this.#options.sigma)
        // What has begun is finished, also when the gateway has given it up.
        events.after(serviceMs, () => {
          machine.count(events.now, -1)
          end(true)
          if (machine.busy < machine.workers) this.#startNext(machine)
        })
      },
    }
    events.after(this.#options.timeoutMs, () => end(false))
    if (machine.busy < machine.workers) waiting.start()
    else machine.waiting.push(waiting)
  }

  #startNext(machine: Machine): void {
    for (let next = machine.waiting.shift(); next; next = machine.waiting.shift())
      if (!next.isOver) {
        next.start()
        return
      }
  }

  /** As load balancers do: of two at random, the one with fewer requests. */
  #leastOfTwo(): Machine {
    const one = this.machines[this.#chance.below(this.machines.length)]!
    const other = this.machines[this.#chance.below(this.machines.length)]!
    return one.inside <= other.inside ? one : other
  }
}
