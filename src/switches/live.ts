/**
 * An isolate's copy of the live switches. If the copy is too old, the next decision reads the switches with a GET in
 * the same HTTP request. The decision scripts do not read them: all callers would share the lock of that key.
 */
import type { Background } from '../background.ts'
import type { Clock } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import { SWITCHES_KEY } from '../store/keys.ts'
import type { StoreCall } from '../store/store.ts'
import type { Rider } from '../trips/rider.ts'
import type { Trips } from '../trips/trips.ts'
import { isWithin } from '../trips/turn.ts'
import {
  areSameSwitches,
  dropExpired,
  hasSwitches,
  NO_SWITCHES,
  parseSwitches,
  type Switches,
} from './switches.ts'

/** Maximum age of the copy. */
const FRESH_MS = 1000

/** The copy of the switches, which each trip reads while it is stale. Plain data, so it may outlive the requests that update it. */
export interface SwitchBoard extends Rider {
  /** The switches that are active now. Returns the same object until they change. */
  current(): Switches
  /** Whether the copy is stale, and no trip has started to read the switches within the last second. */
  isOverdue(): boolean
  /** Whether the last read has failed. */
  hasFailed(): boolean
}

const READ_SWITCHES: readonly StoreCall[] = [{ command: 'GET', key: SWITCHES_KEY }]

/** Creates the board of an isolate. It starts without switches, and stale. */
export function createSwitchBoard({ now }: Clock): SwitchBoard {
  /** The switches in the store, including expired ones. */
  let stored = NO_SWITCHES
  let active = NO_SWITCHES
  let text: string | null = null
  let reads = 0
  let lastReadAt = Number.NEGATIVE_INFINITY
  /** Number and start time of the read that the copy comes from. */
  let copyNumber = 0
  let copyReadAt = Number.NEGATIVE_INFINITY
  let hasFailed = false

  const isOld = (time: number) => !isWithin(FRESH_MS, time, now())
  const isOverdue = () => isOld(copyReadAt) && isOld(lastReadAt)

  return {
    current() {
      // Filters what is stored, so that a switch counts again after a clock that ran ahead was set back.
      const latest = hasSwitches(stored) ? dropExpired(stored, now()) : stored
      if (!areSameSwitches(latest, active)) active = latest
      return active
    },
    isOverdue,
    hasFailed: () => hasFailed,
    // Only one request a second waits for a node that may hang.
    isUnanswered: () => hasFailed && !isOverdue(),

    load({ isAlone }) {
      if (!isAlone && !isOld(copyReadAt)) return undefined
      const [number, at] = [++reads, now()]
      lastReadAt = at
      return {
        calls: READ_SWITCHES,
        isFirst: true,
        done([reply]) {
          hasFailed = reply instanceof GatewayError
          // A late reply must not replace a newer one, and anything but text or null is ignored.
          if (number < copyNumber || !(typeof reply === 'string' || reply === null)) return
          if (reply !== text) stored = parseSwitches(reply)
          text = reply
          copyNumber = number
          copyReadAt = at
        },
      }
    },
  }
}

/**
 * Reads overdue switches in a separate trip, unless the breaker is open. Without it, an isolate that makes no trips would never see them
 * change back.
 * @param options.awaitsSwitches whether to wait for the answer. By default it comes in the background
 */
export async function refreshSwitches(
  board: SwitchBoard,
  trips: Pick<Trips, 'store' | 'sendAlone'>,
  { background, awaitsSwitches }: { background: Background; awaitsSwitches?: boolean },
): Promise<void> {
  if (!board.isOverdue() || trips.store.isOpen()) return
  // If the last read has failed, waiting would cost one request per second the whole deadline.
  const isAwaited = awaitsSwitches && !board.hasFailed()
  const refresh = trips.sendAlone(board)
  if (isAwaited) await refresh.catch(() => {})
  else background(refresh)
}

/** For limits that do not follow the live switches. */
export const NO_BOARD: SwitchBoard = {
  current: () => NO_SWITCHES,
  isOverdue: () => false,
  hasFailed: () => false,
  load: () => undefined,
}
