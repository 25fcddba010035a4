/** The one spelling of a path and of a host, in patterns and in the values that are matched against them. Pure. */

/** Characters that a URL has encoded in its path (WHATWG, URL Standard, section 1.3), and the backslash. */
const ENCODED_IN_PATHS = /[^!$-;=@-Z[\]_a-z|~]+/gu

/** A path with all characters encoded that a URL encodes, in lower case: many origins treat `/Login` as `/login`. */
export function canonicalPath(path: string): string {
  return path.replace(ENCODED_IN_PATHS, text => encodeURIComponent(text.toWellFormed())).toLowerCase()
}

/**
 * A host, or a part of one, in lower case and in ASCII.
 * @throws TypeError if it cannot be in a host
 */
export function canonicalHost(host: string): string {
  if (IPV6.test(host)) return host.toLowerCase()
  if (/[\s/?#@:\\]/.test(host)) throw new TypeError(`${host} is not a host`)
  if (/^[\w.-]*$/.test(host)) return host.toLowerCase()
  return new URL(`https://${host}`).hostname
}

const IPV6 = /^\[[\da-f:.]+\]$/i

/**
 * A whole host, in which `127.1` and `[0::1]` become the address that they mean.
 * @throws TypeError if it is not a host
 */
export const canonicalAddress = (host: string): string => new URL(`https://${host}`).hostname
