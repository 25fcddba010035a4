/** What a request declares its body to be. */

/**
 * - `json`: JSON in UTF-8, or in an encoding that has its ASCII.
 * - `other`: another type, or none. Many servers read it as JSON nevertheless.
 * - `multipart`: a form.
 */
export type DeclaredType = 'json' | 'other' | 'multipart'

/** The types of JSON (RFC 6839, section 3.1). */
const JSON_TYPE = /^(?:application|text)\/(?:[a-z0-9.!#$&^_-]+\+)?json$/

/** Encodings in which the bytes of ASCII mean ASCII, and nothing else does. */
const AS_ASCII = new Set(['utf-8', 'utf8', 'us-ascii', 'ascii', 'iso-8859-1', 'latin1'])

/** @param header Content-Type */
export function declaredTypeOf(header: string | null | undefined): DeclaredType {
  const type = (header ?? '').split(';', 1)[0]!.trim().toLowerCase()
  if (type.startsWith('multipart/')) return 'multipart'
  return JSON_TYPE.test(type) ? 'json' : 'other'
}

/**
 * Parsers differ in which parameter they take if there are several, and in what they take for one inside of quotes.
 *
 * @param header Content-Type
 * @param own the encodings that are read here
 * @returns the encoding that it declares, if the body has to be read in another way than here
 */
export function foreignCharsetOf(
  header: string | null,
  own: ReadonlySet<string> = AS_ASCII,
): string | undefined {
  const declared = (header ?? '').matchAll(/charset\s*=\s*"?([^\s;"]*)/gi)
  return [...declared].map(([, charset]) => charset!).find(charset => !own.has(charset.toLowerCase()))
}

/** Whether bytes begin as UTF-16 or UTF-32 does: with its mark, or with a zero byte beside the first bracket. */
export function isWideText(first: Uint8Array): boolean {
  const [a, b] = first
  return a === 0 || b === 0 || (a === 0xfe && b === 0xff) || (a === 0xff && b === 0xfe)
}
