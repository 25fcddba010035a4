/**
 * Spoils what goes over real sockets: the n-th call, or every call, while all others pass. Of HTTP it does so in the
 * counting proxy; of everything else (Redis' protocol, an origin's bytes) in a proxy for TCP that reads nothing.
 */
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import type { CountingProxy, Fault } from './counting-proxy.ts'
import { listen } from './listen.ts'

/** Which calls fail, counted from 1. */
export type When = (n: number) => boolean

/** How a fault went. */
export interface Armed {
  /** Calls since then, those that pass included. */
  calls(): number
  /** Calls that failed. */
  spoiled(): number
  /** When the last one did, by performance.now(). */
  lastAt(): number
  /** To be called before each request of a caller, where the fault is no matter of a single call. */
  before?(): Promise<void>
  /** From here on everything passes. */
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

/** Spoils the HTTP requests that are due. */
export function armHttp(proxy: CountingProxy, fault: Fault, when: When): Armed {
  const counter = new Counter(when)
  proxy.fault = (request, response, passOn) => {
    if (counter.next()) fault(request, response, passOn)
    else passOn()
  }
  return counter
}

/** Nobody listens while a request is under way that is due. */
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
  /** In the place of sending it to the target: what to do with the connection, or what to answer. */
  request?: (client: Socket) => void
  /** What is sent in its place, so that the reply to that comes in its turn. */
  instead?: Buffer
  /** It was sent: what is done with the first bytes that come back. Those that follow wait until it is done. */
  reply?: (client: Socket, bytes: Buffer) => void | Promise<void>
}

export interface TcpProxy {
  port: number
  /** Where new connections go: a port, or a socket of this machine. */
  target: Target
  arm(fault: TcpFault, when: When): Armed
  /** Stops all that is under way, both ways, as when a machine freezes. */
  freeze(): void
  thaw(): void
  /** Cuts every connection, with a reset. */
  cut(): void
  /** Nobody listens any more, and every connection is cut. */
  shut(): Promise<void>
  /** Listens again, where it did. */
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
 * @param endOf where the first message ends, 0 if it is not all there: calls are counted by it. Absent: what comes in one
 * piece is one.
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
    // Nothing overtakes what is being spoiled.
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
      // The far end follows.
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
