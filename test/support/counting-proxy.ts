/** Passes HTTP requests on and counts them; a fault can be put in its place. */
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface CountingProxy {
  url: string
  /** Requests since the last call. */
  count(): number
  /** What happens to requests instead of being passed on. */
  fault: ((request: IncomingMessage, response: ServerResponse) => void) | undefined
  close(): Promise<void>
}

export async function startCountingProxy(target: string): Promise<CountingProxy> {
  let requests = 0
  const proxy: CountingProxy = {
    url: '',
    fault: undefined,
    count() {
      const counted = requests
      requests = 0
      return counted
    },
    close: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
  const server = createServer((incoming, response) => {
    requests += 1
    if (proxy.fault) return proxy.fault(incoming, response)
    const { method, headers, url } = incoming
    const outgoing = request(target + url, { method: method!, headers }, answer => {
      response.writeHead(answer.statusCode!, answer.headers)
      answer.pipe(response)
    })
    outgoing.on('error', () => response.destroy())
    incoming.pipe(outgoing)
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  proxy.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return proxy
}
