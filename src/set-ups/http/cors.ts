/**
 * Answers CORS requests by the `cors` of the config (Fetch Standard, CORS protocol). A Worker whose config has no
 * `cors` does not carry this file.
 */
import type { Cors } from '../../config/compile.ts'

export function answerPreflight(request: Request, cors: Cors): Response {
  const headers = new Headers({
    vary: 'Origin, Access-Control-Request-Method, Access-Control-Request-Headers',
  })
  const origin = allowedOrigin(request, cors)
  if (origin) {
    headers.set('access-control-allow-origin', origin)
    headers.set('access-control-allow-methods', request.headers.get('access-control-request-method') ?? '')
    const requested = request.headers.get('access-control-request-headers')
    const allowed = cors.headers?.join(', ') ?? requested
    if (allowed) headers.set('access-control-allow-headers', allowed)
    headers.set('access-control-max-age', String(cors.maxAgeSeconds))
  }
  return new Response(null, { status: 204, headers })
}

/** Sets which web page may read a reply, replacing the origin's answer. */
export function setAllowedOrigin(request: Request, headers: Headers, cors: Cors): void {
  const origin = allowedOrigin(request, cors)
  if (origin) headers.set('access-control-allow-origin', origin)
  else headers.delete('access-control-allow-origin')
  if (origin !== '*') headers.append('vary', 'Origin')
}

function allowedOrigin(request: Request, { origins }: Cors): string | undefined {
  if (origins === '*') return '*'
  const origin = request.headers.get('origin') ?? ''
  return origins.includes(origin) ? origin : undefined
}
