/**
 * Requests that a browser makes for a web page of another origin. A preflight is neither authenticated nor counted: it carries no
 * credential by design. It is answered here when the config has `cors`, else it goes to the origin, whose CORS headers are kept.
 * In both cases, a script that may read a reply may read its limits.
 */
import type { Config } from '../../config/compile.ts'
import type { Parts } from './parts.ts'
import type { XRateLimit } from './x-rate-limit.ts'

const READABLE = 'RateLimit, RateLimit-Policy, Retry-After, Sluice-Degraded, X-Request-Id'

/**
 * As browsers send it (Fetch Standard, CORS-preflight fetch): without body, cookie or credential. Any other OPTIONS request is an
 * ordinary request.
 * @param hasBody on servers where a request always has a stream for one
 */
export function isPreflight(request: Request, hasBody = request.body !== null): boolean {
  if (request.method !== 'OPTIONS') return false
  const { headers } = request
  const asksForCors = headers.has('origin') && headers.has('access-control-request-method')
  const isBare = !['cookie', 'authorization', 'x-api-key'].some(name => headers.has(name))
  return asksForCors && isBare && (!hasBody || headers.get('content-length') === '0')
}

export interface ReplyToPage {
  /** The gateway has made it, not the origin. */
  isOwn: boolean
  cors: Config['cors']
  parts: Pick<Parts, 'setAllowedOrigin'>
  /** Headers of the config, where it has some. */
  xRateLimit?: XRateLimit | undefined
}

export function exposeToScripts(
  request: Request,
  response: Response,
  { isOwn, cors, parts, xRateLimit }: ReplyToPage,
): void {
  if (!request.headers.has('origin')) return
  const { headers } = response
  if (cors) parts.setAllowedOrigin(request, headers, cors)
  // Replies of the gateway hold nothing private, and without this header a browser hides even the status 429.
  else if (isOwn) headers.set('access-control-allow-origin', '*')
  if (headers.has('access-control-allow-origin')) {
    headers.append('access-control-expose-headers', READABLE + (xRateLimit?.names ?? ''))
  }
}
