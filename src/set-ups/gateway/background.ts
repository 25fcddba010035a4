/** Runs work after the reply. The platform keeps the context of the request alive for it, for at most 30 s on Workers. */
import type { Context } from 'hono'
import type { Background } from '../../background.ts'

/** Without such a context (Node), the work runs on by itself. */
export function backgroundOf(c: Context): Background {
  return task => {
    const quiet = task.catch(() => {})
    try {
      c.executionCtx.waitUntil(quiet)
    } catch {
      // Hono throws if the platform has no context.
    }
  }
}
