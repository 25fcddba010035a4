/** Replies to requests whose body could not be read before they were decided. */
import type { Problem } from './problem.ts'

export const BODY_TOO_SLOW: Problem = {
  ...{ status: 408, title: 'Request Timeout' },
  detail: 'The body did not arrive within 30 s. Nothing was charged. Send it again, on a faster connection.',
}

const RETRY_SECONDS = 1

export const BODY_TOO_MANY: Problem = {
  ...{ status: 503, title: 'Service Unavailable' },
  detail: `Too many bodies are being sent at once. Nothing was charged. Try again in ${RETRY_SECONDS} s.`,
  headers: { 'retry-after': String(RETRY_SECONDS) },
}
