/**
 * The body of a request on its way to the origin. Its first bytes are kept, so that it can be sent a second time if the origin has closed
 * the connection before it read them.
 */
import { Readable } from 'node:stream'

/** The bytes that are kept at most. */
const MAX_KEPT = 65_536

export class RequestBody {
  readonly #source: Readable
  #kept: Buffer[] | undefined = []
  #keptBytes = 0
  #isStarted = false
  #isWhole = false
  /** Where the bytes go. */
  #reader: Readable | undefined

  /** @param source flows only while the body is read; not destroyed, because a client whose body is not wanted gets a reply */
  constructor(source: Readable) {
    this.#source = source
  }

  /** Whether all bytes have been passed on. */
  get isWhole(): boolean {
    return this.#isWhole
  }

  /** Whether everything that was passed on is still known. */
  get canRepeat(): boolean {
    return this.#kept !== undefined
  }

  /** The body from its first byte on. Only the last one that was opened gets bytes. It fails if the client breaks off. */
  open(): Readable {
    const reader = new Readable({
      read: () => void this.#source.resume(),
      destroy: (error, done) => {
        if (this.#reader === reader) this.#reader = undefined
        this.#source.pause()
        done(error)
      },
    })
    // undici listens only while it handles the request. Without a listener, a client that breaks off later would end the process.
    reader.on('error', () => {})
    this.#reader = reader
    for (const chunk of this.#kept ?? []) reader.push(chunk)
    if (this.#isWhole) reader.push(null)
    else if (!this.#isStarted) this.#start()
    else if (this.#source.destroyed) this.#breakOff()
    return reader
  }

  /** Skips the rest, so that a client that sends its body to the end gets its reply. */
  discard(): void {
    this.#reader?.destroy()
    this.#source.resume()
  }

  #start(): void {
    this.#isStarted = true
    const source = this.#source
    // The client has left before the request was decided.
    if (source.destroyed && !source.readableEnded) {
      this.#breakOff()
      return
    }
    source.on('data', chunk => this.#pass(chunk))
    source.once('end', () => {
      this.#isWhole = true
      this.#reader?.push(null)
    })
    source.once('error', () => this.#breakOff())
    source.once('close', () => {
      if (!this.#isWhole) this.#breakOff()
    })
  }

  #pass(chunk: Buffer): void {
    this.#keptBytes += chunk.length
    if (this.#keptBytes > MAX_KEPT) this.#kept = undefined
    else this.#kept?.push(chunk)
    if (this.#reader && !this.#reader.push(chunk)) this.#source.pause()
  }

  #breakOff(): void {
    this.#reader?.destroy(new Error('The client has broken off the body of its request.'))
  }
}
