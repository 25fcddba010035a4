/**
 * API keys for WebSockets of browsers, which cannot set headers but can offer subprotocols:
 *
 *     new WebSocket(url, ['sluice-key.slk_…', 'chat'])
 *     new WebSocket(url, ['sluice-key.slk_…', 'sluice'])   // without a protocol of its own
 *
 * The key is removed before any other code reads the request, and is treated as X-API-Key. Browsers close a
 * connection whose reply selects none of the offered protocols. The one with the key is never selected, because the
 * reply would repeat the key. So clients must offer one more: a protocol of the origin, or `sluice`.
 */
import { KEY_PROTOCOL } from '../../credentials/credential-headers.ts'
import { problem } from './problem.ts'

/** The protocol to select if client and origin have none of their own. */
const NO_PROTOCOL = 'sluice'

const PROTOCOLS = 'sec-websocket-protocol'

type Handle<Incoming, Forward> = (incoming: Incoming, forward: Forward) => Promise<Response>

/** Wraps a request handler, so that a key in a subprotocol counts like one in a header. */
export function withWebSocketKeys<Incoming extends { request: Request }, Forward>(
  handle: Handle<Incoming, Forward>,
): Handle<Incoming, Forward> {
  return async (incoming, forward) => {
    const { request } = incoming
    const offered = protocolsOf(request)
    const keys = offered.filter(isKey)
    if (keys.length === 0) return await handle(incoming, forward)
    if (keys.length === offered.length) return askForAnotherProtocol()

    const headers = new Headers(request.headers)
    const others = offered.filter(name => !isKey(name) && name !== NO_PROTOCOL)
    if (others.length > 0) headers.set(PROTOCOLS, others.join(', '))
    else headers.delete(PROTOCOLS)
    // Several keys are joined with commas and so malformed, like a header that is sent twice.
    if (!headers.has('x-api-key')) headers.set('x-api-key', keys.map(keyOf).join(', '))

    const { signal } = request
    const reply = await handle({ ...incoming, request: new Request(request, { headers, signal }) }, forward)
    const isSelected = reply.status !== 101 || reply.headers.has(PROTOCOLS)
    if (!isSelected && offered.includes(NO_PROTOCOL)) reply.headers.set(PROTOCOLS, NO_PROTOCOL)
    return reply
  }
}

/** The subprotocols that a handshake offers; empty for other requests. */
function protocolsOf({ headers }: Request): string[] {
  if (headers.get('upgrade')?.toLowerCase() !== 'websocket') return []
  const names = headers.get(PROTOCOLS)?.split(',') ?? []
  return names.map(name => name.trim()).filter(Boolean)
}

const isKey = (name: string) => name.startsWith(KEY_PROTOCOL)

/**
 * The key of a subprotocol. It is percent-encoded, because an opaque key may contain characters that are not allowed
 * in the name of a protocol. What cannot be a key stays encoded, because a header could not contain it.
 */
function keyOf(name: string): string {
  const text = name.slice(KEY_PROTOCOL.length)
  try {
    const key = decodeURIComponent(text)
    return /^[!-~]*$/.test(key) ? key : text
  } catch {
    return text
  }
}

function askForAnotherProtocol(): Response {
  return problem({
    status: 400,
    title: 'Bad Request',
    detail: `The handshake offers only the subprotocol with the key, and the gateway never selects that one. Also offer a subprotocol of the service, or '${NO_PROTOCOL}'.`,
  })
}
