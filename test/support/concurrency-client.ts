/** A client whose request ends in one of several ways. */
import { type Agent, type ClientRequest, request } from 'node:http'

export interface Way {
  name: string
  /** The path decides what the origin does. */
  path: string
  method?: 'HEAD'
  /** When the client leaves: after it has sent its request, or when it has received the first bytes of the body. */
  leaves?: 'before the head' | 'in the body'
}

export const WAYS: readonly Way[] = [
  { name: 'whole', path: '/slow' },
  { name: 'stream', path: '/stream' },
  { name: 'HEAD', path: '/slow', method: 'HEAD' },
  { name: '204', path: '/204' },
  { name: 'chunked', path: '/chunked' },
  { name: 'error', path: '/error' },
  { name: 'origin resets', path: '/reset' },
  { name: 'origin resets, length known', path: '/reset-fixed' },
  { name: 'origin closes without a reply', path: '/no-reply' },
  { name: 'client leaves before the head', path: '/slow', leaves: 'before the head' },
  { name: 'client leaves a stream before the head', path: '/stream', leaves: 'before the head' },
  { name: 'client leaves a stream', path: '/stream', leaves: 'in the body' },
  { name: 'client leaves while the origin sends', path: '/ticking', leaves: 'in the body' },
  { name: 'client leaves while the origin is silent', path: '/silent', leaves: 'in the body' },
]

/** Used rarely, because it lasts until the origin's deadline of a second has passed. */
export const NO_HEAD: Way = { name: 'origin does not answer', path: '/no-head' }

export interface RequestOrder {
  agent: Agent
  url: string
  headers: Record<string, string>
  way: Way
  /** How long the client stays connected after the moment that `leaves` names (ms). */
  leaveAfterMs: number
  /** Called just before the client leaves. */
  onLeave(): void
}

/** @returns the status, `left`, or `broken` if no head arrived */
export function sendRequest({
  agent,
  url,
  headers,
  way,
  leaveAfterMs,
  onLeave,
}: RequestOrder): Promise<number | 'left' | 'broken'> {
  return new Promise(resolve => {
    const leave = (outgoing: ClientRequest) =>
      setTimeout(() => {
        if (outgoing.destroyed) return
        onLeave()
        // A reset, because workerd treats a FIN only as the end of the client's data. After a FIN, workerd does not detect that the client
        // has left until workerd sends it the next bytes, and a silent origin has none. Cloudflare's edge detects that the client has left.
        if (way.path === '/silent') outgoing.socket?.resetAndDestroy()
        outgoing.destroy()
        resolve('left')
      }, leaveAfterMs)
    const outgoing = request(url, { agent, headers, method: way.method ?? 'GET' }, response => {
      const over = () => resolve(response.statusCode!)
      response.on('error', over)
      response.on('end', over)
      response.on('close', over)
      if (way.leaves === 'in the body' && response.statusCode === 200)
        response.once('data', () => leave(outgoing))
      response.resume()
    })
    outgoing.on('error', () => resolve('broken'))
    outgoing.end()
    if (way.leaves === 'before the head') leave(outgoing)
  })
}
