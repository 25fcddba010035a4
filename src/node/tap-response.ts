/** Reads what an app of Express, Connect or plain Node sends, while it is sent. */
import type { ServerResponse } from 'node:http'
import type { BodyTap, ReplyHead } from '../usage/usage.ts'

/** What reads a response. `pass` is not called: the app's bytes are not changed. */
export interface ResponseReader extends Pick<BodyTap, 'see'> {
  cleanHeaders(headers: { delete(name: string): void }): void
}

/**
 * Calls `begin` before the head of the response is sent, and its reader for each chunk after that was sent. An exception of either is
 * given to `onError`, and the response continues.
 * @param onEnd called when the app has written all of its response, also after the client has left
 */
export function tapResponse(
  res: ServerResponse,
  begin: (head: ReplyHead) => ResponseReader,
  onError: (error: unknown) => void,
  onEnd: () => void = () => {},
): void {
  const { writeHead, write, end } = res
  let reader: ResponseReader | undefined

  const guarded = (run: () => void) => {
    try {
      run()
    } catch (error) {
      onError(error)
    }
  }

  // Node calls it, too, before it sends a head that the app has not written itself.
  res.writeHead = function (this: ServerResponse, status: number, ...rest: unknown[]) {
    const message = typeof rest[0] === 'string' ? rest[0] : undefined
    if (!res.headersSent && !reader) {
      guarded(() => {
        setHeaders(res, rest.at(-1))
        const headers = { get: (name: string) => headerOf(res, name) }
        reader = begin({ status, headers })
        reader.cleanHeaders({ delete: name => res.removeHeader(name) })
      })
    }
    // Headers of the arguments are set by now, unless the head was sent before, which Node reports.
    const args = reader ? [status, ...(message === undefined ? [] : [message])] : [status, ...rest]
    return Reflect.apply(writeHead, res, args)
  } as typeof writeHead

  /** The methods call each other, so that only the outer call has the chunk. */
  let isInside = false
  const seeing = <Method extends typeof write | typeof end>(method: Method): Method =>
    function (this: ServerResponse, ...args: unknown[]) {
      if (isInside) return Reflect.apply(method, res, args)
      isInside = true
      try {
        const result: unknown = Reflect.apply(method, res, args)
        guarded(() => {
          const chunk = bytesOf(args[0], args[1])
          if (chunk) void reader?.see(chunk)
          if (method === end) onEnd()
        })
        return result
      } finally {
        isInside = false
      }
    } as Method
  res.write = seeing(write)
  res.end = seeing(end)
}

/** Headers that the app passes to `writeHead`: an object, pairs, or a list of names and values. */
function setHeaders(res: ServerResponse, headers: unknown): void {
  if (typeof headers !== 'object' || headers === null) return
  if (!Array.isArray(headers)) {
    for (const [name, value] of Object.entries(headers)) {
      if (value !== undefined) res.setHeader(name, value as string)
    }
    return
  }
  const pairs = Array.isArray(headers[0])
    ? (headers as [string, string][])
    : Array.from(
        { length: headers.length / 2 },
        (_, i) => [headers[2 * i], headers[2 * i + 1]] as [string, string],
      )
  for (const name of new Set(pairs.map(([name]) => name.toLowerCase()))) {
    const values = pairs.filter(pair => pair[0].toLowerCase() === name).map(([, value]) => value)
    res.setHeader(name, values.length === 1 ? values[0]! : values)
  }
}

function headerOf(res: ServerResponse, name: string): string | null {
  const value = res.getHeader(name)
  return value === undefined ? null : Array.isArray(value) ? value.join(', ') : String(value)
}

function bytesOf(chunk: unknown, encoding: unknown): Uint8Array | undefined {
  if (typeof chunk === 'string') {
    return Buffer.from(chunk, typeof encoding === 'string' ? (encoding as BufferEncoding) : 'utf8')
  }
  return chunk instanceof Uint8Array ? chunk : undefined
}
