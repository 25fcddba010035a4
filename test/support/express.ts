/**
 * Stands in for Express, which only examples/express depends on: middleware and routes on a server of node:http. It has what the pages
 * use. test/package runs that example with Express itself.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

type Next = (error?: unknown) => void
type Response = ServerResponse & {
  set(name: string, value: string): Response
  status(code: number): Response
  json(value: unknown): void
  send(text: string): void
}
type Handler = (req: IncomingMessage, res: Response, next: Next) => unknown

const servers: Server[] = []

export default function express() {
  const handlers: Handler[] = []
  return {
    use: (...more: Handler[]) => handlers.push(...more),
    get: (path: string, handler: Handler) =>
      handlers.push((req, res, next) => (req.url === path ? handler(req, res, next) : next())),
    /** Listens on a free port, whatever port the page names. */
    listen(_port: number) {
      const server = createServer((req, plain) => {
        Object.assign(req, { ip: req.socket.remoteAddress, app: { get: () => undefined } })
        const res = Object.assign(plain, {
          set: (name: string, value: string) => plain.setHeader(name, value) as Response,
          status: (code: number) => Object.assign(plain, { statusCode: code }) as Response,
          json: (value: unknown) => plain.end(JSON.stringify(value)),
          send: (text: string) => plain.end(text),
        })
        const runFrom = (i: number, error?: unknown) => {
          const handler = error === undefined ? handlers[i] : undefined
          if (handler) handler(req, res, failure => runFrom(i + 1, failure))
          else res.writeHead(error === undefined ? 404 : 500).end()
        }
        runFrom(0)
      })
      servers.push(server.listen(0, '127.0.0.1'))
    },
  }
}

/** The address of the app that was started last. */
export async function addressOfApp(): Promise<string> {
  const server = servers.at(-1)!
  if (!server.listening) await new Promise(resolve => server.once('listening', resolve))
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
}

export async function closeApps(): Promise<void> {
  for (const server of servers.splice(0)) {
    server.closeAllConnections()
    await new Promise(resolve => server.close(resolve))
  }
}
