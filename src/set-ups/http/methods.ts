/** The methods that origins may read from a request. */
import { isMethodOverride } from './header-names.ts'

/**
 * The parameter that overrides the method of a POST, as Express, Laravel and Symfony read it. In PHP, `.` and `[` become `_`, and a name
 * begins after its spaces and ends at the first NUL.
 */
const OVERRIDE_PARAMETER = /^ *[_.[]method(?:\0|$)/

/**
 * The methods that the origin may see: as sent, and as overridden in a header or in the query. HEAD is GET without a body (RFC 9110,
 * section 9.3.2).
 */
export function httpMethodsOf({ method, headers }: Request, url: URL): Set<string>[] {
  // A set: a client can send thousands of names, and each costs more than reading it.
  const claimed = new Set<string>()
  // Only then can a parameter have this name.
  if (/method|%/.test(url.search)) {
    for (const [name, value] of url.searchParams)
      if (OVERRIDE_PARAMETER.test(name)) claimed.add(value.trim().toUpperCase())
  }
  headers.forEach((value, name) => {
    // Of a header that was sent twice, origins may read any value.
    if (isMethodOverride(name))
      for (const method of value.split(',')) claimed.add(method.trim().toUpperCase())
  })
  return [method, ...claimed].map(method => new Set(method === 'HEAD' ? ['HEAD', 'GET'] : [method]))
}
