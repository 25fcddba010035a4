/**
 * Escapes a caller's text, so that it can be part of a key or a header. The text is percent-encoded. If it is too long or not
 * well-formed, the result is `#` and its SHA-256. Different texts have different results, because `#` itself is always encoded. The
 * result has none of the characters that separate the parts of keys and names: `{`, `}`, `:`, `,`, `=`, `*` and `~`.
 */
import { sha256 } from '../sha256.ts'

const MAX_ESCAPED = 100

/** @param value any text @returns at most 100 characters */
export function escaped(value: string): string {
  // Escaping never shortens a text.
  if (value.length <= MAX_ESCAPED && value.isWellFormed()) {
    const text = encodeURIComponent(value).replaceAll('*', '%2A').replaceAll('~', '%7E')
    if (text.length <= MAX_ESCAPED) return text
  }
  // Hashes the UTF-16 code units: UTF-8 would map all lone surrogates to the same character.
  const units = Uint16Array.from({ length: value.length }, (_, i) => value.charCodeAt(i))
  return `#${sha256(new Uint8Array(units.buffer))}`
}
