/**
 * A turn: the right of one request to do a chore for the whole isolate, such as a trip for messages. A turn expires, because the
 * platform may end its owner at any moment, without running any more of its code. Plain data: requests share no promise.
 */

/**
 * Whether less than `ms` have passed since an instant.
 * @param since ms
 * @param time now (ms). If it is before `since`, the clock was set back. The answer is then no, so that no turn lasts longer than `ms`
 */
export const isWithin = (ms: number, since: number, time: number) => time >= since && time - since < ms

export type Turn = ReturnType<typeof createTurn>

/** @param now ms */
export function createTurn(now: () => number) {
  let takenAt = 0
  let lastsMs = 0
  return {
    isTaken: (): boolean => isWithin(lastsMs, takenAt, now()),
    /** Takes the turn, or keeps it, for at most `ms`. 0 ends it, so that another request can take it. */
    take(ms: number): void {
      takenAt = now()
      lastsMs = ms
    },
  }
}
