/**
 * Does chores that no client waits for: trips for riders that have waited long enough, and statistics. One request at a time does
 * a chore, in the background, and has the turn for it (turn.ts). If the platform ends that request, the next one takes over.
 */
import type { Background } from '../background.ts'
import { latestOf, type Timer } from '../clock.ts'
import { ignoringErrors } from './ignoring-errors.ts'
import { createTurn, isWithin, type Turn } from './turn.ts'

export interface Chore {
  /** After which time it is to be done (ms). 0: now; undefined: there is nothing to do. */
  dueInMs(): number | undefined
  /** Does it. @returns whether it was done. If not, or if it rejects, it is done again later */
  run(): Promise<boolean>
  /** Whether a process may exit before it is done. */
  readonly isOptional?: boolean | undefined
}

/** How long a request goes on with a chore (ms): Workers end background work 30 s after the request. */
const MAX_WORK_MS = 28_000

/** After this time (ms), the next request takes over. If no request comes, this one goes on until MAX_WORK_MS. */
const KEEPS_TURN_MS = 25_000

/** How late a timer may fire before another request takes the turn (ms). */
const GRACE_MS = 1000

/** The request of a chore that takes longer counts as ended by the platform (ms). */
const MAX_RUN_MS = 10_000

/** The pause after a failure, before another request does the chore. */
const PAUSE_AFTER_FAILURE_MS = 250

/** The most times that one request does a chore without a pause. With Workers Free, a request can make 50 calls. */
export const MAX_IN_ROW = 40

/** @param clock ms */
export function createScheduler(clock: () => number, timer: Timer, chores: readonly Chore[]) {
  const now = latestOf(clock)
  const entries = chores.map(chore => ({ chore, turn: createTurn(now) }))

  async function doWhenDue(chore: Chore, turn: Turn, firstMs: number): Promise<void> {
    const startedAt = now()
    let pauses = 0
    let inRow = 0
    for (let ms: number | undefined = firstMs; ms !== undefined; ms = chore.dueInMs()) {
      if (ms > 0) {
        // The first pause may be of any length, because the turn expires after it in any case.
        const until = now() + ms
        const endsWithin = (maxMs: number) => pauses === 0 || isWithin(maxMs, startedAt, until)
        if (!endsWithin(MAX_WORK_MS)) return
        const keepsTurn = endsWithin(KEEPS_TURN_MS)
        turn.take(keepsTurn ? ms + GRACE_MS : 0)
        await new Promise<void>(resolve => timer(ms, resolve, chore.isOptional))
        if (!keepsTurn && turn.isTaken()) return
        turn.take(0)
        pauses += 1
        inRow = 0
      } else {
        if (++inRow > MAX_IN_ROW) return
        turn.take(MAX_RUN_MS)
        let isDone = false
        try {
          isDone = await chore.run()
        } finally {
          turn.take(isDone ? 0 : PAUSE_AFTER_FAILURE_MS)
        }
        if (!isDone) return
      }
    }
  }

  return {
    /** Waits in the background for each chore that has something to do, and does it, unless another request has the turn for it. */
    schedule(background: Background): void {
      for (const { chore, turn } of entries) {
        const ms = turn.isTaken() ? undefined : ignoringErrors(() => chore.dueInMs())
        if (ms !== undefined) background(doWhenDue(chore, turn, ms))
      }
    },
  }
}

/**
 * A chore that sends what was collected, `everyMs` after its first item came. If the request that waits for that is ended, the next one
 * sends at once. A process may exit before that.
 * @param collected how much there is to send
 */
export function choreEvery(
  everyMs: number,
  collected: { readonly size: number },
  send: () => Promise<unknown>,
): Chore {
  let isAwaited = false
  return {
    isOptional: true,
    dueInMs() {
      if (collected.size === 0) return undefined
      if (isAwaited) return 0
      isAwaited = true
      return everyMs
    },
    async run() {
      await send()
      isAwaited = false
      return true
    },
  }
}
