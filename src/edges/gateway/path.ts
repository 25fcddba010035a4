/** Paths and hosts independent of their spelling: routes, rules and the reserved prefix are matched against these. */

const RESERVED = '/_sluice'

/** A path is decoded at most so many times: encodings can be nested. */
const MOST_DECODINGS = 3

/**
 * Every path that an origin can make of one, the plainest first: percent-encodings and those of encodings resolved,
 * backslashes turned, slashes folded, dot segments resolved. One origin decodes once and another not at all, one folds
 * slashes before it resolves dots and another afterwards or never, one reads `/..;x/` as `/../`. So there are readings with
 * and without each step.
 */
export function readingsOf(pathname: string): Readings {
  // After the URL parser, most paths have one reading, or two: with and without encodings.
  if (!/[%;]|\/\//.test(pathname)) return [pathname]
  const [, once = pathname] = decodings(pathname)
  if (!/[%;\\]|\/\//.test(once) && !/%2[ef]/i.test(pathname)) return [once, pathname]
  const texts = [pathname, withoutParameters(pathname)].flatMap(decodings)
  const readings = texts
    .flatMap(text => [turned(text), text.replaceAll('\\', '-')])
    .flatMap(path => [path, withoutParameters(path)])
    .flatMap(path => [path, folded(path)])
  const plainest = withoutDots(folded(turned(decodings(pathname).at(-1)!)))
  const resolved = readings.map(withoutDots)
  const others = new Set([...resolved, ...[...resolved, ...readings].map(withLiteralDots)])
  others.delete(plainest)
  return [plainest, ...others]
}

type Readings = readonly [plainest: string, ...string[]]

/** Without the parameters behind a semicolon in a segment (RFC 3986, section 3.3). */
const withoutParameters = (path: string) => path.replace(/;[^/\\]*/g, '')

/** The text, and the results of decoding it once, twice and so on. */
function decodings(text: string): string[] {
  const texts = [text]
  for (let i = 0; i < MOST_DECODINGS && texts[i]?.includes('%'); i++) {
    texts.push(texts[i]!.replace(/(?:%[0-9a-f]{2})+/gi, decoded))
  }
  return texts
}

/** Bytes that are not UTF-8 stay encoded; the ASCII characters between them are still decoded. */
function decoded(run: string): string {
  try {
    return decodeURIComponent(run)
  } catch {
    return run.replace(/%[0-7][0-9a-f]/gi, decodeURIComponent)
  }
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
