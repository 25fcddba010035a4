/** One request that ends in one of the ways in which requests end, seen from its client. */
import { type Agent, type ClientRequest, request } from 'node:http'

export interface Way {
  name: string
  /** What the origin does. */
  path: string
  method?: 'HEAD'
  /** The client leaves: after its request was sent, or when the first bytes of the body have come. */
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

/** Rarely: the origin's deadline passes, a second later. */
export const NO_HEAD: Way = { name: 'origin does not answer', path: '/no-head' }

export interface Asked {
  agent: Agent
  url: string
  headers: Record<string, string>
  way: Way
  /** How long after the moment of `leaves` (ms). */
  leaveAfterMs: number
  /** Called just before the client leaves. */
  onLeave(): void
}

/** @returns the status, `left`, or `broken` where no head came */
export function sendRequest({
  agent,
  url,
  headers,
  way,
  leaveAfterMs,
  onLeave,
}: Asked): Promise<number | 'left' | 'broken'> {
  return new Promise(resolve => {
    const leave = (outgoing: ClientRequest) =>
      setTimeout(() => {
        if (outgoing.destroyed) return
        onLeave()
        // workerd takes a mere FIN for the end of what the client sends, and notices only with the next bytes that it is gone: those
        // of an origin that is silent never come. Cloudflare's edge notices it.
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
