/** Ports for servers that cannot choose a free port themselves and report it. */
import { once } from 'node:events'
import { createServer } from 'node:net'

/** Below the ports that the kernel assigns to connections and to servers on port 0 (32768 and up on Linux). */
const FIRST_PORT = 10_000
/** Ports in the block of each process of the test run, so that two processes do not choose the same port at the same time. */
const PORTS = 1000
const BLOCKS = 20

const block = FIRST_PORT + (Number(process.env.VITEST_POOL_ID ?? 0) % BLOCKS) * PORTS
// A random start, because a server of the previous run may still use a port.
let next = Math.floor(Math.random() * PORTS)

/** @returns a port of 127.0.0.1 that was free a moment ago, a different one at each call */
export async function freePort(): Promise<number> {
  for (let left = PORTS; left > 0; left--) {
    const port = block + (next++ % PORTS)
    const server = createServer().listen(port, '127.0.0.1')
    // Rejects if the port is taken.
    const isFree = await once(server, 'listening').then(
      () => true,
      () => false,
    )
    if (!isFree) continue
    server.close()
    await once(server, 'close')
    return port
  }
  throw new Error(`All ports from ${block} to ${block + PORTS - 1} are taken.`)
}
