/** Simulates an origin: machines with a number of workers and a bounded queue, and service times from a lognormal distribution. */
import type { Chance } from './chance.ts'
import type { Events } from './events.ts'

export interface OriginOptions {
  machines: number
  /** Requests that each machine serves at the same time. */
  workers: number
  /** Requests that may wait at each machine. A request that finds the queue full fails at once. */
  queue: number
  /** The mean service time (ms). */
  serviceMs: number
  /** The standard deviation of the logarithm of the service time. With 0.5, the slowest 1 % are three times as slow as the median. */
  sigma: number
  /** The timeout of the gateway. The origin skips waiting requests that have timed out, but completes those that it has begun. */
  timeoutMs: number
}

export interface Response {
  /** False: refused by a full queue, or not answered in time. */
  isOk: boolean
  latencyMs: number
  /** The utilization that the machine reports (0 to 1). Undefined: it did not answer, or reports nothing. */
  utilization: number | undefined
}

interface Waiting {
  isOver: boolean
  start(): void
}

class Machine {
  workers: number
  /** The factor of its service times. */
  slowness = 1
  /** Whether its responses report its utilization. */
  hasSignal = true
  busy = 0
  readonly waiting: Waiting[] = []
  /** Time in which workers were busy since the last measurement (ms), up to `#at`. */
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

  /** Called once a second. Measures the share of workers that were busy in it, as a machine measures its CPU. */
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

  /** Whether every machine would serve a new request at once. */
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
        // A request that has begun is completed, even if the gateway has given up.
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

  /** The machine with fewer requests of two random ones, as load balancers choose. */
  #leastOfTwo(): Machine {
    const one = this.machines[this.#chance.below(this.machines.length)]!
    const other = this.machines[this.#chance.below(this.machines.length)]!
    return one.inside <= other.inside ? one : other
  }
}
