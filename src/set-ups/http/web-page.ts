/**
 * Requests that a browser makes for a web page of another web origin. A preflight carries no credential by design, so it
 * is neither authenticated nor counted. If the config has `cors`, the gateway answers it; otherwise it goes to the
 * origin, whose CORS headers are kept. In both cases, a script that may read a reply may also read its limits.
 */
import type { Config } from '../../config/compile.ts'
import type { Parts } from './parts.ts'
import type { XRateLimit } from './x-rate-limit.ts'

const READABLE = 'RateLimit, RateLimit-Policy, Retry-After, Sluice-Degraded, X-Request-Id'

/**
 * Whether a request is a preflight as browsers send it (Fetch Standard, CORS-preflight fetch): without body, cookie
 * or credential. Any other OPTIONS request is an ordinary request.
 *
 * @param hasBody for servers where every request has a stream for its body
 */
export function isPreflight(request: Request, hasBody = request.body !== null): boolean {
  if (request.method !== 'OPTIONS') return false
  const { headers } = request
  const asksForCors = headers.has('origin') && headers.has('access-control-request-method')
  const isBare = !['cookie', 'authorization', 'x-api-key'].some(name => headers.has(name))
  return asksForCors && isBare && (!hasBody || headers.get('content-length') === '0')
}

export interface ReplyToPage {
  /** The gateway made the reply, not the origin. */
  isFromSluice: boolean
  cors: Config['cors']
  parts: Pick<Parts, 'setAllowedOrigin'>
  /** The X-RateLimit headers, if the config has them. */
  xRateLimit?: XRateLimit | undefined
}

export function exposeToScripts(
  request: Request,
  response: Response,
  { isFromSluice, cors, parts, xRateLimit }: ReplyToPage,
): void {
  if (!request.headers.has('origin')) return
  const { headers } = response
  if (cors) parts.setAllowedOrigin(request, headers, cors)
  // Replies of the gateway contain nothing private, and without this header a browser hides even the status 429.
  else if (isFromSluice) headers.set('access-control-allow-origin', '*')
  if (headers.has('access-control-allow-origin')) {
    headers.append('access-control-expose-headers', READABLE + (xRateLimit?.names ?? ''))
  }
}
