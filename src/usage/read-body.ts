/** Reads the beginning of a body, which then goes on to the origin as a whole. */
import type { Timer } from '../clock.ts'
import type { BodyHold } from './body-room.ts'
import { concat } from './concat.ts'
import { KeptBytes } from './kept-bytes.ts'

/** The beginning of a body that has not arrived after this time is refused (ms). */
const READ_MS = 30_000

/** In workerd, a chunk holds so many bytes however small it is. So the bytes of smaller ones are copied. */
const CHUNK_BYTES = 4096

/** A body is held twice for a moment, when its chunks become one. */
const COPIES = 2

/** How often a known caller looks for room, and how long it waits between (ms). Another request cannot wake it in workerd. */
const [TRIES, WAIT_MS] = [40, 50] as const

type Reader = ReadableStreamDefaultReader<Uint8Array>
type Read = Awaited<ReturnType<Reader['read']>>

export interface Beginning {
  chunks: Uint8Array[]
  /** Absent: this is the whole body. `stopped`: by `see`. */
  how?: 'too-large' | 'too-slow' | 'broken' | 'no-room' | 'stopped'
}

export interface ReadSettings {
  maxBytes: number
  timer: Timer
  /** The room for what is read; the caller of this gives it back. */
  hold: BodyHold
  /** Sees each chunk. @returns false to stop */
  see(chunk: Uint8Array): boolean
}

export async function readBeginning(
  reader: Reader,
  { maxBytes, timer, hold, see }: ReadSettings,
): Promise<Beginning> {
  const { promise: late, resolve } = Promise.withResolvers<'too-slow'>()
  const cancelTimer = timer(READ_MS, () => resolve('too-slow'), true)
  const chunks: Uint8Array[] = []
  const small = new KeptBytes()
  let bytes = 0
  const all = (how?: Beginning['how']): Beginning => {
    if (small.length > 0) chunks.push(small.take())
    return { chunks, ...(how && { how }) }
  }

  function keep(chunk: Uint8Array): void {
    if (chunk.byteLength < CHUNK_BYTES) {
      small.add(chunk)
      return
    }
    if (small.length > 0) chunks.push(small.take())
    chunks.push(chunk)
  }

  async function findRoom(size: number): Promise<boolean> {
    for (let tries = 0; !hold.take(size); tries++) {
      if (!hold.isKnown || tries === TRIES) return false
      const waited = new Promise<void>(resolve => timer(WAIT_MS, resolve))
      if ((await Promise.race([waited, late])) === 'too-slow') return false
    }
    return true
  }

  try {
    if (!(await findRoom(CHUNK_BYTES))) return all('no-room')
    for (;;) {
      const read: Read | 'too-slow' = await Promise.race([reader.read(), late])
      if (read === 'too-slow') return all(read)
      if (read.done) return all()
      const chunk = read.value
      if (!(await findRoom(COPIES * chunk.byteLength))) return all('no-room')
      keep(chunk)
      bytes += chunk.byteLength
      if (!see(chunk)) return all('stopped')
      if (bytes > maxBytes) return all('too-large')
    }
  } catch {
    return all('broken')
  } finally {
    cancelTimer()
  }
}

/** What becomes of a body while its rest passes. */
export interface Passing {
  /** Of the beginning, which `see` of `readBeginning` has seen, and of the rest, which it has not. @throws to break the body off */
  pass(chunk: Uint8Array, isRest: boolean): Uint8Array[]
  /** @returns what follows the last chunk @throws to break the body off */
  end(): Uint8Array[]
}

/**
 * The whole body, of which the beginning was read.
 * @returns `failed` is aborted when the client breaks off the rest, a moment before the body fails: workerd ends a request whose body
 *   fails as if the body was complete, but breaks off one that is aborted
 */
export function resumeBody(
  reader: Reader,
  { chunks }: Beginning,
  { timer, hold }: Pick<ReadSettings, 'timer' | 'hold'>,
  { pass, end }: Passing,
): { body: ReadableStream<Uint8Array>; failed: AbortSignal } {
  const failure = new AbortController()
  let held = chunks

  async function next(): Promise<{ out: Uint8Array[]; isEnd: boolean }> {
    const [first, ...rest] = held
    held = rest
    if (first) {
      const out = pass(first, false)
      hold.give(COPIES * first.byteLength)
      return { out, isEnd: false }
    }
    hold.give()
    const { done, value } = await reader.read()
    return done ? { out: end(), isEnd: true } : { out: pass(value, true), isEnd: false }
  }

  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          for (;;) {
            const { out, isEnd } = await next()
            const bytes = out.length === 1 ? out[0]! : concat(out)
            if (bytes.byteLength > 0) controller.enqueue(bytes)
            if (isEnd) controller.close()
            if (isEnd || bytes.byteLength > 0) return
          }
        } catch (error) {
          hold.give()
          reader.cancel(error).catch(() => {})
          failure.abort()
          await new Promise<void>(resolve => timer(0, resolve))
          throw error
        }
      },
      async cancel(reason) {
        hold.give()
        // The fetch of Node ends a body a moment after its last chunk, and throws if it has been cancelled by then.
        await new Promise<void>(resolve => timer(0, resolve))
        await reader.cancel(reason)
      },
    },
    { highWaterMark: 0 },
  )
  return { body, failed: failure.signal }
}
