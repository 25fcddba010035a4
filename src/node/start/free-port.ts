/** Finds ports for `npm start`, so that it also runs beside another one. */
import { createServer } from 'node:net'

/** Ports that are tried from the wanted one on. */
const TRIED = 50

/**
 * Finds the first free port from each wanted one on. Each is another one.
 * @param isFree tests pass their own
 * @returns the wanted port where none of those after it is free; to listen on it then fails with an error that says so
 */
export async function freePorts(
  wanted: readonly number[],
  isFree: (port: number) => Promise<boolean> = isFreePort,
): Promise<number[]> {
  const found: number[] = []
  for (const first of wanted) {
    let port = first
    while (port < first + TRIED && (found.includes(port) || !(await isFree(port)))) port++
    found.push(port < first + TRIED ? port : first)
  }
  return found
}

function isFreePort(port: number): Promise<boolean> {
  return new Promise(resolve => {
    const server = createServer()
    server.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code !== 'EADDRINUSE'))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })
}
