/** What a process knows about the limits of origins, and the calls that wait for them, in the order in which they came. */
import { type Budget, createBudget, NEVER, type Turn, type Wait } from './budget.ts'
import { policiesOf, retryAfterOf } from './fields.ts'
import { LimitError } from './limit-error.ts'

/** What a process remembers at most: origins, and for each its policies and paths. The least recently used ones are forgotten. */
const ORIGINS = 100
const POLICIES = 50
const PATHS = 200
/**
 * A call behind others looks again after this time (ms), in case the platform has ended the request of the one before it. That one is
 * gone if it is late by this time.
 */
const LOOK_MS = 1_000

/** In Workers, how often the first call that waits looks (ms); the call behind it half as often, and so on. */
const POLL_MS = 10

export interface ClientClock {
  /**
   * Whether calls only look by timers of their own. In Workers, a request must not settle a promise of another one: before the compatibility
   * date 2024-10-14 that one hangs.
   */
  polls?: boolean
  /** Monotonic, in ms. */
  now(): number
  /** ms since the epoch, for the dates of servers that send no `Date`. */
  wall(): number
  /** Calls `run` after `ms` milliseconds. @returns cancels it */
  timer(ms: number, run: () => void): () => void
  /** From 0 to 1. */
  random(): number
}

/** The calls to one origin, and what is known about its limits. */
interface Lane {
  origin: string
  /** For refusals that name no policy. */
  whole: Budget
  policies: Map<string, Budget>
  /** The budgets that the last reply for a path has named, and for unknown paths the last reply. */
  paths: Map<string, readonly Budget[]>
  latest: readonly Budget[]
  /** Those that have no reply yet. */
  calls: Set<Call>
}

/** A call that has been sent. */
export interface Call {
  lane: Lane
  path: string
  /** Its number in each budget that it was sent under. */
  numbers: Map<Budget, number>
  sentAt: number
}

/** A refusal: how long calls stop (ms; 0: until one in flight ends), whether the server says so, and the policy, which is empty if the reply names none. */
export type Refusal = readonly [pauseMs: number, isNamed: boolean, policy: string]

export type Lanes = ReturnType<typeof createLanes>

/** The lanes of a process, which all its clients share. */
export function createLanes(clock: ClientClock) {
  const { now, random } = clock
  const lanes = new Map<string, Lane>()
  let turns = 0

  /** @param partition what a client tells apart at one origin */
  function laneOf(origin: string, partition: string): Lane {
    const key = `${origin} ${partition}`
    const lane = lanes.get(key) ?? {
      ...{ origin, whole: createBudget('', random, NEVER), latest: [] },
      ...{ policies: new Map(), paths: new Map(), calls: new Set<Call>() },
    }
    return recall(lanes, key, ORIGINS, lane)
  }

  return {
    now,

    /**
     * Waits until a call can be sent.
     * @param isRepeated whether it is sent again if it is refused
     * @param deadline by the clock. A call that would have to wait longer is rejected
     * @throws LimitError, or the reason of the signal
     */
    async enter(
      { origin, pathname: path }: URL,
      partition: string,
      isRepeated: boolean,
      deadline: number,
      signal?: AbortSignal | null,
    ): Promise<Call> {
      const lane = laneOf(origin, partition)
      const turn: Turn = { number: turns++ }
      /** The budget that it waits for. */
      let awaited: Budget | undefined
      const leave = () => {
        awaited?.line.delete(turn)
        wake(awaited)
      }
      try {
        for (;;) {
          const sentAt = now()
          const budgets = budgetsOf(lane, path)
          let longest: Budget | undefined
          let [ms, isNeeded, isUsedUp = isNeeded]: Wait = [0, false]
          for (const budget of budgets) {
            const wait = budget.wait(sentAt, isRepeated)
            if (isBehind(budget, turn, sentAt)) wait[0] = Math.max(wait[0], LOOK_MS + budget.line.size)
            if (wait[0] > ms) [longest, ms, isNeeded, isUsedUp = isNeeded] = [budget, ...wait]
          }
          if (longest !== awaited) leave()
          awaited = longest
          if (!awaited) {
            const numbers = new Map(budgets.map(each => [each, each.send(sentAt)]))
            const call = { lane, path, sentAt, numbers }
            lane.calls.add(call)
            return call
          }
          if (sentAt + (isNeeded ? ms : 0) >= deadline)
            throw new LimitError(ms, origin, awaited.name, isUsedUp)
          ms = Math.ceil(Math.min(ms, deadline - sentAt))
          awaited.line.add(turn)
          if (clock.polls) ms = Math.min(ms, LOOK_MS, POLL_MS * placeOf(awaited, turn))
          turn.dueAt = sentAt + ms
          const looks = new Promise<void>(resolve => {
            const cancel = clock.timer(ms, resolve)
            if (clock.polls) return
            turn.look = () => {
              cancel()
              resolve()
            }
          })
          await unlessAborted(looks, signal)
        }
      } finally {
        turn.look?.()
        leave()
      }
    },

    /** A call has got no reply. */
    fail(call: Call): void {
      call.lane.calls.delete(call)
      for (const budget of call.numbers.keys()) {
        budget.release()
        wake(budget)
      }
    },

    /** Reads a reply, and pauses what has refused. @returns undefined for any other reply */
    settle(call: Call, response: Response, partition: string): Refusal | undefined {
      const { lane, path, numbers, sentAt } = call
      const { headers, status, redirected, url } = response
      lane.calls.delete(call)
      const at = now()
      const wall = clock.wall()
      // After a redirect, the limits are those of the origin that has answered.
      const answered = redirected ? new URL(url) : undefined
      const there = answered ? laneOf(answered.origin, partition) : lane
      /** Those that refuse, if the call was refused. */
      const culprits: Budget[] = []
      let resetMs = 0
      const numberOf = (budget: Budget) => {
        const number = numbers.get(budget) ?? budget.send(at)
        numbers.set(budget, number)
        return number
      }
      const { policies } = there
      const budgets = policiesOf(headers, wall).map(state => {
        const { key, name, left } = state
        // Paths keep forgotten policies, too.
        if (policies.size >= POLICIES && !policies.has(key)) {
          lane.paths.clear()
          there.paths.clear()
        }
        const budget = recall(policies, key, POLICIES, policies.get(key) ?? createBudget(name, random))
        budget.read(state, numberOf(budget), sentAt, at)
        // Calls that were sent before this limit was known are in flight, too.
        if (budget.countsInFlight())
          for (const { numbers } of there.calls)
            if (!numbers.has(budget)) numbers.set(budget, budget.send(at))
        if (left === 0) {
          culprits.push(budget)
          resetMs = Math.max(resetMs, state.resetMs ?? 0)
        }
        return budget
      })
      if (answered) remember(there, answered.pathname, budgets)
      if (there !== lane) budgets.push(there.whole)
      numberOf(there.whole)
      remember(lane, path, budgets)
      // GitHub also refuses with a 403.
      const retryAfter = headers.get('retry-after') ?? headers.get('retry-after-ms')
      const isRefused =
        status === 429 ||
        (status === 403 && (culprits.length > 0 || retryAfter)) ||
        (status === 503 && retryAfter)
      if (culprits.length === 0) culprits.push(there.whole)
      const namedMs = retryAfterOf(headers, wall) ?? resetMs
      let pauseMs = 0
      for (const [budget, number] of numbers) {
        const isCulprit = isRefused && culprits.includes(budget)
        pauseMs = Math.max(pauseMs, budget.settle(number, sentAt, at, isCulprit ? namedMs : undefined))
        wake(budget)
      }
      return isRefused ? [pauseMs, namedMs > 0, culprits[0]!.name] : undefined
    },
  }
}

const budgetsOf = ({ whole, paths, latest }: Lane, path: string) => [
  ...new Set([whole, ...(paths.get(path) ?? latest)]),
]

/** Sets the budgets of a path, if there are any. */
function remember(lane: Lane, path: string, budgets: readonly Budget[]): void {
  if (budgets.length > 0) lane.latest = recall(lane.paths, path, PATHS, budgets)
}

/** Sets the value of a key, which becomes the most recently used one. */
function recall<V>(map: Map<string, V>, key: string, size: number, value: V): V {
  map.delete(key)
  map.set(key, value)
  if (map.size > size) map.delete(map.keys().next().value!)
  return value
}

/** Waits for a result. Rejects with the reason of the signal as soon as that aborts. */
export function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | null | undefined): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal!.reason)
    if (signal?.aborted) abort()
    signal?.addEventListener('abort', abort)
    work.then(resolve, reject).finally(() => signal?.removeEventListener('abort', abort))
  })
}

/** Whether earlier calls wait for a budget. Removes those that are gone. */
function isBehind({ line }: Budget, { number }: Turn, at: number): boolean {
  for (const first of line) {
    if (at <= first.dueAt! + LOOK_MS) return first.number < number
    line.delete(first)
  }
  return false
}

/** 1 for the first call that waits for a budget. */
const placeOf = ({ line }: Budget, turn: Turn) => [...line].indexOf(turn) + 1

/** Lets the first call that waits for a budget look again. */
function wake(budget: Budget | undefined): void {
  const [first] = budget?.line ?? []
  first?.look?.()
}
