/** Handles exceptions that point to a bug in Sluice: the log says where. */
import { traceOf } from '../../errors.ts'
import { problem } from './problem.ts'

/** Replies with a 500 to an exception outside of limiting code, where there is no fallback. */
export function replyToException(error: Error): Response {
  logException(error)
  return problem({
    status: 500,
    title: 'Internal Server Error',
    detail: 'The gateway failed to handle this request. Its log has the cause.',
  })
}

/** Runs a side step (reporting, annotating). Its failure is logged, and must not cost the request its reply. */
export function safely(step: () => void): void {
  try {
    step()
  } catch (error) {
    logException(error)
  }
}

export function logException(error: unknown): void {
  console.error(JSON.stringify({ level: 'error', event: 'exception', error: traceOf(error) }))
}

/** The reply of an edge whose environment is incomplete. */
export function misconfigured(): Response {
  return problem({
    status: 503,
    title: 'Service Unavailable',
    detail: 'The gateway is not configured. Its log names what is missing.',
  })
}
