/** Passes on a body, and lets a tap see each chunk. */
import { SYSTEM_TIMER, type Timer } from '../../clock.ts'
import type { BodyTap } from '../../usage/usage.ts'
import { type BodyReader, IDLE, type Pump } from './pass-body.ts'

/** Lets the tap read the rest of a body whose client has left. */
export interface ReadOn {
  /** Then the body is cancelled (ms). Workers have 30 s after the client has left. */
  forMs: number
  /** @returns undefined if too many bodies are being read on; else call the result at the end */
  begin(): (() => void) | undefined
}

/** How long a reply is read after its client has left: workerd ends such work after 30 s. */
const READ_ON_MS = 25_000

/** How many such replies an isolate reads at once. */
const MAX_READ_ON = 100

export const createReadOn = (): ReadOn => ({ forMs: READ_ON_MS, begin: createReadOnSlots(MAX_READ_ON) })

/** Lets so many bodies of an isolate be read on at once. @returns `begin` of `ReadOn` */
export function createReadOnSlots(most: number): ReadOn['begin'] {
  let taken = 0
  return () => {
    if (taken >= most) return undefined
    taken += 1
    return () => {
      taken -= 1
    }
  }
}

export interface TapPumpOptions {
  /** Absent: when the client leaves, the body is cancelled. Else the pump ends after the body was read on. */
  readOn?: ReadOn | undefined
  timer?: Timer
}

/** Creates the pump of one body. A chunk is handed over before it is seen, and the next one is read after that. */
export function createTapPump(tap: BodyTap, { readOn, timer = SYSTEM_TIMER }: TapPumpOptions = {}): Pump {
  return {
    changesBytes: tap.changesBytes,
    run: (reader, writable, signal, onChunk) =>
      run(reader, writable, signal, onChunk, { tap, readOn, timer }),
  }
}

async function run(
  reader: BodyReader,
  writable: WritableStream,
  signal: AbortSignal,
  onChunk: () => void,
  { tap, readOn, timer }: { tap: BodyTap; readOn: ReadOn | undefined; timer: Timer },
): Promise<void> {
  const writer = writable.getWriter()
  let stopped: unknown
  let isSending = false
  /** Ends reading on. Absent: the body is not read on. */
  let endReadingOn: (() => void) | undefined
  let interrupt = () => {}

  /** Ends a read or a write that is pending. */
  const stop = (reason: unknown) => {
    if (stopped) return
    stopped = reason ?? new Error('stopped')
    writer.abort(stopped).catch(() => {})
    // Also for a client that stays connected and reads no more.
    if (reason !== IDLE || isSending) endReadingOn = beginReadingOn()
    if (!endReadingOn) reader.cancel().catch(() => {})
    interrupt()
  }
  function beginReadingOn(): (() => void) | undefined {
    const end = readOn?.begin()
    if (!end) return undefined
    const onTimeout = () => {
      endReadingOn = undefined
      end()
      reader.cancel().catch(() => {})
      interrupt()
    }
    const cancelTimer = timer(readOn!.forMs, onTimeout, true)
    return () => {
      cancelTimer()
      end()
    }
  }
  const write = (bytes: Uint8Array) => (bytes.byteLength > 0 ? writer.write(bytes) : undefined)
  /** Resolves when the chunk was sent and seen. Does not wait longer if the pump is stopped. */
  const passThrough = (chunk: Uint8Array) =>
    new Promise<void>(resolve => {
      interrupt = resolve
      const sent = stopped ? undefined : write(tap.pass(chunk))
      isSending = true
      Promise.all([sent, tap.see(chunk)]).then(() => {
        isSending = false
        resolve()
      }, stop)
    })

  const onSignal = () => stop(signal.reason)
  signal.addEventListener('abort', onSignal)
  // The client can stop reading while the body is silent.
  writer.closed.catch(stop)
  try {
    if (signal.aborted) onSignal()
    for (;;) {
      const { done, value } = await reader.read()
      if (stopped && !endReadingOn) throw stopped
      if (done) break
      await passThrough(value!)
      onChunk()
    }
    if (stopped) throw stopped
    await write(tap.rest())
    await writer.close()
  } catch (error) {
    // Aborting fails the writer, which must not look like a client that leaves: nothing would end that reading on.
    stopped ??= error
    writer.abort(error).catch(() => {})
    throw error
  } finally {
    endReadingOn?.()
    signal.removeEventListener('abort', onSignal)
  }
}
