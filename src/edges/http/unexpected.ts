/** A bug in Sluice that shows while a request is handled: the log says where. */
import { traceOf } from '../../errors.ts'
import { problem } from './problem.ts'

/** An exception outside limiting code, where there is no fallback: the caller gets a 500. */
export function unexpected(error: Error): Response {
  logException(error)
  return problem({
    status: 500,
    title: 'Internal Server Error',
    detail: 'The gateway failed to handle this request. Its log has the cause.',
  })
}

/** A step beside the way of a request (reporting, annotating): its failure must not cost the request its reply. */
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

/** The reply of an edge whose environment is not complete. */
export function misconfigured(): Response {
  return problem({
    status: 503,
    title: 'Service Unavailable',
    detail: 'The gateway is not configured. Its log has what is missing.',
  })
}
