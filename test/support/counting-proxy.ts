/** Passes HTTP requests on and counts them; a fault can be put in its place. */
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { listen } from './listen.ts'

/** @param passOn does what happens without a fault; given `reply`, that has the answer in the place of the caller */
export type Fault = (
  request: IncomingMessage,
  response: ServerResponse,
  passOn: (reply?: (answer: IncomingMessage, response: ServerResponse) => void) => void,
) => void

export interface CountingProxy {
  url: string
  /** Requests since the last call. */
  count(): number
  /** What happens to requests instead of being passed on. */
  fault: Fault | undefined
  /** Nobody listens any more, and every connection is cut. */
  shut(): Promise<void>
  /** Listens again, where it did. */
  open(): Promise<void>
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
    shut: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
    open: () => listen(server, Number(new URL(proxy.url).port)),
    close: () => proxy.shut(),
  }
  const server = createServer((incoming, response) => {
    requests += 1
    if (proxy.fault) proxy.fault(incoming, response, reply => passOn(incoming, response, reply))
    else passOn(incoming, response)
  })
  // Longer than any test lasts: it must not close a connection under a request that comes just then.
  server.keepAliveTimeout = 600_000

  function passOn(
    incoming: IncomingMessage,
    response: ServerResponse,
    reply: (answer: IncomingMessage, response: ServerResponse) => void = handOn,
  ): void {
    const { method, headers, url } = incoming
    const outgoing = request(target + url, { method: method!, headers }, answer => reply(answer, response))
    outgoing.on('error', () => response.destroy())
    incoming.pipe(outgoing)
  }

  await listen(server, 0)
  proxy.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return proxy
}

function handOn(answer: IncomingMessage, response: ServerResponse): void {
  response.writeHead(answer.statusCode!, answer.headers)
  answer.pipe(response)
}
