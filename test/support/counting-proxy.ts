/** A proxy that counts HTTP requests. Tests can replace forwarding with a fault. */
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  request,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo } from 'node:net'
import { listen } from './listen.ts'

/** @param passOn forwards the request normally. If `reply` is given, it handles the answer instead of the proxy. */
export type Fault = (
  request: IncomingMessage,
  response: ServerResponse,
  passOn: (reply?: (answer: IncomingMessage, response: ServerResponse) => void) => void,
) => void

/** The bodies of a request and of its reply. */
export interface Exchanged {
  request: string
  reply: string
  /** When the request was forwarded (ms since the epoch). */
  sentAt: number
}

export interface CountingProxy {
  url: string
  /** Requests since the last call. */
  count(): number
  /** When the last request has arrived, by performance.now(). */
  lastAt(): number
  /** Requests whose client did not wait for the whole reply, since the start. */
  abandoned(): number
  /** Replaces the forwarding of requests. */
  fault: Fault | undefined
  /**
   * Counts a request that is answered without HTTP.
   * @returns false if it has to be sent over HTTP instead, for a fault or a watch, or because nothing listens
   */
  countInProcess(): boolean
  /** Called with each request that is forwarded normally, or by a fault, when its reply has arrived here. */
  watch: ((exchanged: Exchanged) => void) | undefined
  /** Stops listening, and cuts every connection. */
  shut(): Promise<void>
  /** Listens again, on the same port. */
  open(): Promise<void>
  close(): Promise<void>
}

/** @param listener of the target, in this process: it then answers requests itself, unless `watch` or a fault needs the reply */
export async function startCountingProxy(target: string, listener?: RequestListener): Promise<CountingProxy> {
  let requests = 0
  let abandoned = 0
  let lastAt = Number.NEGATIVE_INFINITY
  const proxy: CountingProxy = {
    url: '',
    fault: undefined,
    watch: undefined,
    countInProcess() {
      if (proxy.fault || proxy.watch || !server.listening) return false
      countArrival()
      return true
    },
    count() {
      const counted = requests
      requests = 0
      return counted
    },
    lastAt: () => lastAt,
    abandoned: () => abandoned,
    shut: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
    open: () => listen(server, Number(new URL(proxy.url).port)),
    close: () => proxy.shut(),
  }
  const countArrival = () => {
    requests += 1
    lastAt = performance.now()
  }
  const server = createServer((incoming, response) => {
    countArrival()
    response.once('close', () => {
      if (!response.writableFinished) abandoned += 1
    })
    if (proxy.fault) proxy.fault(incoming, response, reply => passOn(incoming, response, reply))
    else passOn(incoming, response)
  })
  // Longer than any test, so that no connection is closed at the moment at which a request arrives.
  server.keepAliveTimeout = 600_000

  function passOn(
    incoming: IncomingMessage,
    response: ServerResponse,
    reply: (answer: IncomingMessage, response: ServerResponse) => void = forward,
  ): void {
    const { watch } = proxy
    if (listener && !watch && reply === forward) return void listener(incoming, response)
    const { method, headers, url } = incoming
    const sentAt = Date.now()
    const sent: Buffer[] = []
    if (watch) incoming.on('data', chunk => sent.push(chunk))
    const outgoing = request(target + url, { method: method!, headers }, answer => {
      const received: Buffer[] = []
      if (watch) {
        answer.on('data', chunk => received.push(chunk))
        answer.on('end', () => watch({ request: textOf(sent), reply: textOf(received), sentAt }))
      }
      reply(answer, response)
    })
    outgoing.on('error', () => response.destroy())
    incoming.pipe(outgoing)
  }

  await listen(server, 0)
  proxy.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return proxy
}

function forward(answer: IncomingMessage, response: ServerResponse): void {
  response.writeHead(answer.statusCode!, answer.headers)
  answer.pipe(response)
}

const textOf = (chunks: readonly Buffer[]) => String(Buffer.concat(chunks))
