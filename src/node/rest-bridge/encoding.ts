/** Reads requests and writes replies in the format of Upstash's REST protocol. */
import type { Command, Reply } from './redis-connection.ts'

/** The request cannot be read. The message is sent to the caller. */
export class MalformedRequest extends Error {}

export type Body = { result: unknown } | { error: string }

/** One command from a JSON body: `["SET", "key", 1]`. */
export function commandOf(json: unknown): Command {
  if (!Array.isArray(json) || json.length === 0) throw new MalformedRequest('ERR empty command')
  return json.map(word => {
    if (typeof word === 'string') return word
    if (typeof word === 'number' || typeof word === 'boolean') return String(word)
    throw new MalformedRequest('ERR failed to parse command: an argument is neither text nor a number')
  })
}

/** Several commands: `[["GET", "a"], ["GET", "b"]]`. */
export function commandsOf(json: unknown): Command[] {
  if (!Array.isArray(json) || json.length === 0) throw new MalformedRequest('ERR empty pipeline request')
  return json.map(commandOf)
}

/** `/set/key/value?EX=10`. A body is the last argument of the path: the words of the query come after it. */
export function commandOfPath(pathname: string, query: URLSearchParams, body: Buffer): Command {
  const words: (string | Buffer)[] = pathname.split('/').filter(Boolean).map(decode)
  if (words.length === 0) throw new MalformedRequest('ERR empty command')
  if (body.length > 0) words.push(body)
  for (const [name, value] of query) {
    if (name !== '_token') words.push(name, ...(value ? [value] : []))
  }
  return words
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment)
  } catch {
    throw new MalformedRequest('ERR failed to parse command: the path is not percent-encoded text')
  }
}

export function parseJson(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'))
  } catch {
    throw new MalformedRequest('ERR failed to parse JSON request')
  }
}

/** With base64, every string is encoded, except the status OK. Inside an array, OK is encoded too. */
export function bodyOf(reply: Reply, base64: boolean): Body {
  if (reply instanceof Error) return { error: reply.message }
  if (reply === 'OK') return { result: 'OK' }
  return { result: encode(reply, base64) }
}

function encode(reply: Reply, base64: boolean): unknown {
  if (Array.isArray(reply)) return reply.map(item => encode(item, base64))
  if (reply instanceof Error) return encode(reply.message, base64)
  if (reply === null || typeof reply === 'number') return reply
  return Buffer.from(reply).toString(base64 ? 'base64' : 'utf8')
}
