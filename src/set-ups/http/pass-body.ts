/**
 * Passes the body of a reply on to the client, and cuts it off when it has been silent for too long. While the origin sends nothing,
 * workerd does not detect a client that leaves with an ordinary FIN, and the request would hold its units for ever.
 */
import type { Timer } from '../../clock.ts'

/** Native streams of workerd: bytes pass through them without running JavaScript. Node has none. */
declare const IdentityTransformStream: (new () => TransformStream) | undefined
declare const FixedLengthStream: new (length: number) => TransformStream

export const isWorkerd = () => typeof IdentityTransformStream !== 'undefined'

export interface PassOptions {
  /** The length of the body in bytes; undefined if it is not known. */
  length: number | undefined
  /** Absent: only a failing stream shows that the client has left. */
  clientGone: AbortSignal | undefined
  /** How long the body may be silent (ms). */
  idleMs: number
  timer: Timer
  /** Default: chunks are passed on as they are. */
  pump?: Pump | undefined
}

/** Passes on a body. Then it is passed on chunk by chunk also if it has a length. */
export interface Pump {
  /** The length of the body is not that of what is sent. */
  changesBytes: boolean
  /** Like `pipeTo`. Calls `onChunk` after each chunk. @throws if either side fails, or if the signal fires */
  run(reader: BodyReader, writable: WritableStream, signal: AbortSignal, onChunk: () => void): Promise<void>
}

/** Why the signal of a pump fires if the body has been silent. */
export const IDLE = new Error('The body was silent.')

/** `idle`: the body was cut off because it was silent. */
export type PassResult = 'complete' | 'cancelled' | 'failed' | 'idle'

/** A body of known length gets this much time in addition: a second for each kB. */
const MS_PER_BYTE = 1

/** Silence is detected after one to one and a quarter times the limit. */
const CHECKS = 4

/** A body that is being passed on. */
export interface PassedBody {
  /** What the client reads. */
  readable: ReadableStream
  /** Resolves when the body has ended. Never rejects. */
  passed: Promise<PassResult>
}

/**
 * Passes on a body.
 *
 * In workerd, the platform pipes a body with a length, and no code here sees its bytes. So such a body gets as much time as its length
 * may need. Other bodies are passed on here, chunk by chunk.
 */
export function passBody(body: ReadableStream, options: PassOptions): PassedBody {
  const { clientGone, pump } = options
  const length = pump?.changesBytes ? undefined : options.length
  const idle = new AbortController()
  const signal = clientGone ? AbortSignal.any([clientGone, idle.signal]) : idle.signal
  const { readable, writable } = createPassThrough(length, signal)
  return { readable, passed: pass(body, writable, { ...options, length }, signal, idle) }
}

/** With a known length, the client still gets Content-Length instead of chunks. */
function createPassThrough(length: number | undefined, signal: AbortSignal): TransformStream {
  if (typeof IdentityTransformStream !== 'undefined') {
    return length === undefined ? new IdentityTransformStream() : new FixedLengthStream(length)
  }
  return new TransformStream({
    start(controller) {
      // A chunk that is being written waits until it is read, also if the signal fires. If nothing reads any more, that would never end.
      const breakOff = () => controller.error(signal.reason)
      if (signal.aborted) breakOff()
      else signal.addEventListener('abort', breakOff, { once: true })
    },
  })
}

async function pass(
  body: ReadableStream,
  writable: WritableStream,
  { length, clientGone, idleMs, timer, pump }: PassOptions,
  signal: AbortSignal,
  idle: AbortController,
): Promise<PassResult> {
  let silentChecks = 0
  const isPiped = length !== undefined && !pump
  const startTimer = () =>
    isPiped
      ? timer(idleMs + length * MS_PER_BYTE, () => idle.abort(IDLE), true)
      : timer(idleMs / CHECKS, check, true)
  let cancelTimer = () => {}
  function check() {
    silentChecks += 1
    if (silentChecks > CHECKS) idle.abort(IDLE)
    else cancelTimer = startTimer()
  }

  const reader = isPiped ? undefined : readerOf(body)
  try {
    cancelTimer = startTimer()
    if (!reader) await body.pipeTo(writable, { signal })
    else {
      await (pump?.run ?? passChunks)(reader, writable, signal, () => {
        silentChecks = 0
      })
    }
    return 'complete'
  } catch {
    // Either end may have broken. A body that failed itself refuses to be cancelled, with the reason of its failure.
    const didBodyFail = await (reader ?? body).cancel().then(
      () => false,
      () => true,
    )
    if (idle.signal.aborted) return 'idle'
    // In workerd the body has failed in both cases.
    return clientGone?.aborted || !didBodyFail ? 'cancelled' : 'failed'
  } finally {
    cancelTimer()
  }
}

/** Reads a body chunk by chunk. */
export interface BodyReader {
  read(): Promise<{ done: boolean; value?: Uint8Array | undefined }>
  cancel(): Promise<void>
}

/** Like `pipeTo`. Calls `onChunk` after each chunk. @throws if either side fails, or if the signal fires */
async function passChunks(
  reader: BodyReader,
  writable: WritableStream,
  signal: AbortSignal,
  onChunk: () => void,
): Promise<void> {
  const writer = writable.getWriter()
  let stopped: unknown
  /** Ends a read or a write that is pending. */
  const stop = (reason: unknown) => {
    stopped ??= reason ?? new Error('stopped')
    reader.cancel().catch(() => {})
    writer.abort(stopped).catch(() => {})
  }
  const onSignal = () => stop(signal.reason)
  signal.addEventListener('abort', onSignal)
  // The client can stop reading while the body is silent.
  writer.closed.catch(stop)
  try {
    if (signal.aborted) onSignal()
    for (;;) {
      const { done, value } = await reader.read()
      if (stopped) throw stopped
      if (done) break
      await writer.write(value)
      onChunk()
    }
    await writer.close()
  } catch (error) {
    writer.abort(error).catch(() => {})
    throw error
  } finally {
    signal.removeEventListener('abort', onSignal)
  }
}

const MAX_READ_BYTES = 65_536

/**
 * In workerd, reads all bytes that have arrived, up to a size that grows while the body fills it, because each read takes CPU time.
 * Elsewhere, and for a body that JavaScript produces, reads the chunks as they are.
 */
function readerOf(body: ReadableStream): BodyReader {
  const bytes = isWorkerd() ? byteReaderOf(body) : undefined
  if (!bytes) return body.getReader()
  let size = 4096
  return {
    async read() {
      const result = await bytes.read(new Uint8Array(size))
      if (result.value?.byteLength === size) size = Math.min(4 * size, MAX_READ_BYTES)
      return result
    },
    cancel: () => bytes.cancel(),
  }
}

function byteReaderOf(body: ReadableStream): ReadableStreamBYOBReader | undefined {
  try {
    return body.getReader({ mode: 'byob' })
  } catch {
    return undefined
  }
}
