/**
 * A TCP proxy that simulates distance between client and bridge: it delays each chunk of a stream, in both directions and in order.
 * Connections are opened without delay.
 */

import type { AddressInfo } from 'node:net'
import { connect, createServer, type Socket } from 'node:net'

/** Starts a proxy that runs until this process ends. @returns its port */
export async function startDelayProxy(targetPort: number, eachWayMs: number): Promise<number> {
  const server = createServer(client => {
    const target = connect(targetPort, '127.0.0.1')
    carry(client, target, eachWayMs)
    carry(target, client, eachWayMs)
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', resolve)
  })
  return (server.address() as AddressInfo).port
}

/** Forwards a stream with a delay. Timers with the same delay fire in the order in which they were set, so the order is kept. */
function carry(from: Socket, to: Socket, delayMs: number): void {
  const later = (act: () => void) => setTimeout(() => !to.destroyed && act(), delayMs)
  from.setNoDelay(true)
  from.on('data', chunk => later(() => to.write(chunk)))
  from.on('end', () => later(() => to.end()))
  from.on('error', () => to.destroy())
}
