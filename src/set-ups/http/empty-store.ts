/**
 * Detects that the store has lost its data, or that it is another database: every key then gets a 401, as if all of them had been
 * revoked.
 */
import type { Background } from '../../background.ts'
import { CONSUMER_INDEX_KEY } from '../../store/keys.ts'
import type { Store } from '../../store/store.ts'

const INTERVAL_MS = 1000

export interface EmptyStoreCheck {
  /** To be called when an outage has begun or ended: the next unknown key causes a check. */
  noteOutage(): void
  /**
   * To be called when the store does not know a key. The check is a trip in the background, so no request waits for it.
   * @param wasKnown whether the store has admitted the key before. Made-up keys alone cause no check
   */
  noteUnknownKey(background: Background, wasKnown: boolean): void
}

/**
 * @param now ms
 * @param report called once, until the store has keys again
 */
export function createEmptyStoreCheck(store: Store, now: () => number, report: () => void): EmptyStoreCheck {
  let isDue = false
  let checkedAt = Number.NEGATIVE_INFINITY
  let isEmpty = false

  async function check(): Promise<void> {
    // The index of consumers is a sorted set. To GET, Redis replies with an error if it exists, and with null if it does not.
    const [reply] = await store.run([{ command: 'GET', key: CONSUMER_INDEX_KEY }]).catch(() => {
      isDue = true
      return []
    })
    if (reply === null && !isEmpty) report()
    isEmpty = reply === null
  }

  return {
    noteOutage() {
      isDue = true
    },

    noteUnknownKey(background, wasKnown) {
      isDue ||= wasKnown
      if (!isDue || now() - checkedAt < INTERVAL_MS) return
      isDue = false
      checkedAt = now()
      background(check())
    },
  }
}
