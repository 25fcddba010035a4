/**
 * Reads HTTP/1.1 messages from bytes, as strictly as RFC 9112 allows, at both ends of a gateway. Bytes are strings of Latin-1 characters.
 */

export interface Message {
  /** The request line or the status line. */
  start: string
  /** With the names as they were sent. */
  headers: readonly (readonly [name: string, value: string])[]
  body: string
  /** Whether all of the body is there. */
  isWhole: boolean
  /** The bytes that it takes. */
  length: number
}

/** What a sender that follows RFC 9112 does not write. */
export class MalformedMessage extends Error {}

/**
 * Reads the message at the start of the bytes.
 * @param method of the request that a reply belongs to; absent: the message is a request
 * @param isClosed whether no more bytes come
 * @returns undefined if its head has not ended
 */
export function readMessage(bytes: string, method?: string, isClosed = false): Message | undefined {
  const end = bytes.indexOf('\r\n\r\n')
  if (end < 0) return undefined
  const [start = '', ...lines] = bytes.slice(0, end).split('\r\n')
  const pattern =
    method === undefined ? /^[!-~]+ [!-\xff]+ HTTP\/1\.[01]$/ : /^HTTP\/1\.[01] \d{3} [\t -\xff]*$/
  if (!pattern.test(start)) throw new MalformedMessage(`a start line of ${JSON.stringify(start)}`)
  const headers = lines.map(headerOf)
  const message = { start, headers }
  const rest = bytes.slice(end + 4)
  const body = bodyOf(message, rest, method, isClosed)
  return { ...message, ...body, length: end + 4 + body.length }
}

export const statusOf = ({ start }: Pick<Message, 'start'>) => Number(start.split(' ')[1])

/** The values of a header, in their order. @param name in lower case */
export const valuesOf = ({ headers }: Pick<Message, 'headers'>, name: string) =>
  headers.filter(([each]) => each.toLowerCase() === name).map(([, value]) => value)

function headerOf(line: string): readonly [string, string] {
  const [, name, value] = /^([\w!#$%&'*+.^`|~-]+):[\t ]*([^\0\r\n]*?)[\t ]*$/.exec(line) ?? []
  if (name === undefined || value === undefined)
    throw new MalformedMessage(`a header line of ${JSON.stringify(line)}`)
  return [name, value]
}

type Body = Pick<Message, 'body' | 'isWhole' | 'length'>

/** RFC 9112, section 6.3. */
function bodyOf(
  head: Pick<Message, 'start' | 'headers'>,
  bytes: string,
  method: string | undefined,
  isClosed: boolean,
): Body {
  const none = { body: '', isWhole: true, length: 0 }
  const status = method === undefined ? undefined : statusOf(head)
  if (status !== undefined && (method === 'HEAD' || status < 200 || status === 204 || status === 304))
    return none
  const [length, ...moreLengths] = valuesOf(head, 'content-length')
  const coding = valuesOf(head, 'transfer-encoding').join(', ')
  if (coding !== '') {
    if (coding.toLowerCase() !== 'chunked') throw new MalformedMessage(`a Transfer-Encoding of ${coding}`)
    if (length !== undefined) throw new MalformedMessage('Content-Length and Transfer-Encoding')
    return chunksOf(bytes)
  }
  if (length !== undefined) {
    if (moreLengths.length > 0 || !/^\d+$/.test(length))
      throw new MalformedMessage(`a Content-Length of ${[length, ...moreLengths].join(' and ')}`)
    const body = bytes.slice(0, Number(length))
    return { body, isWhole: body.length === Number(length), length: body.length }
  }
  return status === undefined ? none : { body: bytes, isWhole: isClosed, length: bytes.length }
}

function chunksOf(bytes: string): Body {
  let body = ''
  let at = 0
  const unfinished = () => ({ body, isWhole: false, length: bytes.length })
  for (;;) {
    const end = bytes.indexOf('\r\n', at)
    if (end < 0) return unfinished()
    const line = bytes.slice(at, end)
    if (!/^[\da-f]+$/i.test(line)) throw new MalformedMessage(`a chunk size of ${JSON.stringify(line)}`)
    const size = Number.parseInt(line, 16)
    at = end + 2
    if (size === 0) break
    body += bytes.slice(at, at + size)
    at += size + 2
    if (bytes.length < at) return unfinished()
    if (bytes.slice(at - 2, at) !== '\r\n') throw new MalformedMessage('a chunk that is longer than its size')
  }
  for (;;) {
    const end = bytes.indexOf('\r\n', at)
    if (end < 0) return unfinished()
    const line = bytes.slice(at, end)
    at = end + 2
    if (line === '') return { body, isWhole: true, length: at }
    headerOf(line)
  }
}
