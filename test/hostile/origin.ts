/** An origin that records every request and answers with any bytes. By default it echoes the token of the request that it answers. */

import type { AddressInfo } from 'node:net'
import { createServer, type Socket } from 'node:net'
import { listen } from '../support/listen.ts'
import { type Step, takeSteps } from './steps.ts'
import { MalformedMessage, type Message, readMessage } from './wire.ts'

export interface Seen {
  method: string
  target: string
  /** The last part of the path. */
  token: string
  headers: Message['headers']
  body: string
  /** Counted from 1. */
  connection: number
  /** 1: the first request on its connection. */
  nth: number
}

/** The answer to requests whose path ends with `/<route>/<token>`. */
export interface Route {
  steps(request: Seen): Iterable<Step>
  /** What the answer waits for. */
  until?(request: Seen): Promise<void>
  /** Answers when the head has arrived, and does not wait for the body. */
  isEarly?: boolean
}

export interface HostileOrigin {
  url: string
  /** Requests whose head has arrived, oldest first. */
  seen: Seen[]
  routes: Map<string, Route>
  /** What the gateway has sent against RFC 9112. */
  malformed: string[]
  /** Written to the next connection as soon as it opens. */
  greeting: string | undefined
  /** The next request on these connections closes them. */
  closesOnNext: Map<number, (socket: Socket) => void>
  connections(): number
  /** Closes all connections, and waits until the gateway has closed them. */
  reset(): Promise<void>
  close(): Promise<void>
}

/** A whole reply. @param extra lines, each with its line end */
export const reply = (body: string, extra = '', status = '200 OK') =>
  `HTTP/1.1 ${status}\r\nContent-Length: ${body.length}\r\n${extra}\r\n${body}`

export const echo = ({ method, token }: Pick<Seen, 'method' | 'token'>, extra = '') => {
  const whole = reply(`echo ${token}`, `X-Echo: ${token}\r\n${extra}`)
  return method === 'HEAD' ? whole.slice(0, whole.indexOf('\r\n\r\n') + 4) : whole
}

/** The time in which a gateway closes its end of a connection (ms). */
const RESET_MS = 100

export async function startHostileOrigin(): Promise<HostileOrigin> {
  const sockets = new Set<Socket>()
  let connections = 0
  const server = createServer({ allowHalfOpen: true, noDelay: true }, socket => {
    const connection = ++connections
    sockets.add(socket)
    socket.on('error', () => {})
    socket.on('close', () => sockets.delete(socket))
    socket.on('end', () => socket.end())
    if (origin.greeting) socket.write(origin.greeting, 'latin1')
    origin.greeting = undefined
    let [bytes, nth] = ['', 0]
    let current: Seen | undefined
    let isAnswered = false
    /** As most servers, it answers one request after the other. */
    let turn = Promise.resolve()

    function answer(request: Seen, route: Route | undefined): void {
      isAnswered = true
      const cut = origin.closesOnNext.get(connection)
      turn = turn.then(async () => {
        await route?.until?.(request)
        if (cut) cut(socket)
        else await takeSteps(socket, route ? route.steps(request) : [echo(request)])
      })
    }
    socket.on('data', chunk => {
      bytes += chunk.toString('latin1')
      try {
        for (;;) {
          const message = readMessage(bytes)
          if (!message) return
          const [method = '', target = ''] = message.start.split(' ')
          const { pathname } = new URL(target, 'http://origin')
          const parts = pathname.split('/')
          const route = origin.routes.get(parts.at(-2)!)
          const { headers, body } = message
          if (!current) {
            current = { method, target, token: parts.at(-1)!, headers, body, connection, nth: ++nth }
            origin.seen.push(current)
          }
          current.body = body
          if (!isAnswered && (message.isWhole || route?.isEarly)) answer(current, route)
          if (!message.isWhole) return
          bytes = bytes.slice(message.length)
          current = undefined
          isAnswered = false
        }
      } catch (error) {
        if (!(error instanceof MalformedMessage)) throw error
        origin.malformed.push(`${error.message}, at the start of ${JSON.stringify(bytes.slice(0, 200))}`)
        socket.destroy()
      }
    })
  })
  await listen(server, 0)
  const origin: HostileOrigin = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    ...{ seen: [], routes: new Map(), malformed: [], greeting: undefined, closesOnNext: new Map() },
    connections: () => sockets.size,
    async reset() {
      origin.greeting = undefined
      const open = [...sockets]
      const closed = open.map(socket => new Promise(resolve => socket.once('close', resolve)))
      for (const socket of open) socket.end()
      // Some gateways leave the other direction of a broken connection open.
      const timer = setTimeout(() => {
        for (const socket of open) socket.destroy()
      }, RESET_MS)
      await Promise.all(closed)
      clearTimeout(timer)
    },
    close: () =>
      new Promise(resolve => {
        for (const socket of sockets) socket.destroy()
        server.close(() => resolve())
      }),
  }
  return origin
}
