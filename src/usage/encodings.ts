/** The encodings in which usage can be read: none, and gzip, which is decompressed on a copy. The client gets the bytes as they are. */

/**
 * Returns the header Accept-Encoding for the origin.
 * @param accepted that of the client
 * @param isEdited the reply is edited on its way, so it must not be compressed
 */
export function acceptEncoding(accepted: string | null, isEdited = false): 'gzip' | 'identity' {
  const takesGzip = (accepted ?? '').split(',').some(coding => {
    const [name = '', ...parameters] = coding.split(';').map(text => text.trim().toLowerCase())
    return (name === 'gzip' || name === 'x-gzip') && !parameters.some(text => /^q=0(\.0*)?$/.test(text))
  })
  return takesGzip && !isEdited ? 'gzip' : 'identity'
}

export type Encoding = 'identity' | 'gzip' | 'other'

/** @param header Content-Encoding of the reply */
export function encodingOf(header: string | null): Encoding {
  const coding = (header ?? '').trim().toLowerCase()
  if (coding === '' || coding === 'identity') return 'identity'
  return coding === 'gzip' || coding === 'x-gzip' ? 'gzip' : 'other'
}

/** Reads bytes that were decompressed from a copy of a body. */
export interface CopyReader {
  /** Resolves when the chunk was read, so that no more than one chunk waits. Never rejects. */
  feed(chunk: Uint8Array): Promise<void> | undefined
  /** Resolves when everything was read. Never rejects. */
  end(): Promise<void>
  /** False: the body could not be decompressed. */
  isReadable(): boolean
}

const GZIP_MAGIC = 0x1f

/** A body that gets so much larger would only take CPU time. Events of models, which repeat much, get 20 to 50 times as large. */
const MAX_RATIO = 200
/** So much is read in any case (bytes). */
const MIN_READ_BYTES = 10_000_000

/**
 * Decompresses a copy of a body with Content-Encoding: gzip. Some platforms have already decompressed it and left the header. Such a body
 * does not begin as gzip does, and is read as it is: neither JSON nor events begin like this.
 */
export function createGzipReader(onBytes: (bytes: Uint8Array) => void): CopyReader {
  let isFirst = true
  let isReadable = true
  let writer: WritableStreamDefaultWriter<Uint8Array> | undefined
  let reading: Promise<void> | undefined
  let bytesIn = 0
  let bytesOut = 0
  const fail = () => {
    isReadable = false
  }
  function read(bytes: Uint8Array): void {
    bytesOut += bytes.byteLength
    if (bytesOut > MIN_READ_BYTES && bytesOut > MAX_RATIO * bytesIn) throw new RangeError('too large')
    onBytes(bytes)
  }

  function begin(): void {
    const stream = new DecompressionStream('gzip')
    writer = stream.writable.getWriter() as WritableStreamDefaultWriter<Uint8Array>
    writer.closed.catch(() => {})
    writer.ready.catch(() => {})
    reading = readAll(stream.readable as ReadableStream<Uint8Array>, read).catch(fail)
  }

  return {
    feed(chunk) {
      if (chunk.byteLength === 0) return undefined
      if (isFirst) {
        isFirst = false
        if (chunk[0] === GZIP_MAGIC) begin()
      }
      if (!writer) {
        onBytes(chunk)
        return undefined
      }
      if (!isReadable) return undefined
      bytesIn += chunk.byteLength
      // Copied: it is decompressed while the chunk is sent.
      return writer.write(chunk.slice()).catch(fail)
    },
    async end() {
      // A body that broke off cannot be closed. What arrived was read.
      await writer?.close().catch(fail)
      await reading
    },
    isReadable: () => isReadable,
  }
}

async function readAll(
  stream: ReadableStream<Uint8Array>,
  onBytes: (bytes: Uint8Array) => void,
): Promise<void> {
  const reader = stream.getReader()
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      onBytes(value)
    }
  } catch (error) {
    // Otherwise, writing would wait for ever.
    reader.cancel(error).catch(() => {})
    throw error
  }
}
