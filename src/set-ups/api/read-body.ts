/** Reads the JSON body of a request: bounded while it is read, whatever Content-Length says. */
import { ApiError, invalidInput } from './problems.ts'

/** Bytes. */
export const MAX_BODY = 64_000

/** @throws ApiError for another content type, a body that is too large, and text that is not JSON */
export async function readJson(request: Request): Promise<unknown> {
  const type = request.headers.get('content-type') ?? ''
  if (!/^application\/json[\t ]*(;[\t ]*charset="?utf-8"?[\t ]*)?$/i.test(type))
    throw new ApiError('not-json', 'Send JSON, at least {}, with the header Content-Type: application/json.')
  if (!/^(identity)?$/i.test(request.headers.get('content-encoding') ?? ''))
    throw new ApiError(
      'not-json',
      'Send the body as it is: without compression, and without the header Content-Encoding.',
      { headers: { 'accept-encoding': 'identity' } },
    )
  const text = await readText(request)
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw invalidInput('', 'The body is not JSON. Send an object, such as {}.')
  }
  checkMembers(text)
  return value
}

async function readText(request: Request): Promise<string> {
  const length = Number(request.headers.get('content-length'))
  if (length > MAX_BODY) throw tooLarge()
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false })
  let text = ''
  let read = 0
  try {
    // The server bounds a body with a length. Reading it at once takes less time.
    for await (const chunk of length > 0 ? [await request.arrayBuffer()] : (request.body ?? [])) {
      read += chunk.byteLength
      if (read > MAX_BODY) throw tooLarge()
      text += decoder.decode(chunk, { stream: true })
    }
    return text + decoder.decode()
  } catch (error) {
    if (error instanceof ApiError) throw error
    throw invalidInput('', 'The body could not be read: it ended early, or it is not UTF-8.')
  }
}

const tooLarge = () => new ApiError('too-large', `The body is above ${MAX_BODY} bytes. Send less.`)

/** A text with what follows it, if that is a colon, or a bracket. Also linear for what is not JSON: a text without an end goes to the end. */
const TOKENS = /("(?:[^"\\]|\\[\s\S])*)(?:"\s*(:?)|\\?$)|[{}[\]]/g

/**
 * JSON.parse keeps the last of two members with the same name, and other parsers the first.
 * @param text valid JSON @throws ApiError for a member that is there twice
 */
function checkMembers(text: string): void {
  /** The names of the members of each object that is open. An open list has none. */
  const open: Set<string>[] = []
  for (const [token, string, colon] of text.matchAll(TOKENS)) {
    if ('{['.includes(token)) open.push(new Set())
    else if ('}]'.includes(token)) open.pop()
    else if (colon) {
      const members = open.at(-1)!
      const member = JSON.parse(`${string}"`) as string
      if (members.has(member))
        throw invalidInput('', `The body has the member ${JSON.stringify(member)} twice. Send it once.`)
      members.add(member)
    }
  }
}
