/** The process of the origin: a short reply, at once or after a while. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { childSettings, reportReady } from '../child.ts'

export interface OriginSettings {
  /** How long the work takes (ms). Absent: the reply comes at once. */
  jobMs?: number
}

const { jobMs } = childSettings<OriginSettings>()

const server = createServer((request, response) => {
  request.resume()
  if (jobMs === undefined) response.end('ok')
  else setTimeout(() => response.end('ok'), jobMs)
})
server.listen(0, '127.0.0.1', () =>
  reportReady({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }),
)
