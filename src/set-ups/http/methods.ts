/** The methods that origins may read from a request. */
import { isMethodOverride } from './header-names.ts'

/** The parameter that overrides the method of a POST, as Express, Laravel and Symfony read it. In PHP, `.` and `[` become `_`. */
const OVERRIDE_PARAMETER = /^[_.[]method$/

/**
 * The methods that the origin may see: as sent, and as overridden in a header or in the query. HEAD is GET without a body (RFC 9110,
 * section 9.3.2).
 */
export function httpMethodsOf({ method, headers }: Request, url: URL): Set<string>[] {
  const claimed: string[] = []
  // Only then can a parameter have this name.
  if (/method|%/.test(url.search)) {
    for (const [name, value] of url.searchParams)
      if (OVERRIDE_PARAMETER.test(name)) claimed.push(value.trim().toUpperCase())
  }
  headers.forEach((value, name) => {
    // Of a header that was sent twice, origins may read any value.
    if (isMethodOverride(name)) claimed.push(...value.split(',').map(method => method.trim().toUpperCase()))
  })
  return [method, ...claimed].map(method => new Set(method === 'HEAD' ? ['HEAD', 'GET'] : [method]))
}
