/**
 * A caller's text as part of a key or a header: percent-encoded; long or malformed text becomes `#` and its SHA-256.
 * Different texts stay different (`#` itself never stays), and nothing is left of `{`, `}`, `:`, `,`, `=`, `*` and `~`,
 * with which keys and names are put together.
 */
import { sha256 } from '../sha256.ts'

const MAX_ESCAPED = 100

export function escaped(value: string): string {
  // Escaping shortens nothing.
  const canFit = value.length <= MAX_ESCAPED && value.isWellFormed()
  const text = canFit ? percentEncoded(value) : undefined
  if (text !== undefined && text.length <= MAX_ESCAPED) return text
  // UTF-16 as it is, so that broken surrogates stay apart.
  const units = Uint16Array.from({ length: value.length }, (_, i) => value.charCodeAt(i))
  return `#${sha256(new Uint8Array(units.buffer))}`
}

function percentEncoded(value: string): string {
  return encodeURIComponent(value).replaceAll('*', '%2A').replaceAll('~', '%7E')
}
