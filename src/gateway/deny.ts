/** What a caller reads who is not let through. Rich inside, vague outside: it never tells a bad key from an unknown one. */
import type { Rule } from '../config/compile.ts'
import type { Denied, Unauthenticated } from '../limiter/decide.ts'
import { problem } from './problem.ts'

/** draft-ietf-httpapi-ratelimit-headers-11, section 5 */
const QUOTA_EXCEEDED = 'https://iana.org/assignments/http-problem-types#quota-exceeded'

export function deny(decision: Denied | Unauthenticated): Response {
  return decision.kind === 'denied' ? quotaExceeded(decision) : unauthorized(decision)
}

function quotaExceeded({ violated, retryAfter }: Denied): Response {
  const names = violated.map(({ rule }) => rule.name)
  const [first] = violated
  const limits = violated.map(({ rule }) => `${rule.name} (${rule.limit} per ${period(rule)})`)
  const seconds = retryAfterSeconds(retryAfter)
  const advice =
    seconds === undefined
      ? `This request costs ${first!.rule.quota.cost}, which is more than the limit can ever admit.`
      : `Nothing was charged; try again in ${seconds} s.`
  return problem({
    status: 429,
    title: 'Quota Exceeded',
    type: QUOTA_EXCEEDED,
    detail: `Limit reached: ${limits.join(', ')}. ${advice}`,
    extra: { 'violated-policies': names },
    headers: seconds === undefined ? {} : { 'retry-after': String(seconds) },
  })
}

/** Whole seconds, rounded up so that who waits them out is admitted; undefined for never. */
export function retryAfterSeconds(retryAfter: number): number | undefined {
  return retryAfter < 0 ? undefined : Math.max(1, Math.ceil(retryAfter / 1e6))
}

/** RFC 6750, section 3: no error code when there was no credential at all. */
function unauthorized({ reason }: Unauthenticated): Response {
  const isMissing = reason === 'missing'
  return problem({
    status: 401,
    title: 'Unauthorized',
    detail: isMissing
      ? 'Send an API key, as Authorization: Bearer <key> or as X-API-Key: <key>.'
      : 'The API key is not valid. Check that it was copied whole, or ask for a new one.',
    headers: {
      'www-authenticate': isMissing
        ? 'Bearer realm="sluice"'
        : 'Bearer realm="sluice", error="invalid_token"',
    },
  })
}

const UNITS = [
  ['day', 86400e6],
  ['hour', 3600e6],
  ['minute', 60e6],
  ['second', 1e6],
] as const

/** 1e6 → `second`, 9e8 → `15 minutes`, 250e3 → `250 ms`; of a calendar `month` */
function period({ calendar, period: microseconds }: Rule): string {
  if (calendar) return calendar.period
  const [name, unit] = UNITS.find(([, unit]) => microseconds % unit === 0) ?? ['ms', 1e3]
  const count = microseconds / unit
  if (name === 'ms') return `${count} ms`
  return count === 1 ? name : `${count} ${name}s`
}
