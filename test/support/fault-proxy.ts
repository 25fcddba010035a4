/**
 * Injects faults into calls over real sockets. Each test selects the calls that fail, for example the n-th call or every call. The other
 * calls pass. HTTP calls go through the counting proxy. Calls to Redis and the connections of an origin go through a TCP proxy, which only
 * finds where each call ends.
 */
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import type { CountingProxy, Fault } from './counting-proxy.ts'
import { listen } from './listen.ts'

/** Which calls fail, counted from 1. */
export type When = (n: number) => boolean

/** An active fault. */
export interface Armed {
  /** Number of calls since it is active, including those that pass. */
  calls(): number
  /** Number of calls that failed. */
  spoiled(): number
  /** Time of the last call that failed, by performance.now(). */
  lastAt(): number
  /** Present if the fault closes the listening socket. Must then be called before each request of a caller. */
  before?(): Promise<void>
  /** Ends the fault: all further calls pass. */
  disarm(): Promise<void>
}

class Counter implements Armed {
  #calls = 0
  #spoiled = 0
  #lastAt = 0
  #isArmed = true
  readonly #when: When

  constructor(when: When) {
    this.#when = when
  }

  /** @returns whether the next call fails */
  next(): boolean {
    if (!this.#isArmed) return false
    this.#calls += 1
    if (!this.#when(this.#calls)) return false
    this.#spoiled += 1
    this.#lastAt = performance.now()
    return true
  }

  calls = () => this.#calls
  spoiled = () => this.#spoiled
  lastAt = () => this.#lastAt
  disarm = async () => {
    this.#isArmed = false
  }
}

/** Applies a fault to the HTTP requests that `when` selects. */
export function armHttp(proxy: CountingProxy, fault: Fault, when: When): Armed {
  const counter = new Counter(when)
  proxy.fault = (request, response, passOn) => {
    if (counter.next()) fault(request, response, passOn)
    else passOn()
  }
  return counter
}

/** Stops listening during the requests that `when` selects. */
export function armShut(door: { shut(): Promise<void>; open(): Promise<void> }, when: When): Armed {
  const counter = new Counter(when)
  let isShut = false
  const open = async () => {
    if (isShut) await door.open()
    isShut = false
  }
  return {
    calls: counter.calls,
    spoiled: counter.spoiled,
    lastAt: counter.lastAt,
    async before() {
      const isDue = counter.next()
      if (isDue && !isShut) await door.shut()
      if (isDue) isShut = true
      else await open()
    },
    async disarm() {
      counter.disarm()
      await open()
    },
  }
}

export interface TcpFault {
  /** Replaces sending the request to the target: closes the connection, or answers. */
  request?: (client: Socket) => void
  /** Is sent instead of the request, so that its reply arrives in the right order. */
  instead?: Buffer
  /** The request is sent. Handles the first bytes of the reply; further bytes wait until it is done. */
  reply?: (client: Socket, bytes: Buffer) => void | Promise<void>
}

export interface TcpProxy {
  port: number
  /** The target of new connections: a port, or a socket of this machine. */
  target: Target
  arm(fault: TcpFault, when: When): Armed
  /** Stops all traffic in both directions, as when a machine freezes. */
  freeze(): void
  thaw(): void
  /** Resets every connection. */
  cut(): void
  /** Stops listening, and resets every connection. */
  shut(): Promise<void>
  /** Listens again, on the same port. */
  open(): Promise<void>
  close(): Promise<void>
}

export type Target = { port: number; host: string } | { path: string }

/** @param url `http://host:port`, `redis://host:port` or `unix:///path` */
export function targetOf(url: string): Target {
  const { protocol, hostname, port, pathname } = new URL(url)
  return protocol === 'unix:' ? { path: pathname } : { host: hostname, port: Number(port) }
}

/**
 * @param endOf finds the end of the first message, or 0 if the message is incomplete. Each message is one call. Default: each chunk is
 * one message.
 */
export async function startTcpProxy(
  target: Target,
  endOf: (bytes: Buffer) => number = bytes => bytes.length,
): Promise<TcpProxy> {
  const sockets = new Set<Socket>()
  const clients = new Set<Socket>()
  let armed: { fault: TcpFault; counter: Counter } | undefined
  let isFrozen = false

  const server = createServer({ noDelay: true }, client => {
    const far = connect(proxy.target)
    clients.add(client)
    client.on('close', () => clients.delete(client))
    let spoil: TcpFault['reply']
    // Set while a fault handles a reply. Later bytes wait for it.
    let spoiling: Promise<void> | undefined
    let coming: Buffer = Buffer.alloc(0)
    for (const [socket, other] of [
      [client, far],
      [far, client],
    ] as const) {
      sockets.add(socket)
      socket.on('error', () => other.destroy())
      socket.on('close', () => {
        sockets.delete(socket)
        other.destroy()
      })
      if (isFrozen) socket.pause()
    }
    client.on('data', bytes => {
      coming = Buffer.concat([coming, bytes])
      for (let end = endOf(coming); end > 0; end = endOf(coming)) {
        const message = coming.subarray(0, end)
        coming = coming.subarray(end)
        const fault = armed?.counter.next() ? armed.fault : undefined
        if (fault?.request) fault.request(client)
        else far.write(fault?.instead ?? message)
        if (fault?.reply) spoil = fault.reply
      }
    })
    far.on('data', bytes => {
      const act = spoil
      spoil = undefined
      if (!act && !spoiling) client.write(bytes)
      else
        spoiling = Promise.resolve(spoiling).then(() => (act ? act(client, bytes) : void client.write(bytes)))
    })
  })

  const proxy: TcpProxy = {
    port: 0,
    target,
    arm(fault, when) {
      const counter = new Counter(when)
      armed = { fault, counter }
      return counter
    },
    freeze() {
      isFrozen = true
      for (const socket of sockets) socket.pause()
    },
    thaw() {
      isFrozen = false
      for (const socket of sockets) socket.resume()
    },
    cut() {
      // The connections to the target are closed by their handlers.
      for (const client of clients) client.resetAndDestroy()
    },
    async shut() {
      const closed = new Promise<void>(resolve => server.close(() => resolve()))
      proxy.cut()
      await closed
    },
    open: () => listen(server, proxy.port),
    close: () => proxy.shut(),
  }
  await listen(server, 0)
  proxy.port = (server.address() as AddressInfo).port
  return proxy
}
