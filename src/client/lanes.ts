/** What a process knows about the limits of origins, and the calls that wait for them, in the order in which they came. */
import { type Budget, createBudget, type Wait } from './budget.ts'
import { policiesOf, timeUntil } from './fields.ts'
import { LimitError } from './limit-error.ts'

/** What a process remembers at most: origins, and for each its policies and paths. The least recently used ones are forgotten. */
const ORIGINS = 100
const POLICIES = 50
const PATHS = 200
/** A call behind others looks again after this time (ms), in case the platform has ended the request of the one before it. */
const LOOK_MS = 1_000

export interface ClientClock {
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
  turns: Set<Turn>
}

/** A call that waits. */
interface Turn {
  path: string
  /** The budget that it waits for. */
  behind?: Budget | undefined
  look: () => void
}

/** A call that has been sent. */
export interface Call {
  lane: Lane
  path: string
  /** Its number in each budget that it was sent under. */
  numbers: Map<Budget, number>
  sentAt: number
}

/** A refusal: how long calls stop (ms), whether the server says so, and the policy, which is empty if the reply names none. */
export type Refusal = readonly [pauseMs: number, isNamed: boolean, policy: string]

export type Lanes = ReturnType<typeof createLanes>

/** The lanes of a process, which all its clients share. */
export function createLanes(clock: ClientClock) {
  const { now, random } = clock
  const lanes = new Map<string, Lane>()

  /** @param partition what a client tells apart at one origin */
  function laneOf(origin: string, partition: string): Lane {
    return recall(lanes, `${origin} ${partition}`, ORIGINS, () => ({
      ...{ origin, whole: createBudget('', random, true), latest: [] },
      ...{ policies: new Map(), paths: new Map(), turns: new Set() },
    }))
  }

  /**
   * Waits until a call can be sent.
   * @param deadline by the clock. A call that would have to wait longer is rejected
   * @throws LimitError, or the reason of the signal
   */
  async function enter(
    { origin, pathname: path }: URL,
    partition: string,
    deadline: number,
    maxWaitMs: number,
    signal?: AbortSignal | null,
  ): Promise<Call> {
    const lane = laneOf(origin, partition)
    const turn: Turn = { path, look() {} }
    lane.turns.add(turn)
    try {
      for (;;) {
        const sentAt = now()
        const [ms, isNeeded] = look(lane, turn, sentAt, maxWaitMs)
        if (!turn.behind) {
          const numbers = new Map(budgetsOf(lane, path).map(each => [each, each.send(sentAt)]))
          return { lane, path, sentAt, numbers }
        }
        if (sentAt + (isNeeded ? ms : 0) >= deadline) throw new LimitError(ms, origin, turn.behind.name)
        const looks = new Promise<void>(resolve => {
          const cancel = clock.timer(Math.ceil(Math.min(ms, deadline - sentAt)), resolve)
          turn.look = () => {
            cancel()
            resolve()
          }
        })
        await unlessAborted(looks, signal)
      }
    } finally {
      turn.look()
      lane.turns.delete(turn)
      wake(lane)
    }
  }

  /** How long a call has to wait. Sets for which budget. */
  function look(lane: Lane, turn: Turn, at: number, maxWaitMs: number): Wait {
    const budgets = budgetsOf(lane, turn.path)
    let longest: Wait = [0, false]
    turn.behind = undefined
    for (const other of lane.turns) {
      if (other === turn) break
      // Others wait for the same budget: after them.
      if (!other.behind || !budgets.includes(other.behind)) continue
      turn.behind = other.behind
      const [ms, isNeeded] = turn.behind.wait(at, maxWaitMs)
      return [Math.max(ms, LOOK_MS), isNeeded]
    }
    for (const budget of budgets) {
      const wait = budget.wait(at, maxWaitMs)
      if (wait[0] > longest[0]) {
        longest = wait
        turn.behind = budget
      }
    }
    return longest
  }

  /** A call has got no reply. */
  function fail({ lane, numbers }: Call): void {
    for (const budget of numbers.keys()) budget.release()
    wake(lane)
  }

  /** Reads a reply, and pauses what has refused. @returns undefined for any other reply */
  function settle(call: Call, response: Response, partition: string): Refusal | undefined {
    const { lane, path, numbers, sentAt } = call
    const { headers, status, redirected, url } = response
    const at = now()
    const wall = clock.wall()
    // After a redirect, the limits are those of the origin that has answered.
    const answered = redirected ? new URL(url) : undefined
    const there = answered ? laneOf(answered.origin, partition) : lane
    const empty: Budget[] = []
    let resetMs = 0
    const budgets = policiesOf(headers, wall).map(state => {
      const { key, name, left } = state
      const budget = recall(there.policies, key, POLICIES, () => createBudget(name, random))
      const number = numbers.get(budget) ?? budget.send(at)
      numbers.set(budget, number)
      budget.read(state, number, sentAt, at)
      if (left === 0) {
        empty.push(budget)
        resetMs = Math.max(resetMs, state.resetMs ?? 0)
      }
      return budget
    })
    if (answered && budgets.length > 0) remember(there, answered.pathname, budgets)
    if (there !== lane) {
      budgets.push(there.whole)
      if (!numbers.has(there.whole)) numbers.set(there.whole, there.whole.send(at))
    }
    if (budgets.length > 0) remember(lane, path, budgets)
    // GitHub also refuses with a 403.
    const isForbidden = status === 403
    const isRefused =
      status === 429 ||
      (isForbidden && empty.length > 0) ||
      ((isForbidden || status === 503) && headers.has('retry-after'))
    const culprits = empty.length > 0 ? empty : [there.whole]
    const namedMs = timeUntil(headers.get('retry-after'), headers, wall) ?? resetMs
    let pauseMs = 0
    for (const [budget, number] of numbers) {
      const isCulprit = isRefused && culprits.includes(budget)
      pauseMs = Math.max(pauseMs, budget.settle(number, at, isCulprit ? namedMs : undefined))
    }
    wake(lane)
    wake(there)
    return isRefused ? [pauseMs, namedMs > 0, culprits[0]!.name] : undefined
  }

  return { now, enter, settle, fail }
}

const budgetsOf = ({ whole, paths, latest }: Lane, path: string) => [whole, ...(paths.get(path) ?? latest)]

/** Sets the budgets of a path. */
function remember(lane: Lane, path: string, budgets: readonly Budget[]): void {
  lane.latest = budgets
  lane.paths.delete(path)
  recall(lane.paths, path, PATHS, () => budgets)
}

/** The value of a key, which becomes the most recently used one. */
function recall<V>(map: Map<string, V>, key: string, size: number, make: () => V): V {
  const value = map.get(key) ?? make()
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

/** Lets the first call behind each budget look again. */
function wake({ turns }: Lane): void {
  let woken: unknown
  for (const { behind, look } of turns) {
    if (behind !== woken) look()
    woken = behind
  }
}
