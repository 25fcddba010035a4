/** Work that goes on after the reply: the platform keeps the request's context for it, 30 s at most on Workers. */
import type { Context } from 'hono'

export type Background = (task: Promise<unknown>) => void

/** Where there is no such context (Node), work goes on by itself. A task that fails is nobody's: it tells of itself. */
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
