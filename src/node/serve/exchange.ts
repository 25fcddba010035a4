/** A request of @hono/node-server and its messages of `node:http`. Bodies go from one message to the other, not through web streams. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { bodyStream } from './body-stream.ts'

/** A body that was passed on, so that nothing can read it any more. */
const PASSED_ON = new ReadableStream()

const EXCHANGE = Symbol('exchange')

interface LightRequest extends Request {
  [EXCHANGE]?: Exchange | undefined
}

export class Exchange {
  readonly incoming: IncomingMessage
  readonly outgoing: ServerResponse
  /** Whether the request has a body, also with a method that seldom has one. */
  readonly hasBody: boolean
  /** Whether the client still waits for `100 Continue`. */
  isAwaitingContinue: boolean
  /** Whether the reply may come from the origin. */
  isForwarded = false
  #body: ReadableStream<Uint8Array> | undefined

  /** @param awaitsContinue the client has sent `Expect: 100-continue` */
  constructor(incoming: IncomingMessage, outgoing: ServerResponse, awaitsContinue: boolean) {
    const { headers } = incoming
    this.incoming = incoming
    this.outgoing = outgoing
    this.hasBody = headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
    this.isAwaitingContinue = awaitsContinue
    if (awaitsContinue) incoming.once('resume', () => this.#beginBody())
  }

  /** Created when it is first used. */
  get body(): ReadableStream<Uint8Array> | null {
    if (!this.hasBody) return null
    // Cancelling it leaves the connection open for the reply. After that, the rest is skipped.
    this.#body ??= bodyStream(
      this.incoming,
      () => this.#beginBody(),
      () => {},
    )
    return this.#body
  }

  /** Takes the body, to pass it on. @throws TypeError if something has read it before */
  takeBody(): IncomingMessage {
    const { incoming } = this
    if (this.isRead) throw new TypeError('The body was read before it was passed on.')
    this.#body = PASSED_ON
    this.#beginBody()
    return incoming
  }

  /** @returns all of the body; undefined if it has not arrived whole @throws TypeError if something has read it before */
  async readArrived(): Promise<ArrayBuffer | undefined> {
    // A body in the same packet is parsed after the head.
    await undefined
    if (this.isRead) throw new TypeError('The body was read before.')
    const { incoming } = this
    if (!incoming.complete || incoming.destroyed) return undefined
    const chunk: Buffer | null = incoming.read()
    return chunk ? new Uint8Array(chunk).buffer : new ArrayBuffer()
  }

  /** Whether something has begun to read the body. */
  get isRead(): boolean {
    const { incoming } = this
    return (this.#body?.locked ?? false) || incoming.readableDidRead || incoming.listenerCount('readable') > 0
  }

  /** Lets a client that awaits `100 Continue` send its body. */
  #beginBody(): void {
    if (!this.isAwaitingContinue) return
    this.isAwaitingContinue = false
    if (!this.outgoing.headersSent) this.outgoing.writeContinue()
  }
}

/** The exchange of a request. Undefined for a copy of it. */
export const exchangeOf = (request: LightRequest): Exchange | undefined => request[EXCHANGE]

/** Remembers the messages of a request. From then on, its body is that of the exchange. */
export function openExchange(request: LightRequest, exchange: Exchange): void {
  request[EXCHANGE] = exchange
  Object.setPrototypeOf(request, prototypeFor(Object.getPrototypeOf(request)))
}

const prototypes = new WeakMap<object, object>()

/** All requests of @hono/node-server have one prototype, and with an exchange another one. */
function prototypeFor(original: Request): object {
  let prototype = prototypes.get(original)
  if (!prototype) {
    prototype = Object.create(original, withExchange(original))
    prototypes.set(original, prototype!)
  }
  return prototype!
}

/** Replaces what reads the body, because @hono/node-server would create a second request for it. */
const withExchange = (original: Request) => ({
  body: {
    get(this: LightRequest) {
      const exchange = this[EXCHANGE]
      return exchange ? exchange.body : Reflect.get(original, 'body', this)
    },
  },
  // Both copies read a body that @hono/node-server makes.
  clone: {
    value(this: LightRequest) {
      const exchange = this[EXCHANGE]
      if (exchange) exchange.isForwarded = true
      this[EXCHANGE] = undefined
      return original.clone.call(this)
    },
  },
  arrayBuffer: {
    async value(this: LightRequest) {
      return (await this[EXCHANGE]?.readArrived()) ?? (await original.arrayBuffer.call(this))
    },
  },
})
