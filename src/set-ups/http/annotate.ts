/**
 * Adds the state of the caller's limits to every reply: RateLimit-Policy and RateLimit of
 * draft-ietf-httpapi-ratelimit-headers-11 (structured fields, RFC 9651), the request id, and whether the limits were
 * evaluated. Fields of the origin are kept; those of the gateway follow them.
 */

import { type BareItem, serializeItem } from 'structured-headers'
import type { Rule } from '../../config/compile.ts'
import { countsInFlight } from '../../config/compile-rule.ts'
import { onlyEnforced, type Verdict } from '../../script/evaluation.ts'
import { retryAfterSeconds } from './deny.ts'
import type { Ruling } from './ruling.ts'
import type { XRateLimit } from './x-rate-limit.ts'

/**
 * Adds the headers to a reply.
 *
 * @param xRateLimit sets X-RateLimit headers, if the config has them
 */
export function annotate(
  response: Response,
  ruling: Ruling,
  requestId: string,
  xRateLimit?: XRateLimit,
): void {
  const { headers } = response
  headers.set('X-Request-Id', requestId)
  if ('degraded' in ruling && ruling.degraded) headers.set('Sluice-Degraded', ruling.degraded.cause)
  if (!('verdicts' in ruling)) return
  // Hides shadow rules and the load of the system from callers. Shows the limit of bad credentials only once it is
  // reached.
  const verdicts = onlyEnforced(ruling.verdicts).filter(
    ({ rule, allowed }) => !rule.isSystemLimit && (!allowed || rule.on === 'request'),
  )
  if (verdicts.length === 0) return
  // After the fields of the origin: several lines of a list are one list (RFC 9651, section 4.2).
  headers.append('RateLimit-Policy', verdicts.map(({ rule }) => textsOf(rule).policy).join(', '))
  headers.append('RateLimit', verdicts.map(limitState).join(', '))
  xRateLimit?.set(headers, verdicts)
}

/**
 * Cached, because the texts of a rule are the same for every request, and took a third of the time to annotate a
 * reply.
 */
const texts = new WeakMap<Rule, { name: string; policy: string }>()

function textsOf(rule: Rule): { name: string; policy: string } {
  let text = texts.get(rule)
  if (!text) {
    text = { name: serializeItem(rule.name), policy: policyOf(rule) }
    texts.set(rule, text)
  }
  return text
}

/** `"minute";q=120;w=60`, with the unit if it is not requests, and the burst if it differs from the limit. */
function policyOf(rule: Rule): string {
  const parameters = new Map<string, BareItem>([['q', rule.limit]])
  // A window below one second has no `w`: only whole seconds can be written, and a longer window would be wrong.
  // Calendar windows have no fixed length.
  if (rule.quotaUnit) parameters.set('qu', rule.quotaUnit)
  if (countsInFlight(rule)) parameters.set('qu', 'concurrent-requests')
  else if (rule.calendar) parameters.set('sluice-window', rule.calendar.period)
  else if (rule.period >= 1e6) parameters.set('w', windowSeconds(rule))
  if (rule.quota.burst !== rule.limit) parameters.set('sluice-burst', rule.quota.burst)
  return serializeItem([rule.name, parameters])
}

/**
 * `"minute";r=118;t=42`: r units are left until t seconds have passed. For a rule that refused, t is the time until
 * it would admit this request, so that Retry-After is never earlier. Otherwise t is the time until the whole budget
 * is back.
 */
function limitState({ rule, allowed, remaining, resetAfter, retryAfter }: Verdict): string {
  const seconds = allowed
    ? Math.ceil(resetAfter / 1e6)
    : (retryAfterSeconds(retryAfter) ?? windowSeconds(rule))
  return `${textsOf(rule).name};r=${remaining};t=${seconds}`
}

const windowSeconds = (rule: Rule) => Math.ceil(rule.period / 1e6)
