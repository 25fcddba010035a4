/**
 * CORS. A preflight is neither authenticated nor counted: it carries no credential by design. It is answered here when the config
 * has `cors`, else it goes to the origin, whose CORS headers are kept. In both cases, a script that may read a reply may
 * read its limits.
 */
import type { Config } from '../../config/compile.ts'

const READABLE = 'RateLimit, RateLimit-Policy, Retry-After, Sluice-Degraded, X-Request-Id'

/**
 * As browsers send it (Fetch Standard, CORS-preflight fetch): without body, cookie or credential. Any other OPTIONS request is an
 * ordinary request.
 */
export function isPreflight(request: Request): boolean {
  if (request.method !== 'OPTIONS') return false
  const { headers, body } = request
  const asksForCors = headers.has('origin') && headers.has('access-control-request-method')
  const isBare = !['cookie', 'authorization', 'x-api-key'].some(name => headers.has(name))
  return asksForCors && isBare && (!body || headers.get('content-length') === '0')
}

export function answerPreflight(request: Request, cors: NonNullable<Config['cors']>): Response {
  const headers = new Headers({
    vary: 'Origin, Access-Control-Request-Method, Access-Control-Request-Headers',
  })
  const origin = allowedOrigin(request, cors)
  if (origin) {
    headers.set('access-control-allow-origin', origin)
    headers.set('access-control-allow-methods', request.headers.get('access-control-request-method') ?? '')
    const asked = request.headers.get('access-control-request-headers')
    const allowed = cors.headers?.join(', ') ?? asked
    if (allowed) headers.set('access-control-allow-headers', allowed)
    headers.set('access-control-max-age', String(cors.maxAgeSeconds))
  }
  return new Response(null, { status: 204, headers })
}

/** @param reply.isOwn it was made by the gateway, not by the origin */
export function exposeToScripts(
  request: Request,
  response: Response,
  cors: Config['cors'],
  reply: { isOwn: boolean },
): void {
  if (!request.headers.has('origin')) return
  const { headers } = response
  if (cors) {
    const origin = allowedOrigin(request, cors)
    if (origin) headers.set('access-control-allow-origin', origin)
    else headers.delete('access-control-allow-origin')
    if (origin !== '*') headers.append('vary', 'Origin')
  } else if (reply.isOwn) {
    // Replies of the gateway hold nothing private, and without this header a browser hides even the status 429.
    headers.set('access-control-allow-origin', '*')
  }
  if (headers.has('access-control-allow-origin')) headers.append('access-control-expose-headers', READABLE)
}

function allowedOrigin(request: Request, { origins }: NonNullable<Config['cors']>): string | undefined {
  if (origins === '*') return '*'
  const origin = request.headers.get('origin') ?? ''
  return origins.includes(origin) ? origin : undefined
}
