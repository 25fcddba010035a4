/** A chore that the same request does again after a failure, because no other request may come. */
import type { GatewayError } from '../errors.ts'
import { type Chore, MAX_IN_ROW } from './scheduler.ts'

/** After a failure, and after `MAX_IN_ROW` times without a pause (ms). */
const PAUSE_MS = 1000

/** The longest wait of a request (ms). A repetition can be half a minute away, and a message that comes meanwhile is due much earlier. */
const MAX_WAIT_MS = 250

/** @param now monotonic (ms) */
export function repeated(chore: Chore, now: () => number): Chore {
  let inRow = 0
  let pausesUntil = 0
  return {
    ...chore,
    dueInMs() {
      const ms = chore.dueInMs()
      if (ms === undefined) return undefined
      const waitMs = Math.min(Math.max(ms, pausesUntil - now()), MAX_WAIT_MS)
      if (waitMs > 0) inRow = 0
      return waitMs
    },
    async run() {
      const isDone = await chore.run().catch((error: unknown) => {
        if (isExhausted(error)) throw error
        return false
      })
      if (!isDone || ++inRow === MAX_IN_ROW) pausesUntil = now() + PAUSE_MS
      return true
    },
  }
}

/** Whether the platform allows the request no more calls, so that only another one can do the chore. */
const isExhausted = (error: unknown) => (error as GatewayError).code === 'ERR_STORE_CALLS_EXHAUSTED'
