/** The faults of the origin, and the reply that the caller gets for each. */
import type { TcpFault } from '../support/fault-proxy.ts'

export interface OriginFault {
  name: string
  /** Absent: the origin does not listen. */
  fault?: TcpFault
  /** The status that the caller gets. */
  status: number
  /** The reply is cut off, and the caller can detect it. */
  isBroken?: true
}

/** The headers and a part of the body. */
const cut = (bytes: Buffer) => bytes.subarray(0, bytes.indexOf('\r\n\r\n') + 14)

const says = (text: string): TcpFault => ({ request: client => void client.end(text) })

export const ORIGIN_FAULTS: readonly OriginFault[] = [
  { name: 'refuses connections', status: 502 },
  { name: 'hangs', fault: { request: () => {} }, status: 504 },
  { name: 'closes the connection', fault: { request: client => client.end() }, status: 502 },
  { name: 'resets the connection', fault: { request: client => client.resetAndDestroy() }, status: 502 },
  {
    name: 'resets the connection in the middle of the headers',
    fault: {
      reply: (client, bytes) => {
        client.write(bytes.subarray(0, 30), () => client.resetAndDestroy())
      },
    },
    status: 502,
  },
  {
    name: 'hangs in the middle of the headers',
    fault: { reply: (client, bytes) => void client.write(bytes.subarray(0, 30)) },
    status: 504,
  },
  {
    name: 'resets in the middle of the body',
    fault: {
      reply: (client, bytes) => {
        client.write(cut(bytes), () => client.resetAndDestroy())
      },
    },
    status: 200,
    isBroken: true,
  },
  {
    name: 'closes in the middle of the body',
    fault: { reply: (client, bytes) => void client.end(cut(bytes)) },
    status: 200,
    isBroken: true,
  },
  { name: 'speaks another protocol', fault: says('+PONG\r\n'), status: 502 },
  { name: 'answers 500', fault: says('HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n'), status: 500 },
  { name: 'answers 503', fault: says('HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n'), status: 503 },
  {
    name: 'sends its reply slowly, within the deadline',
    fault: {
      reply: async (client, bytes) => {
        for (let sent = 0; sent < bytes.length; sent += 100) {
          await new Promise(resolve => setTimeout(resolve, 20))
          client.write(bytes.subarray(sent, sent + 100))
        }
      },
    },
    status: 200,
  },
]
