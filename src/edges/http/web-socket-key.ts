/**
 * API keys for WebSockets of browsers, which can set no header but offer subprotocols:
 *
 *     new WebSocket(url, ['sluice-key.slk_…', 'chat'])
 *     new WebSocket(url, ['sluice-key.slk_…', 'sluice'])   // without a protocol of its own
 *
 * The key is taken out before anything else sees the request, and counts as X-API-Key. Browsers close a connection whose reply
 * selects none of the protocols that they have offered, and the one with the key is never selected: the reply would repeat the key.
 * So one more has to be offered, one of the origin's or `sluice`.
 */
import { problem } from './problem.ts'

const PREFIX = 'sluice-key.'

/** Offered to be selected, where the client and the origin have no protocol of their own. */
const NO_PROTOCOL = 'sluice'

const PROTOCOLS = 'sec-websocket-protocol'

type Handle<Incoming, Forward> = (incoming: Incoming, forward: Forward) => Promise<Response>

/** @returns handles requests as the given function, WebSockets with a key as if it had come in a header */
export function withWebSocketKeys<Incoming extends { request: Request }, Forward>(
  handle: Handle<Incoming, Forward>,
): Handle<Incoming, Forward> {
  return async (incoming, forward) => {
    const { request } = incoming
    const offered = protocolsOf(request)
    const keys = offered.filter(isKey)
    if (keys.length === 0) return await handle(incoming, forward)
    if (keys.length === offered.length) return oneMore()

    const headers = new Headers(request.headers)
    const others = offered.filter(name => !isKey(name) && name !== NO_PROTOCOL)
    if (others.length > 0) headers.set(PROTOCOLS, others.join(', '))
    else headers.delete(PROTOCOLS)
    // Several keys are as bad here as a header that comes twice.
    if (!headers.has('x-api-key')) headers.set('x-api-key', keys.map(keyOf).join(', '))

    const { signal } = request
    const reply = await handle({ ...incoming, request: new Request(request, { headers, signal }) }, forward)
    const isSelected = reply.status !== 101 || reply.headers.has(PROTOCOLS)
    if (!isSelected && offered.includes(NO_PROTOCOL)) reply.headers.set(PROTOCOLS, NO_PROTOCOL)
    return reply
  }
}

/** Of a handshake. */
function protocolsOf({ headers }: Request): string[] {
  if (headers.get('upgrade')?.toLowerCase() !== 'websocket') return []
  const names = headers.get(PROTOCOLS)?.split(',') ?? []
  return names.map(name => name.trim()).filter(Boolean)
}

const isKey = (name: string) => name.startsWith(PREFIX)

/** Percent-encoded, as a key that was made elsewhere may have characters that a name of a protocol cannot have. */
function keyOf(name: string): string {
  const text = name.slice(PREFIX.length)
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

function oneMore(): Response {
  return problem({
    status: 400,
    title: 'Bad Request',
    detail: `The key is never selected as subprotocol. Offer another one beside it: one of the service, or '${NO_PROTOCOL}'.`,
  })
}
