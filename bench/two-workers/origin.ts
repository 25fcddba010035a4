/** A process with the origin: it counts requests by caller, and in each second of the clock that Redis has too. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { answerQuestions, sayReady } from '../child.ts'

/** Of one caller since the last question. */
export interface Seen {
  total: number
  mostInOneSecond: number
  /** In which it has received any. */
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
// Longer than any run lasts: a connection must not be closed under a request that comes just then.
server.keepAliveTimeout = 600_000
await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))

answerQuestions((): Record<string, Seen> => {
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
sayReady({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` })
