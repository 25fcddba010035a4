/** The process of the origin. It counts requests by the `X-Caller` header that clients of the benchmark send. */
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
// Longer than any run, so that no connection is closed at the moment at which a request arrives.
server.keepAliveTimeout = 600_000
await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))

answerQuestions((): OriginCounts => {
  const counted = counts
  counts = {}
  return counted
})
sayReady({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` })
