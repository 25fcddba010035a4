/** The process of the origin. It counts requests by the `X-Caller` header that clients of the benchmark send. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { handleCommands, reportReady } from '../child.ts'

/** Requests by caller since the last command of the benchmark. */
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

handleCommands((): OriginCounts => {
  const counted = counts
  counts = {}
  return counted
})
reportReady({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` })
