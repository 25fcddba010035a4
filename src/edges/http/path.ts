/** Paths and hosts independent of their spelling: routes, rules and the reserved prefix are matched against these. */

const RESERVED = '/_sluice'

/** A path is decoded at most so many times: encodings can be nested. */
const MOST_DECODINGS = 3

/** A path with one of these may have several readings. */
const AMBIGUOUS = /[%;]|\/\//

/** An object's name of 1,024 bytes, which many stores allow, fits with every byte encoded. */
const LONGEST_AMBIGUOUS = 4096

/**
 * Each reading is as long as the path, and each is matched against every route and rule. So a path that may have several must not
 * be of any length, or a single request could take the CPU of a hundred.
 */
export function isTooLong(pathname: string): boolean {
  return pathname.length > LONGEST_AMBIGUOUS && AMBIGUOUS.test(pathname)
}

/**
 * Every path that an origin can make of one, the plainest first: percent-encodings and those of encodings resolved,
 * backslashes turned, slashes folded, dot segments resolved. One origin decodes once and another not at all, one folds
 * slashes before it resolves dots and another afterwards or never, one reads `/..;x/` as `/../`. So there are readings with
 * and without each step.
 */
export function readingsOf(pathname: string): Readings {
  // After the URL parser, most paths have one reading, or two: with and without encodings.
  if (!AMBIGUOUS.test(pathname)) return [pathname]
  const [, once = pathname] = decodings(pathname)
  if (!/[%;\\]|\/\//.test(once) && !/%2[ef]/i.test(pathname)) return [once, pathname]
  const texts = withAndWithout([pathname], withoutParameters).flatMap(decodings)
  const slashed = distinct(texts.flatMap(text => [turned(text), text.replaceAll('\\', '-')]))
  const readings = withAndWithout(withAndWithout(slashed, withoutParameters), folded)
  const plainest = withoutDots(folded(turned(decodings(pathname).at(-1)!)))
  const resolved = distinct(readings.map(withoutDots))
  const others = new Set([...resolved, ...distinct([...resolved, ...readings]).map(withLiteralDots)])
  others.delete(plainest)
  return [plainest, ...others]
}

type Readings = readonly [plainest: string, ...string[]]

/** Steps mostly change nothing: what comes out twice is not taken through the next one twice. */
const distinct = (paths: readonly string[]) => [...new Set(paths)]

const withAndWithout = (paths: readonly string[], step: (path: string) => string) =>
  distinct([...paths, ...paths.map(step)])

/** Without the parameters behind a semicolon in a segment (RFC 3986, section 3.3). */
const withoutParameters = (path: string) => path.replace(/;[^/\\]*/g, '')

/**
 * Encoded characters, by the syntax of UTF-8 (RFC 3629, section 4); other bytes stay encoded. `decodeURIComponent` would throw at
 * those, which takes longer than all the rest of a path together.
 */
const ENCODED =
  /(?:%[0-7][\da-f]|%(?:c[2-9a-f]|d[\da-f])%[89ab][\da-f]|%e(?:0(?=%[ab])|[1-9a-cef]|d(?=%[89]))(?:%[89ab][\da-f]){2}|%f(?:0(?=%[9ab])|[1-3]|4(?=%8))(?:%[89ab][\da-f]){3})+/gi

/** The text, and the results of decoding it once, twice and so on. */
function decodings(text: string): string[] {
  const texts = [text]
  for (let i = 0; i < MOST_DECODINGS; i++) {
    const decoded = texts[i]!.replace(ENCODED, decodeURIComponent)
    if (decoded === texts[i]) break
    texts.push(decoded)
  }
  return texts
}

const turned = (path: string) => path.replaceAll('\\', '/')

const folded = (path: string) => path.replace(/\/(?:\.?\/)+/g, '/')

/**
 * For origins that take dot segments for ordinary names, all of them or the encoded ones. A URLPattern would resolve them, so
 * another name replaces them.
 */
const withLiteralDots = (path: string) => path.replace(/(?<=\/)(?:\.|%2e){1,2}(?=\/|$)/gi, '-')

function withoutDots(path: string): string {
  const segments: string[] = []
  for (const segment of path.split('/').slice(1)) {
    if (segment === '..') segments.pop()
    else if (segment !== '.') segments.push(segment)
  }
  // A dot segment at the end leaves the slash before it.
  if (/\/\.\.?$/.test(path)) segments.push('')
  return `/${segments.join('/')}`
}

/** Without the dot at the end of a full name: it is the same host. */
export function hostOf(url: URL): string {
  return url.hostname.replace(/\.$/, '')
}

/** Is this one of the gateway's own paths, however it is read? Those never reach the origin. */
export function isReserved(pathname: string): boolean {
  return readingsOf(pathname).some(reading => {
    const path = reading.toLowerCase()
    return path === RESERVED || path.startsWith(`${RESERVED}/`)
  })
}
