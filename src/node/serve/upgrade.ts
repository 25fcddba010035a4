/**
 * Requests that ask for another protocol (RFC 9110, section 7.8), as the HTTP client of Java does with `Upgrade: h2c`. They are served as
 * HTTP/1.1. Node alone would lose what follows such a request in the same packet.
 */
import type { IncomingMessage, Server } from 'node:http'
import type { Socket } from 'node:net'
import type { Connections } from './connections.ts'

/** Options of the header Connection that belong to an upgrade. */
const OF_UPGRADES = new Set(['upgrade', 'http2-settings'])

/** Connections whose next request asks for a WebSocket. */
const asking = new WeakSet<Socket>()

/** Whether the request asked for a WebSocket. Only the first call for it says so. */
export const asksForWebSocket = ({ socket }: IncomingMessage): boolean => asking.delete(socket)

/** Lets the server read requests that ask for another protocol again, as if they had not asked. */
export function ignoreUpgrades(server: Server, { whenFree }: Pick<Connections, 'whenFree'>): void {
  server.on('upgrade', (request, stream, rest) => {
    const socket = stream as Socket
    // Node has removed its own listener. Without one, a client that breaks off would end the process.
    const onError = () => socket.destroy()
    socket.on('error', onError)
    whenFree(socket, () => {
      socket.off('error', onError)
      if (isWebSocket(request.headers.upgrade)) asking.add(socket)
      if (rest.length > 0) socket.unshift(rest)
      socket.unshift(headWithoutUpgrade(request))
      server.emit('connection', socket)
    })
  })
}

/** @param upgrade a list of protocols */
const isWebSocket = (upgrade = '') =>
  upgrade.split(',').some(protocol => protocol.trim().toLowerCase() === 'websocket')

function headWithoutUpgrade({ method, url, httpVersion, rawHeaders }: IncomingMessage): Buffer {
  const lines = [`${method} ${url} HTTP/${httpVersion}`]
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const [name, value] = [rawHeaders[i]!, rawHeaders[i + 1]!]
    const lowerCase = name.toLowerCase()
    if (lowerCase === 'connection') lines.push(`${name}: ${withoutUpgrade(value)}`)
    else if (!OF_UPGRADES.has(lowerCase)) lines.push(`${name}: ${value}`)
  }
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1')
}

const withoutUpgrade = (connection: string) =>
  connection
    .split(',')
    .filter(option => !OF_UPGRADES.has(option.trim().toLowerCase()))
    .join(',')
