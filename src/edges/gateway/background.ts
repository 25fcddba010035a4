/** Work after the reply: the platform keeps the context of the request for it, 30 s at most on Workers. */
import type { Context } from 'hono'
import type { Background } from '../../background.ts'

/** Where there is no such context (Node), the work runs on without it. */
export function backgroundOf(c: Context): Background {
  return task => {
    const quiet = task.catch(() => {})
    try {
      c.executionCtx.waitUntil(quiet)
    } catch {
      // Hono throws where the platform has none.
    }
  }
}
