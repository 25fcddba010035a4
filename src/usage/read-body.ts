/** Reads the beginning of a body, which then goes on to the origin as a whole. */
import type { Timer } from '../clock.ts'

/** A body that has not ended after this time is not read further (ms). */
const READ_MS = 10_000

/** In workerd, a chunk holds so many bytes however small it is, twice: for the estimate and for the origin. */
const CHUNK_BYTES = 4096

/** A body in more chunks is not read further: a client could send single bytes. Usually, a chunk has 1 kB or more. */
const MAX_CHUNKS = 1000

/** Callers are not known yet, so there is a bound for what an isolate holds of all bodies that it reads at once. It has 128 MB. */
const MAX_HELD_BYTES = 32_000_000

type Reader = ReadableStreamDefaultReader<Uint8Array>
type Read = Awaited<ReturnType<Reader['read']>>

export interface Beginning {
  chunks: Uint8Array[]
  /** Absent: this is the whole body. */
  how?: 'too-large' | 'too-slow' | 'broken'
  /** A chunk that was asked for, and had not come. */
  next?: Promise<Read>
}

/** What all bodies of the isolate hold that are being read. */
let heldBytes = 0

export async function readUpTo(reader: Reader, maxBytes: number, timer: Timer): Promise<Beginning> {
  const { promise: late, resolve } = Promise.withResolvers<'too-slow'>()
  const cancelTimer = timer(READ_MS, () => resolve('too-slow'), true)
  const chunks: Uint8Array[] = []
  let bytes = 0
  let held = 0
  try {
    for (;;) {
      const next = reader.read()
      const read = await Promise.race([next, late])
      if (read === 'too-slow') return { chunks, how: read, next }
      if (read.done) return { chunks }
      chunks.push(read.value)
      bytes += read.value.byteLength
      const more = 2 * Math.max(read.value.byteLength, CHUNK_BYTES)
      held += more
      heldBytes += more
      if (bytes > maxBytes || heldBytes > MAX_HELD_BYTES) return { chunks, how: 'too-large' }
      if (chunks.length >= MAX_CHUNKS) return { chunks, how: 'too-slow' }
    }
  } catch {
    return { chunks, how: 'broken' }
  } finally {
    cancelTimer()
    heldBytes -= held
  }
}

/**
 * The whole body, of which the beginning was read.
 * @returns `failed` is aborted when the client breaks off the rest, a moment before the body fails: workerd ends a request whose body
 *   fails as if the body was complete, but breaks off one that is aborted
 */
export function resumeBody(
  reader: Reader,
  { chunks, next }: Beginning,
  timer: Timer,
): { body: ReadableStream<Uint8Array>; failed: AbortSignal } {
  const failure = new AbortController()
  let held = chunks
  let asked = next
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const [first, ...rest] = held
        held = rest
        if (first) {
          controller.enqueue(first)
          return
        }
        try {
          const { done, value } = await (asked ?? reader.read())
          asked = undefined
          if (done) controller.close()
          else controller.enqueue(value)
        } catch (error) {
          failure.abort()
          await new Promise<void>(resolve => timer(0, resolve))
          throw error
        }
      },
      cancel: reason => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  )
  return { body, failed: failure.signal }
}
