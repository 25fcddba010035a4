/**
 * Sends an admitted request to the origin and returns its reply: bodies are streamed both ways, never read and never decoded.
 * Redirects are passed on and not followed, which would carry credentials to other hosts.
 */
import type { Config } from '../../config/compile.ts'
import { removeCredentials } from '../../credentials/credential-headers.ts'
import type { Forwarded, OnBehalfOf } from '../http/forward.ts'
import { problem } from '../http/problem.ts'

/** RFC 9110, section 7.6.1, and older hop-by-hop headers. */
const HOP_BY_HOP = new Set([
  ...['connection', 'keep-alive', 'proxy-authenticate', 'proxy-authorization', 'proxy-connection'],
  ...['te', 'trailer', 'transfer-encoding', 'upgrade'],
])

/**
 * Headers that origins trust because the gateway in front of them sets them: the caller, its address, and the original URL. Those
 * of a client are removed, or it could choose its address, and the path that an origin routes by. Many servers read X_Consumer_Id as
 * X-Consumer-Id, and some treat every character that is not a letter or digit like that.
 */
const SAID_BY_GATEWAY = new RegExp(
  `^(${[
    ...[
      'x-consumer-.*',
      'sluice-.*',
      'x-request-id',
      'forwarded',
      'x-forwarded-.*',
      'x-original-(url|uri|host|forwarded-.*)',
      'x-rewrite-url',
    ],
    ...['x-real-ip', 'x-remote-(ip|addr)', 'x-originating-ip', '(x-)?((cluster|true|fastly)-)?client-ip'],
    ...['cf-connecting-ip(v6)?', 'x-envoy-external-address'],
  ].join('|')})$`,
)

const isSaidByGateway = (name: string) => SAID_BY_GATEWAY.test(name.replace(/[^a-z0-9]/g, '-'))

/** A preflight is not authenticated, so it must not be able to override the method. */
const OTHER_METHOD = new Set(['x-http-method-override', 'x-http-method', 'x-method-override'])

/**
 * For workerd: leaves a compressed body as the origin sent it, also when it passes through a stream of the gateway.
 * Otherwise that stream gets the decompressed bytes, and Content-Length is not their length.
 */
const AS_ENCODED = { encodeResponseBody: 'manual' } as RequestInit

type ProxyConfig = Pick<Config, 'origin' | 'originDeadlineMs' | 'credentials'>

/** @returns the origin's response, or 502 when it cannot be reached, 504 when it does not answer in time */
export async function proxy(request: Request, config: ProxyConfig, behalf: OnBehalfOf): Promise<Forwarded> {
  const deadline = new AbortController()
  const timer = setTimeout(() => deadline.abort(), config.originDeadlineMs)
  try {
    const url = behalf.url ?? new URL(request.url)
    const target = targetUrl(request.url, config.origin!, url)
    const settings: RequestInit = {
      headers: forwardedHeaders(request, url, config, behalf),
      redirect: 'manual',
      // Requests with a credential bypass the cache of the zone, whose key does not include the credential. The
      // origin sees this as Cache-Control: no-cache, unless the caller sent its own.
      ...(behalf.caller?.credential && { cache: 'no-store' }),
      signal: deadline.signal,
      ...AS_ENCODED,
    }
    // A body comes along with the request itself, also that of a GET; without one, copies of the request are for nothing.
    const response = request.body
      ? await fetch(new Request(target, request), settings)
      : await fetch(target, { ...settings, method: request.method })
    return { response: returned(response), isOwn: false }
  } catch (error) {
    const isLate = deadline.signal.aborted
    const { requestId: request_id, route } = behalf
    const reason = isLate ? 'timeout' : reasonOf(error)
    console.error(JSON.stringify({ level: 'error', event: 'origin', reason, route, request_id }))
    return { response: isLate ? gatewayTimeout(config.originDeadlineMs) : badGateway(), isOwn: true }
  } finally {
    clearTimeout(timer)
  }
}

/** Why the platform could not reach the origin, without the URLs that some platforms quote. Node tells more in the cause. */
function reasonOf(error: unknown): string {
  return String((error as Error | undefined)?.cause ?? error).replace(/\S*(:\/\/|\?)\S*/g, '…')
}

/** The origin's URL for a request: the path of the request follows that of the origin. */
export function targetUrl(requestUrl: string, origin: string, url = new URL(requestUrl)): string {
  return origin === 'route' ? requestUrl : beginningOf(origin) + url.pathname + url.search
}

/** By origin, of which a config has one. */
const beginnings = new Map<string, string>()

function beginningOf(origin: string): string {
  const known = beginnings.get(origin)
  if (known !== undefined) return known
  // Not `href`: a bare ? or # at its end would take the path into the query or the fragment.
  const url = new URL(origin)
  const beginning = url.origin + url.pathname.replace(/\/$/, '')
  beginnings.set(origin, beginning)
  return beginning
}

function forwardedHeaders(request: Request, url: URL, config: ProxyConfig, behalf: OnBehalfOf): Headers {
  const { caller, decision, requestId } = behalf
  const headers = new Headers(request.headers)
  removeHopByHop(
    headers,
    name => isSaidByGateway(name) || name === 'host' || (!caller && OTHER_METHOD.has(name)),
  )

  // The upgrade is the only hop-by-hop header that is passed on: it opens a WebSocket to the origin.
  if (request.headers.get('upgrade')?.toLowerCase() === 'websocket') headers.set('upgrade', 'websocket')

  const address = caller ? caller.address : behalf.address
  if (address) headers.set('x-forwarded-for', address)
  headers.set('x-forwarded-proto', url.protocol.replace(':', ''))
  // Not the header Host, which can differ from the host that was matched.
  headers.set('x-forwarded-host', url.host)
  headers.set('x-request-id', requestId)

  const credential = caller?.credential
  if (!config.credentials.forward) removeCredentials(headers, config.credentials, credential?.header)
  // Only a verified consumer: while degraded, the consumer of a key is unknown.
  if (credential && (decision?.plan || credential.isVerified)) {
    headers.set('x-consumer-id', decision?.consumer ?? credential.consumer)
    if (decision?.plan) headers.set('x-consumer-plan', decision.plan)
  }
  if (decision?.degraded) headers.set('sluice-degraded', decision.degraded.cause)
  return headers
}

/** The origin's response with headers that can be changed. */
function returned(response: Response): Response {
  // A WebSocket handshake is passed on as it is.
  if (response.status === 101) return new Response(null, response)
  const copy = new Response(response.body, response)
  removeHopByHop(copy.headers, name => name === 'sluice-degraded')
  return copy
}

/** Only what is there: on Workers, each call about a header costs more than all that is done with its name here. */
function removeHopByHop(headers: Headers, isOther: (name: string) => boolean): void {
  const names: string[] = []
  let connection = ''
  headers.forEach((value, name) => {
    names.push(name)
    if (name === 'connection') connection = value
  })
  const named = connection
    .toLowerCase()
    .split(',')
    .map(name => name.trim())
  for (const name of names) {
    if (HOP_BY_HOP.has(name) || named.includes(name) || isOther(name)) headers.delete(name)
  }
}

function badGateway(): Response {
  return problem({
    status: 502,
    title: 'Bad Gateway',
    detail: 'The service behind this gateway cannot be reached. Try again later.',
  })
}

function gatewayTimeout(deadlineMs: number): Response {
  return problem({
    status: 504,
    title: 'Gateway Timeout',
    detail: `The service behind this gateway did not answer within ${deadlineMs / 1e3} s. Try again later.`,
  })
}
