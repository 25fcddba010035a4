/**
 * Stands between client and bridge as a long way would: each piece of a TCP stream arrives so much later, in either
 * direction and in order. Connections themselves are opened at once, so only what is sent over one is delayed.
 */

import type { AddressInfo } from 'node:net'
import { connect, createServer, type Socket } from 'node:net'

/** @returns the port of the proxy; it serves until this process ends */
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

/** Timers of one length run in the order in which they were set, so nothing overtakes. */
function carry(from: Socket, to: Socket, delayMs: number): void {
  const later = (act: () => void) => setTimeout(() => !to.destroyed && act(), delayMs)
  from.setNoDelay(true)
  from.on('data', chunk => later(() => to.write(chunk)))
  from.on('end', () => later(() => to.end()))
  from.on('error', () => to.destroy())
}
