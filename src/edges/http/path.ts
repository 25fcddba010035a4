/**
 * Normalizes paths and hosts. Routes, rules and the reserved prefix are matched against the results, independent of
 * the spelling.
 */

const RESERVED = '/_sluice'

/** Encodings can be nested; a path is decoded at most this often. */
const MAX_DECODINGS = 3

/** A path that matches this may have several readings. */
const AMBIGUOUS = /[%;]|\/\//

/** Room for an object name of 1,024 bytes (the maximum of many object stores) with every byte encoded. */
const MAX_AMBIGUOUS_LENGTH = 4096

/**
 * Whether a path is too long to match. Each reading is as long as the path, and is matched against every route and
 * rule. Without this bound, one request could take the CPU time of a hundred.
 */
export function isTooLong(pathname: string): boolean {
  return pathname.length > MAX_AMBIGUOUS_LENGTH && AMBIGUOUS.test(pathname)
}

/**
 * Lists every path that an origin may read from this one, the most normalized first: with nested percent-encodings
 * decoded, backslashes turned into slashes, repeated slashes folded, and dot segments resolved. Origins differ: one
 * decodes once and another never; one folds slashes before it resolves dots, another afterwards or never; one reads
 * `/..;x/` as `/../`. So there are readings with and without each step.
 */
export function readingsOf(pathname: string): Readings {
  const end = pathname.indexOf(';')
  if (end < 0) return readingsOfWhole(pathname)
  // The router of Fastify 4 ends the path at the first semicolon.
  const [plainest, ...others] = readingsOfWhole(pathname)
  const all = new Set([...others, ...readingsOfWhole(pathname.slice(0, end))])
  all.delete(plainest)
  return [plainest, ...all]
}

function readingsOfWhole(pathname: string): Readings {
  // After URL parsing, most paths have one reading, or two: decoded and encoded.
  if (!AMBIGUOUS.test(pathname)) return [pathname]
  const [, once = pathname] = listDecodings(pathname)
  if (!/[%;\\]|\/\//.test(once) && !/%2[ef]/i.test(pathname)) return [once, pathname]
  const texts = withAndWithout([pathname], dropParameters).flatMap(listDecodings)
  const slashed = distinct(texts.flatMap(text => [turnBackslashes(text), text.replaceAll('\\', '-')]))
  const readings = withAndWithout(withAndWithout(slashed, dropParameters), foldSlashes)
  const plainest = resolveDots(foldSlashes(turnBackslashes(listDecodings(pathname).at(-1)!)))
  const resolved = distinct(readings.map(resolveDots))
  const others = new Set([...resolved, ...distinct([...resolved, ...readings]).map(replaceDots)])
  others.delete(plainest)
  return [plainest, ...others]
}

type Readings = readonly [plainest: string, ...string[]]

/** Most steps change nothing, so equal results are processed once. */
const distinct = (paths: readonly string[]) => [...new Set(paths)]

const withAndWithout = (paths: readonly string[], step: (path: string) => string) =>
  distinct([...paths, ...paths.map(step)])

/** Drops the parameters after a semicolon in each segment (RFC 3986, section 3.3). */
const dropParameters = (path: string) => path.replace(/;[^/\\]*/g, '')

/**
 * Encoded characters, by the syntax of UTF-8 (RFC 3629, section 4); other bytes stay encoded. `decodeURIComponent`
 * would throw for them, which takes longer than all other steps together.
 */
const ENCODED =
  /(?:%[0-7][\da-f]|%(?:c[2-9a-f]|d[\da-f])%[89ab][\da-f]|%e(?:0(?=%[ab])|[1-9a-cef]|d(?=%[89]))(?:%[89ab][\da-f]){2}|%f(?:0(?=%[9ab])|[1-3]|4(?=%8))(?:%[89ab][\da-f]){3})+/gi

/** The text, then the results of decoding it once, twice and so on. */
function listDecodings(text: string): string[] {
  const texts = [text]
  for (let i = 0; i < MAX_DECODINGS; i++) {
    const decoded = texts[i]!.replace(ENCODED, decodeURIComponent)
    if (decoded === texts[i]) break
    texts.push(decoded)
  }
  return texts
}

const turnBackslashes = (path: string) => path.replaceAll('\\', '/')

const foldSlashes = (path: string) => path.replace(/\/(?:\.?\/)+/g, '/')

/**
 * For origins that treat dot segments as ordinary names, either all of them or the encoded ones. URLPattern would
 * resolve them, so another name replaces them.
 */
const replaceDots = (path: string) => path.replace(/(?<=\/)(?:\.|%2e){1,2}(?=\/|$)/gi, '-')

function resolveDots(path: string): string {
  const segments: string[] = []
  for (const segment of path.split('/').slice(1)) {
    if (segment === '..') segments.pop()
    else if (segment !== '.') segments.push(segment)
  }
  // A dot segment at the end leaves the slash before it.
  if (/\/\.\.?$/.test(path)) segments.push('')
  return `/${segments.join('/')}`
}

/** The hostname without the dot at the end of a full name, which is the same host. */
export function hostOf(url: URL): string {
  return url.hostname.replace(/\.$/, '')
}

/** Whether any reading of a path is one of the gateway's own paths, which never reach the origin. */
export function isReserved(pathname: string): boolean {
  return readingsOf(pathname).some(reading => {
    const path = reading.toLowerCase()
    return path === RESERVED || path.startsWith(`${RESERVED}/`)
  })
}
