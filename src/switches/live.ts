/**
 * An isolate's copy of the live switches, and how it is kept up: a plain GET beside the decisions of whichever request
 * finds the copy old, in the same HTTP request. Nothing is added to the script, and no key that all callers share.
 */
import { GatewayError } from '../errors.ts'
import { SWITCHES_KEY } from '../store/keys.ts'
import type { Store, StoreCall } from '../store/store.ts'
import { activeAt, NO_SWITCHES, parseSwitches, type Switches } from './switches.ts'

/** How old the copy may be. */
const FRESH_MS = 1000

/** Plain data, so it may outlive the requests that it learns from. */
export interface SwitchBoard {
  /** What counts now. */
  current(): Switches
  /** Whether whoever makes a trip has to ask along. */
  isStale(): boolean
  /** Stale, and nobody has asked of late: for those who make no trip. */
  isOverdue(): boolean
  /**
   * Somebody asks now.
   * @returns learns the answer; anything but a text or null is none, and what was known stays
   */
  ask(): (answer: unknown) => void
}

export function createSwitchBoard({ now = Date.now }: { now?: () => number } = {}): SwitchBoard {
  let known = NO_SWITCHES
  let asked = 0
  let askedAt = Number.NEGATIVE_INFINITY
  /** Which question the copy is the answer to, and when that was put. */
  let learnt = 0
  let learntAt = Number.NEGATIVE_INFINITY

  // A clock that is set back makes a copy old, not young for ever.
  const isOld = (time: number) => !(now() >= time && now() - time < FRESH_MS)

  return {
    current: () => activeAt(known, now()),
    isStale: () => isOld(learntAt),
    isOverdue: () => isOld(learntAt) && isOld(askedAt),
    ask() {
      const [number, at] = [++asked, now()]
      askedAt = at
      return answer => {
        // An answer that was long under way must not take the place of a newer one.
        if (number < learnt || !(typeof answer === 'string' || answer === null)) return
        known = parseSwitches(answer)
        learnt = number
        learntAt = at
      }
    },
  }
}

const QUESTION: StoreCall = { command: 'GET', key: SWITCHES_KEY }

/**
 * The store, which keeps the board up by the way: while the copy is old every request asks along, so that none is refused
 * by what has been turned down. Run with no calls it asks for the switches alone.
 */
export function withSwitches(store: Store, board: SwitchBoard): Store {
  /** The last trip with the question in it. */
  let hasFailed = false

  return {
    ...(store.isCluster !== undefined && { isCluster: store.isCluster }),

    async run(calls) {
      // On a cluster the switches may lie on the one node that hangs: only one request a second is to hang with it.
      const isResting = store.isCluster && hasFailed && !board.isOverdue() && calls.length > 0
      if (!board.isStale() || isResting) return calls.length > 0 ? await store.run(calls) : []
      const learn = board.ask()
      try {
        const [answer, ...replies] = await store.run([QUESTION, ...calls])
        learn(answer)
        if (calls.length === 0 && answer instanceof GatewayError) throw answer
        hasFailed = false
        return replies
      } catch (error) {
        hasFailed = true
        throw error
      }
    },

    ping: () => store.ping(),
  }
}
