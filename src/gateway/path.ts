/** What a path means, whatever its spelling: rules and the reserved prefix are matched against this. */

const RESERVED = '/_sluice'

/**
 * Percent-encodings resolved (also those of encodings, as some origins do), backslashes turned, slashes folded, dot
 * segments resolved.
 */
export function canonicalPath(pathname: string): string {
  let path = pathname
  for (let i = 0; i < 3 && path.includes('%'); i++) path = path.replace(/(?:%[0-9a-f]{2})+/gi, decoded)
  const segments: string[] = []
  for (const segment of path.replaceAll('\\', '/').split('/')) {
    if (segment === '..') segments.pop()
    else if (segment !== '' && segment !== '.') segments.push(segment)
  }
  const trailing = path.endsWith('/') && segments.length > 0 ? '/' : ''
  return `/${segments.join('/')}${trailing}`
}

/** Bytes that are no UTF-8 stay encoded; the ASCII among them does not hide behind them. */
function decoded(run: string): string {
  try {
    return decodeURIComponent(run)
  } catch {
    return run.replace(/%[0-7][0-9a-f]/gi, decodeURIComponent)
  }
}

/** Is this one of the gateway's own paths, in any spelling? Those never reach the origin. */
export function isReserved(pathname: string): boolean {
  const path = canonicalPath(pathname).toLowerCase()
  return path === RESERVED || path.startsWith(`${RESERVED}/`)
}
