/** The process of the origin: a short reply, at once. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { reportReady } from '../child.ts'

const server = createServer((request, response) => {
  request.resume()
  response.end('ok')
})
server.listen(0, '127.0.0.1', () =>
  reportReady({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }),
)
