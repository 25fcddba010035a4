/** Handles exceptions that point to a bug in Sluice or to a wrong variable: the log has the cause. */
import { ConfigError } from '../../config/config-error.ts'
import { traceOf } from '../../errors.ts'
import type { Log } from '../../log.ts'
import { problem } from './problem.ts'

/** Replies with a 500 to an exception outside of limiting code, where there is no fallback. */
export function replyToException(log: Log, error: unknown): Response {
  logException(log, error)
  return problem({
    status: 500,
    title: 'Internal Server Error',
    detail: 'The gateway failed to handle this request. Its log has the cause.',
  })
}

/** Runs a side step (reporting, annotating). Its failure is logged, and must not cost the request its reply. */
export function runOrLog(log: Log, step: () => void): void {
  try {
    step()
  } catch (error) {
    logException(log, error)
  }
}

export function logException(log: Log, error: unknown): void {
  log('error', 'exception', { error: traceOf(error) })
}

/**
 * Logs why a set-up cannot start, and creates the reply: it names the variables, without their values.
 *
 * @param error of the code that reads the variables
 */
export function replyToMisconfiguration(log: Log, error: unknown): Response {
  log('error', 'misconfigured', { detail: (error as Error).message })
  const names = error instanceof ConfigError ? error.mistakes.map(({ path }) => path) : []
  const what = names.length > 0 ? ` Missing or not valid: ${names.join(', ')}.` : ''
  return problem({
    status: 503,
    title: 'Service Unavailable',
    detail: `Sluice is not configured.${what} The log of this service says how to fix it.`,
  })
}
