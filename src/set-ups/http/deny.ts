/**
 * Creates the reply to a refused request. Callers get no details that help them guess: a malformed key and an unknown one get
 * the same reply.
 */

import { formatAllowance } from '../../config/allowance.ts'
import { countsInFlight } from '../../config/compile-rule.ts'
import type { Allowed, Denied, Unavailable } from '../../limiter/decision.ts'
import { type ErrorShape, type Problem, problem } from './problem.ts'
import { type Forbidden, isReducedCapacity, type Ruling, type Unauthenticated } from './ruling.ts'

/** draft-ietf-httpapi-ratelimit-headers-11, section 5 */
const QUOTA_EXCEEDED = 'https://iana.org/assignments/http-problem-types#quota-exceeded'

/** The same draft, section 6: the system is full, or a part of the gateway does not work. */
const REDUCED_CAPACITY = 'https://iana.org/assignments/http-problem-types#temporary-reduced-capacity'

export const deny = (ruling: Exclude<Ruling, Allowed>, shape?: ErrorShape): Response =>
  problem(describeRefusal(ruling), shape)

/** The reply as data, for the API. */
export function describeRefusal(ruling: Exclude<Ruling, Allowed>): Problem {
  switch (ruling.kind) {
    case 'denied':
      return isReducedCapacity(ruling) ? tooBusy(FLEET_RETRY_SECONDS) : quotaExceeded(ruling)
    case 'shed':
      return tooBusy(retryAfterSeconds(ruling.verdict.retryAfter)!)
    case 'unauthenticated':
      return ruling.reason === 'unverifiable' ? unverifiable() : unauthorized(ruling)
    case 'unknown-credential':
      return unauthorized({ reason: 'unknown', accepted: [] })
    case 'forbidden':
      return forbidden(ruling.what)
    case 'blocked':
      return forbidden('consumer')
    case 'unavailable':
      return unavailable(ruling)
    case 'unread':
      return ruling.problem
  }
}

function quotaExceeded({ violated: all, retryAfter, degraded }: Denied): Problem {
  // Callers do not see the load of the system.
  const violated = all.filter(({ rule }) => !rule.isSystemLimit)
  const names = violated.map(({ rule }) => rule.name)
  const { on, cost, unitSuffix = '' } = violated[0]!.rule
  const limits = violated.map(({ rule }) => `${rule.name} (${formatAllowance(rule)})`)
  // This caller may have a valid credential: others at its address may have sent the bad ones.
  const what =
    on === 'auth-failure'
      ? 'Too many requests with invalid credentials'
      : LIMIT_REACHED[degraded ? 'local' : 'store']
  const seconds = retryAfterSeconds(retryAfter)
  const advice =
    seconds === undefined
      ? `This request costs ${cost}${unitSuffix}, which is more than the limit can ever admit.`
      : `Nothing was charged. Try again ${retryWording(violated)} ${seconds} s.`
  return {
    status: 429,
    title: 'Quota Exceeded',
    type: QUOTA_EXCEEDED,
    detail: `${what}: ${limits.join(', ')}. ${advice}`,
    extra: { 'violated-policies': names },
    headers: seconds === undefined ? {} : { 'retry-after': String(seconds) },
  }
}

/** For units in flight the time is an upper bound, unless a long request renews its unit: a request can end at any time. */
function retryWording(violated: Denied['violated']): string {
  const isInFlight = violated.every(({ rule }) => countsInFlight(rule))
  return isInFlight ? 'when one of your requests has ended, or in' : 'in'
}

const LIMIT_REACHED = {
  store: 'Limit reached',
  // The isolate admits only a share of the limit.
  local: 'Limit reached, as counted by this instance alone',
}

/**
 * Converts µs to whole seconds, rounded up so that a caller that waits for them is admitted. Returns undefined for
 * never (-1).
 */
export function retryAfterSeconds(retryAfter: number): number | undefined {
  return retryAfter < 0 ? undefined : Math.max(1, Math.ceil(retryAfter / 1e6))
}

const NOT_VALID = 'The credential is not valid. Check that it was copied whole, or ask for a new one.'

const NOTHING_ACCEPTED =
  'Servers can read this request in different ways, so it matches several routes, and no credential is accepted by all of them. The cause is the header X-HTTP-Method-Override, or one of these in the path: %2F, //, "..", ";" or a final slash. Send the plain path, such as /reports/7.'

/**
 * Creates a 401 with a challenge (RFC 9110, section 15.5.2), and with an error code unless there was no credential
 * (RFC 6750, section 3). Only a token with a valid signature gets a reply with the cause.
 */
function unauthorized({ reason, accepted, advice }: UnauthorizedReply): Problem {
  const challenge =
    reason === 'missing' ? 'Bearer realm="sluice"' : 'Bearer realm="sluice", error="invalid_token"'
  const isExpired = reason === 'expired'
  const details: Partial<Record<UnauthorizedReply['reason'], string>> = {
    missing: accepted.length > 0 ? `Send ${accepted.join(', or ')}.` : NOTHING_ACCEPTED,
    'not-accepted': `This kind of credential is not accepted here. Send ${accepted.join(', or ') || 'the request without a credential'}.`,
  }
  return {
    status: 401,
    title: 'Unauthorized',
    detail: advice ?? details[reason] ?? NOT_VALID,
    headers: {
      'www-authenticate': isExpired ? `${challenge}, error_description="The token expired"` : challenge,
    },
  }
}

/** `unknown`: the store does not know the credential. The reply is the same as for a malformed one. */
type UnauthorizedReply = Pick<Unauthenticated, 'accepted' | 'advice'> & {
  reason: Unauthenticated['reason'] | 'unknown'
}

function forbidden(what: Forbidden['what'] | 'consumer'): Problem {
  const detail = {
    consumer: 'This consumer is blocked. Contact the operator of the service.',
    address: 'Requests from this address are blocked. Contact the operator of the service.',
    country: 'Requests from this country are blocked.',
  }
  return { status: 403, title: 'Forbidden', detail: detail[what] }
}

/** The token may be valid, but the keys of its issuer are missing. */
function unverifiable(): Problem {
  return {
    status: 503,
    title: 'Service Unavailable',
    detail: 'The token cannot be verified now, because its issuer does not answer. Try again in 5 s.',
    headers: { 'retry-after': '5' },
  }
}

/** The system is full for everyone, so callers see neither numbers nor names of rules. */
function tooBusy(seconds: number): Problem {
  const detail = 'The service is too busy for this request now. Nothing was charged. Try'
  return reducedCapacity(detail, seconds)
}

/** A place is free once any request has ended. That time is unknown, so callers try again after a second. */
export const FLEET_RETRY_SECONDS = 1

function unavailable({ what }: Unavailable): Problem {
  return reducedCapacity(
    `${what === 'limits' ? 'Limits' : 'The credential'} cannot be checked now. Try`,
    RETRY_SECONDS,
  )
}

/** @param detail is followed by `again in 5 s.` */
function reducedCapacity(detail: string, seconds: number): Problem {
  return {
    status: 503,
    title: 'Temporary Reduced Capacity',
    type: REDUCED_CAPACITY,
    detail: `${detail} again in ${seconds} s.`,
    headers: { 'retry-after': String(seconds) },
  }
}

/** By default, the gateway detects within a second or two that the store is back. */
const RETRY_SECONDS = 1
