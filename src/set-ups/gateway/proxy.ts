/**
 * Sends an admitted request to the origin and returns its response. Bodies are streamed in both directions, never
 * read or decoded. Redirects are passed on, because following them would send credentials to other hosts.
 */
import type { Config } from '../../config/compile.ts'
import { removeCredentials } from '../../credentials/credential-headers.ts'
import type { Log } from '../../log.ts'
import { modeOf, verifiedConsumer } from '../http/caller.ts'
import { type ForwardContext, type Forwarded, replyToGoneClient } from '../http/forward.ts'
import { isMethodOverride } from '../http/header-names.ts'
import { problem } from '../http/problem.ts'
import { isHopByHop, isRemovedName } from './removed-headers.ts'

/**
 * For workerd: keeps a compressed body as the origin sent it, also if it passes through a stream of the gateway.
 * Otherwise that stream gets the decompressed bytes, whose length is not the Content-Length.
 */
const AS_ENCODED = { encodeResponseBody: 'manual' } as RequestInit

type ProxyConfig = Pick<Config, 'origin' | 'originDeadlineMs' | 'onClientGone' | 'credentials'>

/**
 * Sends a request with its body, and with the headers of `settings`.
 * @returns the response, with headers that can be changed
 */
export type FetchOrigin = (target: string, request: Request, settings: RequestInit) => Promise<Response>

/** Passing the request also passes its body, even with GET. Without a body, copying the request would be wasted work. */
const fetchByPlatform: FetchOrigin = async (target, request, settings) =>
  copyResponse(
    request.body
      ? await fetch(new Request(target, request), settings)
      : await fetch(target, { ...settings, method: request.method }),
  )

/**
 * Sends a request to the origin.
 *
 * @param fetchOrigin default: `fetch` of the platform
 * @returns the origin's response; 502 if the origin cannot be reached, 504 if it does not answer in time, 499 if the
 *   client has left and the request to the origin was therefore aborted
 */
export async function proxy(
  request: Request,
  config: ProxyConfig,
  context: ForwardContext,
  log: Log,
  fetchOrigin = fetchByPlatform,
): Promise<Forwarded> {
  const deadline = new AbortController()
  const timer = setTimeout(() => deadline.abort(), config.originDeadlineMs)
  const aborts = config.onClientGone === 'abort'
  try {
    const url = context.url ?? new URL(request.url)
    const target = targetUrl(request.url, config.origin!, url)
    const settings: RequestInit = {
      headers: forwardedHeaders(request, url, config, context),
      redirect: 'manual',
      // Requests with a credential bypass the cache of the zone, whose key does not include the credential. The
      // origin sees this as Cache-Control: no-cache, unless the caller sent its own.
      ...(context.caller?.credential && { cache: 'no-store' }),
      signal: aborts ? AbortSignal.any([deadline.signal, request.signal]) : deadline.signal,
      ...AS_ENCODED,
    }
    context.adapt?.(settings)
    const response = await fetchOrigin(target, request, settings)
    return { response, isFromSluice: false }
  } catch (error) {
    if ((aborts && request.signal.aborted) || context.bodyFailed?.aborted) return replyToGoneClient()
    const isLate = deadline.signal.aborted
    const { requestId: request_id, route } = context
    const reason = isLate ? 'timeout' : reasonOf(error)
    // workerd has one error for an origin that closes the connection and for a client that breaks off its body or sends invalid chunks.
    // A stream in between could tell them apart, but when it fails, workerd ends the body as if it was complete.
    log('error', 'origin', { reason, body: !!request.body, route, request_id })
    if (isLate) return { response: gatewayTimeout(config.originDeadlineMs, context), isFromSluice: true }
    return { response: badGateway(context), isFromSluice: true, isUnsent: isUnsent(error) }
  } finally {
    clearTimeout(timer)
  }
}

/** Errors of Node before a connection was made. workerd has the same error for all failures. */
const UNCONNECTED =
  /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT)$|CERT/

function isUnsent(error: unknown): boolean {
  const { code } = ((error as Error | undefined)?.cause ?? error ?? {}) as { code?: unknown }
  return typeof code === 'string' && UNCONNECTED.test(code)
}

/**
 * Why the platform could not reach the origin, without the URLs that some platforms quote. On Node the cause has the
 * details.
 */
function reasonOf(error: unknown): string {
  const text = String((error as Error | undefined)?.cause ?? error)
  return text.replace(/\S+/g, word => (/:\/\/|\?/.test(word) ? '…' : word))
}

/** The URL of a request at the origin: the path of the request is appended to that of the origin. */
export function targetUrl(requestUrl: string, origin: string, url = new URL(requestUrl)): string {
  return origin === 'route' ? requestUrl : originPrefix(origin) + url.pathname + url.search
}

/** Cached: a config has one origin. */
const originPrefixes = new Map<string, string>()

function originPrefix(origin: string): string {
  const known = originPrefixes.get(origin)
  if (known !== undefined) return known
  // Not `href`: with a bare ? or # at its end, the path would become part of the query or fragment.
  const url = new URL(origin)
  const prefix = url.origin + url.pathname.replace(/\/$/, '')
  originPrefixes.set(origin, prefix)
  return prefix
}

function forwardedHeaders(request: Request, url: URL, config: ProxyConfig, context: ForwardContext): Headers {
  const { caller, decision, requestId } = context
  const { credentials } = config
  const headers = new Headers(request.headers)
  removeHeaders(
    headers,
    // A preflight is not authenticated, so it must not be able to override the method.
    name => name === 'host' || isRemovedName(name, credentials) || (!caller && isMethodOverride(name)),
  )

  // The upgrade is the only hop-by-hop header that is passed on, because it opens a WebSocket to the origin.
  if (request.headers.get('upgrade')?.toLowerCase() === 'websocket') headers.set('upgrade', 'websocket')

  const address = caller ? caller.address : context.address
  if (address) headers.set('x-forwarded-for', address)
  headers.set('x-forwarded-proto', url.protocol.replace(':', ''))
  // Not the header Host, which can differ from the host that was matched.
  headers.set('x-forwarded-host', url.host)
  headers.set('x-request-id', requestId)

  const credential = caller?.credential
  if (!credentials.forward) removeCredentials(headers, credentials, credential?.header)
  const consumer = verifiedConsumer(caller, decision)
  if (consumer !== undefined) {
    headers.set('x-consumer-id', consumer)
    headers.set('x-consumer-mode', modeOf(credential))
    if (decision?.plan) headers.set('x-consumer-plan', decision.plan)
  }
  if (decision?.degraded) headers.set('sluice-degraded', decision.degraded.cause)
  return headers
}

/** The response of the origin with headers that can be changed. */
function copyResponse(response: Response): Response {
  // A WebSocket handshake is passed on as it is.
  if (response.status === 101) return new Response(null, response)
  const copy = new Response(response.body, response)
  cleanResponse(copy.headers)
  return copy
}

/** Removes the headers of a response that its client must not get. */
export const cleanResponse = (headers: Headers) =>
  removeHeaders(headers, name => isHopByHop(name) || name === 'sluice-degraded')

/**
 * Also removes the headers that Connection names (RFC 9110, section 7.6.1). Deletes only headers that are present, because on Workers each
 * call on Headers costs more than these checks of names.
 */
function removeHeaders(headers: Headers, isRemoved: (name: string) => boolean): void {
  const names: string[] = []
  let connection = ''
  headers.forEach((value, name) => {
    names.push(name)
    if (name === 'connection') connection = value
  })
  // A set: a client can write thousands of names, and send thousands of headers.
  const named = new Set(
    connection
      .toLowerCase()
      .split(',')
      .map(name => name.trim()),
  )
  for (const name of names) if (isRemoved(name) || named.has(name)) headers.delete(name)
}

function badGateway({ errorShape }: ForwardContext): Response {
  const detail = 'The service behind this gateway cannot be reached. Try again later.'
  return problem({ status: 502, title: 'Bad Gateway', detail }, errorShape)
}

function gatewayTimeout(deadlineMs: number, { errorShape }: ForwardContext): Response {
  const detail = `The service behind this gateway did not answer within ${deadlineMs / 1e3} s. Try again later.`
  return problem({ status: 504, title: 'Gateway Timeout', detail }, errorShape)
}
