/**
 * An isolate's copy of the live switches, and how it is kept fresh: a plain GET beside the decision of a request that finds
 * the copy old, in the same HTTP request. The scripts stay as they are, and lock no key that all callers share.
 */
import type { Clock } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import { SWITCHES_KEY } from '../store/keys.ts'
import type { Store, StoreCall } from '../store/store.ts'
import { activeAt, areSame, NO_SWITCHES, parseSwitches, type Switches } from './switches.ts'

/** How old the copy may be. */
const FRESH_MS = 1000

/** Plain data, so it may outlive the requests that it learns from. */
export interface SwitchBoard {
  /** The switches that are in force now: the same object until they change. */
  current(): Switches
  /** Whether the next trip has to read the switches. */
  isStale(): boolean
  /** Stale, and no trip has tried to read them within the last second. */
  isOverdue(): boolean
  /**
   * To be called when a trip starts that reads the switches.
   * @returns takes the answer; an answer that is neither text nor null is ignored
   */
  ask(): (answer: unknown) => void
}

export function createSwitchBoard({ now }: Clock): SwitchBoard {
  /** What the store has, with switches that have expired since. */
  let stored = NO_SWITCHES
  let active = NO_SWITCHES
  let text: string | null = null
  let asked = 0
  let askedAt = Number.NEGATIVE_INFINITY
  /** The number of the read that the copy comes from, and when that read started. */
  let learnt = 0
  let learntAt = Number.NEGATIVE_INFINITY

  // A clock that is set back makes a copy old, not young for ever.
  const isOld = (time: number) => !(now() >= time && now() - time < FRESH_MS)

  return {
    current() {
      // From what is stored: where the clock is set forward and back, a switch counts again.
      const latest = activeAt(stored, now())
      if (!areSame(latest, active)) active = latest
      return active
    },
    isStale: () => isOld(learntAt),
    isOverdue: () => isOld(learntAt) && isOld(askedAt),
    ask() {
      const [number, at] = [++asked, now()]
      askedAt = at
      return answer => {
        // A late answer must not replace a newer one.
        if (number < learnt || !(typeof answer === 'string' || answer === null)) return
        if (answer !== text) stored = parseSwitches(answer)
        text = answer
        learnt = number
        learntAt = at
      }
    },
  }
}

/** For limits that do not follow the live switches. */
export const NO_BOARD: SwitchBoard = {
  current: () => NO_SWITCHES,
  isStale: () => false,
  isOverdue: () => false,
  ask: () => () => {},
}

const QUESTION: StoreCall = { command: 'GET', key: SWITCHES_KEY }

export interface SwitchedStore extends Store {
  /** Reads the switches alone, for when no decision makes a trip. @throws GatewayError as Store.run */
  refresh(): Promise<void>
  /** Whether the last trip that was to read the switches failed. */
  hasFailed(): boolean
}

/** The store, and a board that its trips keep fresh: while the copy is stale, every decision reads the switches along. */
export function withSwitches(store: Store, board: SwitchBoard): SwitchedStore {
  /** The last trip that read the switches. */
  let hasFailed = false

  /** @returns the stored switches (or an error in their place), and the replies to the calls */
  async function runWithSwitches(
    calls: readonly StoreCall[],
  ): Promise<[answer: unknown, replies: unknown[]]> {
    const learn = board.ask()
    try {
      const [answer, ...replies] = await store.run([QUESTION, ...calls])
      learn(answer)
      hasFailed = answer instanceof GatewayError && calls.length === 0
      return [answer, replies]
    } catch (error) {
      hasFailed = true
      throw error
    }
  }

  return {
    ...(store.isCluster !== undefined && { isCluster: store.isCluster }),

    async run(calls) {
      // On a cluster the node that holds the switches may hang: only one request a second waits for it.
      const isResting = store.isCluster && hasFailed && !board.isOverdue()
      if (!board.isStale() || isResting) return await store.run(calls)
      const [, replies] = await runWithSwitches(calls)
      return replies
    },

    async refresh() {
      const [answer] = await runWithSwitches([])
      if (answer instanceof GatewayError) throw answer
    },

    hasFailed: () => hasFailed,

    ping: () => store.ping(),
  }
}
