/**
 * Parses the header `Forwarded` (RFC 7239) from the right, where the nearest proxy writes. The client writes at the
 * left, and a quote that it leaves open must not affect the entries of proxies: a parser that starts at the left
 * would read `for="x, for=192.0.2.1` as one broken text, or return another address.
 */

/** One `name=value` or nothing, up to the next semicolon. */
const PAIR = /[ \t]*(?:([!#$%&'*+.^`|~\w-]+)=(?:([!#$%&'*+.^`|~\w-]+)|"((?:[^"\\]|\\.)*)")[ \t]*)?(?:;|$)/gy

/** The `for` of each element, the last element first. Undefined if it is missing, repeated or malformed. */
export function* forwardedFor(header: string): Generator<string | undefined> {
  let end = header.length
  let isQuoted = false
  for (let i = end - 1; i >= 0; i--) {
    if (header[i] === '"' && !(isQuoted && isEscaped(header, i))) isQuoted = !isQuoted
    if (header[i] !== ',' || isQuoted) continue
    yield parseFor(header.slice(i + 1, end))
    end = i
  }
  yield parseFor(header.slice(0, end))
}

function parseFor(element: string): string | undefined {
  let node: string | undefined
  let read = 0
  for (const [pair, name, token, quoted] of element.matchAll(PAIR)) {
    read += pair.length
    if (name?.toLowerCase() !== 'for') continue
    if (node !== undefined) return undefined
    node = token ?? quoted!.replace(/\\(.)/g, '$1')
  }
  return read === element.length ? node : undefined
}

/** Whether an odd number of backslashes precedes the character. */
function isEscaped(text: string, at: number): boolean {
  let start = at
  while (text[start - 1] === '\\') start--
  return (at - start) % 2 === 1
}
