/** A process with the origin: it counts requests by the `X-Caller` header, which each client of the benchmark sends. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { answerQuestions, sayReady } from '../child.ts'

/** Requests by caller since the last question. */
export type OriginCounts = Record<string, number>

let counts: OriginCounts = {}
const server = createServer((request, response) => {
  const caller = request.headers['x-caller']
  if (typeof caller === 'string') counts[caller] = (counts[caller] ?? 0) + 1
  response.writeHead(200, { 'content-type': 'text/plain', 'content-length': 3 }).end('ok\n')
})
// Longer than any run lasts: a connection must not be closed under a request that comes just then.
server.keepAliveTimeout = 600_000
await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))

answerQuestions((): OriginCounts => {
  const counted = counts
  counts = {}
  return counted
})
sayReady({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` })
