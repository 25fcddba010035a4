/** A TCP proxy that counts the bytes that clients send and receive, with the headers of HTTP. */
import { type AddressInfo, connect, createServer } from 'node:net'

export interface ByteCounter {
  port: number
  /** Bytes since the last call. */
  take(): { sent: number; received: number }
}

/** Starts a proxy that runs until this process ends. */
export async function startByteCounter(targetPort: number): Promise<ByteCounter> {
  let bytes = { sent: 0, received: 0 }
  const server = createServer(client => {
    const target = connect(targetPort, '127.0.0.1')
    client.on('data', chunk => {
      bytes.sent += chunk.length
    })
    target.on('data', chunk => {
      bytes.received += chunk.length
    })
    client.pipe(target)
    target.pipe(client)
    client.on('error', () => target.destroy())
    target.on('error', () => client.destroy())
  })
  server.unref()
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', resolve)
  })
  return {
    port: (server.address() as AddressInfo).port,
    take() {
      const taken = bytes
      bytes = { sent: 0, received: 0 }
      return taken
    },
  }
}
