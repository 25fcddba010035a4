/** An origin that answers with what it received, so that one sees what the gateway forwards. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface DemoOrigin {
  url: string
  close(): Promise<void>
}

/** @throws with code EADDRINUSE when the port is taken */
export async function startDemoOrigin(port: number): Promise<DemoOrigin> {
  const server = createServer((request, response) => {
    echo(request, response).catch(() => {
      // The client went away in the middle of its request.
      response.destroy()
    })
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, '127.0.0.1', resolve)
  })
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

async function echo(request: IncomingMessage, response: ServerResponse): Promise<void> {
  let bodyBytes = 0
  for await (const chunk of request as AsyncIterable<Buffer>) bodyBytes += chunk.length
  const { pathname, searchParams } = new URL(`http://origin${request.url}`)
  const received = {
    method: request.method,
    path: pathname,
    query: Object.fromEntries(searchParams),
    headers: request.headers,
    body_bytes: bodyBytes,
  }
  response.writeHead(200, { 'content-type': 'application/json' })
  response.end(`${JSON.stringify(received, null, 2)}\n`)
}
