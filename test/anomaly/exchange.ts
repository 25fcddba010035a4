/** Sends one request, and observes its reply from the client's side. */
import { type Agent, type RequestOptions, request } from 'node:http'

/** The reply as its client observed it. */
export interface Observed {
  status: number
  /** The header `Sluice-Degraded`. */
  mark?: string
  /** The type of problem details. */
  type?: string
  retryAfter?: string
  /** The reply was cut off. */
  isBroken?: true
  /** Time from the first byte sent to the last byte received. */
  ms: number
}

export interface Ask extends Pick<RequestOptions, 'method'> {
  key?: string
  address?: string
  body?: string
  /** The client leaves after this time, even if the reply has begun. */
  leaveAfterMs?: number
}

/** Sends one request over a socket. @throws Error if the connection breaks before a status arrives */
export function exchange(
  agent: Agent,
  url: string,
  { method = 'GET', key, address, body, leaveAfterMs }: Ask = {},
): Promise<Observed> {
  const headers = { ...(key && { 'x-api-key': key }), ...(address && { 'cf-connecting-ip': address }) }
  const startedAt = performance.now()
  return new Promise((resolve, reject) => {
    const outgoing = request(url, { agent, method, headers }, response => {
      const chunks: Buffer[] = []
      response.on('data', chunk => chunks.push(chunk))
      const end = () => {
        const text = Buffer.concat(chunks).toString()
        const {
          'content-type': kind = '',
          'sluice-degraded': mark,
          'retry-after': retryAfter,
        } = response.headers
        const isProblem = kind.startsWith('application/problem+json')
        resolve({
          status: response.statusCode!,
          ms: performance.now() - startedAt,
          ...(mark !== undefined && { mark: String(mark) }),
          ...(retryAfter !== undefined && { retryAfter }),
          ...(!response.complete && { isBroken: true as const }),
          ...(isProblem && { type: (JSON.parse(text) as { type: string }).type }),
        })
      }
      response.on('end', end)
      response.on('error', end)
    })
    outgoing.on('error', reject)
    outgoing.end(body)
    if (leaveAfterMs !== undefined) setTimeout(() => outgoing.destroy(), leaveAfterMs)
  })
}
