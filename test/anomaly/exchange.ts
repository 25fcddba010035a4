/** One request, and what comes back, by the clock of whoever asks. */
import { type Agent, type RequestOptions, request } from 'node:http'

/** What a caller saw. */
export interface Seen {
  status: number
  /** `Sluice-Degraded` */
  mark?: string
  /** Of problem details. */
  type?: string
  retryAfter?: string
  /** It ended before its end. */
  isBroken?: true
  /** From the first byte sent to the last one received. */
  ms: number
}

export interface Ask extends Pick<RequestOptions, 'method'> {
  key?: string
  address?: string
  body?: string
  /** Goes away after so long, whatever comes. */
  leaveAfterMs?: number
}

/** One request over a socket. @throws when it breaks before there is a status */
export function exchange(
  agent: Agent,
  url: string,
  { method = 'GET', key, address, body, leaveAfterMs }: Ask = {},
): Promise<Seen> {
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
