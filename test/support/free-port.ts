/** Ports for servers that cannot be told to take any port and then say which one it is. */
import { once } from 'node:events'
import { createServer } from 'node:net'

/** Below the ports that the kernel gives to connections and to servers on port 0 (32768 and up on Linux). */
const FIRST_PORT = 10_000
/** A block of ports for each process of the test run: two of them do not choose the same one at the same time. */
const PORTS = 1000
const BLOCKS = 20

const block = FIRST_PORT + (Number(process.env.VITEST_POOL_ID ?? 0) % BLOCKS) * PORTS
// Elsewhere in each run: a server of the run before may have a port still.
let next = Math.floor(Math.random() * PORTS)

/** @returns a port of 127.0.0.1 that was free a moment ago, another one each time */
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
