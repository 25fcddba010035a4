/**
 * The paths that an origin may read from the path of a request, and its host. Routes, rules and the reserved prefix are
 * matched against the results, independent of the spelling.
 */
import { canonicalPath } from '../../patterns/canonical.ts'

const RESERVED = '/_sluice'

/** A path that matches this may have several readings. */
const AMBIGUOUS = /[%;\\]|\/\/|\.(?:\/|$)/

/** Encodings can be nested; a path is decoded at most this often. */
const MAX_DECODINGS = 3

/**
 * The characters of all readings together, which bound the CPU time that a path can take. An object name of 1,024 bytes
 * (the maximum of many object stores) fits in with every byte encoded twice.
 */
const MAX_CHARACTERS = 10_240

/** The handler, its routes and its rules ask for the readings of one path after the other. */
let last: { pathname: string; readings: readonly string[] | undefined } | undefined

/**
 * Lists every path that an origin may read from this one, in canonical spelling (patterns/canonical.ts). Origins differ:
 * one decodes nested percent-encodings, another once or never; one folds slashes before it resolves dots, another
 * afterwards or never; one reads `/..;x/` as `/../`. So there are readings with and without each step.
 *
 * @returns undefined if there are too many to match them. Such a request is refused with 400.
 */
export function readingsOf(pathname: string): readonly string[] | undefined {
  if (last?.pathname !== pathname) last = { pathname, readings: listReadings(pathname) }
  return last.readings
}

function listReadings(pathname: string): readonly string[] | undefined {
  if (!AMBIGUOUS.test(pathname)) return [canonicalPath(pathname)]
  let paths: readonly string[] = [pathname]
  for (const variantsOf of STEPS) {
    paths = [...new Set(paths.flatMap(variantsOf))]
    if (paths.length > 1 && paths.reduce((sum, path) => sum + path.length, 0) > MAX_CHARACTERS)
      return undefined
  }
  return [...new Set(paths.map(canonicalPath))]
}

/** What origins do with a path, in the order in which they do it. Each step lists what they may have afterwards. */
const STEPS: readonly ((path: string) => readonly string[])[] = [
  // `new URL(path, base)`, as many servers on Node read it, takes what follows two slashes for a host.
  path => (/^\/[/\\]/.test(path) ? [path, path.replace(/^\/[/\\]+[^/\\]*/, '') || '/'] : [path]),
  // The router of Fastify 4 ends the path at the first semicolon.
  path => (path.includes(';') ? [path, path.split(';', 1)[0]!] : [path]),
  withoutParameters,
  decodings,
  // What is written in C ends a text at the first NUL.
  path => (path.includes('\0') ? [path, path.split('\0', 1)[0]!] : [path]),
  // Parsers of URLs drop these.
  path => [path, path.replace(/[\t\n\r]/g, '')],
  path => [path, path.replaceAll('\\', '/')],
  withoutParameters,
  // Windows drops dots and spaces at the end of a name.
  path => (/[. ](?:\/|$)/.test(path) ? [path, path.replace(/([^/. ])[. ]+(?=\/|$)/g, '$1')] : [path]),
  path => [path, path.replace(/\/(?:\.?\/)+/g, '/')],
  // Some treat dot segments, or encoded ones, as ordinary names.
  path => [path, resolveDots(path, DOTS), resolveDots(path, DOTS_OR_ENCODED_DOTS)],
]

/** With and without the parameters after a semicolon in each segment (RFC 3986, section 3.3), which a backslash may end. */
function withoutParameters(path: string): string[] {
  return path.includes(';') ? [path, path.replace(/;[^/\\]*/g, ''), path.replace(/;[^/]*/g, '')] : [path]
}

/** The path, and the results of decoding it once, twice and so on. Only ASCII, because the canonical spelling has the rest encoded. */
function decodings(path: string): string[] {
  const all = [path]
  for (let i = 0; i < MAX_DECODINGS; i++) {
    const decoded = decodeURIComponent(all[i]!.replace(NOT_ASCII, '%25'))
    if (decoded === all[i]) break
    all.push(decoded)
  }
  return all
}

/** A percent sign that does not begin an encoded ASCII character. */
const NOT_ASCII = /%(?![0-7][\da-f])/gi

const DOTS = /^\.{1,2}$/
const DOTS_OR_ENCODED_DOTS = /^(?:\.|%2e){1,2}$/i

/** Removes dot segments (RFC 3986, section 5.2.4). */
function resolveDots(path: string, dots: RegExp): string {
  if (!path.includes('/.') && !/\/%2e/i.test(path)) return path
  const all = path.split('/').slice(1)
  const segments: string[] = []
  for (const segment of all) {
    if (!dots.test(segment)) segments.push(segment)
    else if (!/^(?:\.|%2e)$/i.test(segment)) segments.pop()
  }
  // A dot segment at the end leaves the slash before it.
  if (dots.test(all.at(-1)!)) segments.push('')
  return `/${segments.join('/')}`
}

/** The hostname without the dot at the end of a full name, which is the same host. */
export function hostOf(url: URL): string {
  return url.hostname.replace(/\.$/, '')
}

/** Whether any reading of a path is one of the gateway's own paths, which never reach the origin. */
export function isReserved(pathname: string): boolean {
  const isOwn = (path: string) => path === RESERVED || path.startsWith(`${RESERVED}/`)
  return readingsOf(pathname)?.some(isOwn) ?? false
}
