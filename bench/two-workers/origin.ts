/** The process of the origin. It counts requests by caller and second. Redis uses the same clock. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { handleCommands, reportReady } from '../child.ts'

/** The requests of one caller since the last command of the benchmark. */
export interface Seen {
  total: number
  mostInOneSecond: number
  /** Seconds in which it has received requests of the caller. */
  seconds: number
}

let counts = new Map<string, Map<number, number>>()
const server = createServer((request, response) => {
  const caller = String(request.headers['x-consumer-id'])
  const seconds = counts.get(caller) ?? new Map<number, number>()
  const second = Math.floor(Date.now() / 1000)
  counts.set(caller, seconds.set(second, (seconds.get(second) ?? 0) + 1))
  response.writeHead(200, { 'content-type': 'text/plain', 'content-length': 3 }).end('ok\n')
})
// Longer than any run, so that no connection is closed at the moment at which a request arrives.
server.keepAliveTimeout = 600_000
await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))

handleCommands((): Record<string, Seen> => {
  const seen: Record<string, Seen> = {}
  for (const [caller, seconds] of counts) {
    const each = [...seconds.values()]
    seen[caller] = {
      total: each.reduce((sum, count) => sum + count, 0),
      mostInOneSecond: Math.max(...each),
      seconds: each.length,
    }
  }
  counts = new Map()
  return seen
})
reportReady({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` })
