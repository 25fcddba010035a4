/**
 * API keys: `slk_<consumer>_<secret><crc>`, with an environment `slk_test_<consumer>_<secret><crc>`. The consumer stands in
 * the open, so that the key says where its record
 * is without a look-up; the secret is 30 random base62 characters (178 bits); the last six are a CRC-32 of all
 * before them, so that garbage and typos are refused without a trip. The checksum proves nothing else. Only the
 * SHA-256 of a key is ever stored, which is right for a random secret of this size: no salt, no slow hash.
 */
import { BASE62 } from '../base62.ts'
import { isConsumerName } from '../config/forms.ts'

const SECRET_LENGTH = 30
const CHECKSUM_LENGTH = 6
/** More than the longest prefix, environment, consumer and secret. */
const MAX_LENGTH = 160

/** What every key of a deployment begins with; also what secret scanners look for (docs/security.md). */
export function apiKeyStart(prefix = 'slk', environment?: string): string {
  return environment === undefined ? `${prefix}_` : `${prefix}_${environment}_`
}

const SECRET = /^[0-9A-Za-z]{36}$/

/** A new key for a consumer. It cannot be had again: store its digest, show it once. */
export function mintApiKey(consumer: string, start = apiKeyStart()): string {
  if (!isConsumerName(consumer)) throw new TypeError(`'${consumer}' is not a consumer name`)
  const body = `${start}${consumer}_${randomBase62(SECRET_LENGTH)}`
  return body + checksum(body)
}

/** Whose key this claims to be, or undefined when it is not one of our keys (form or checksum). Not a proof of anything. */
export function consumerOfApiKey(key: string, start = apiKeyStart()): string | undefined {
  if (!key.startsWith(start) || key.length > MAX_LENGTH) return undefined
  const end = key.lastIndexOf('_')
  const consumer = key.slice(start.length, end)
  if (!isConsumerName(consumer) || !SECRET.test(key.slice(end + 1))) return undefined
  const body = key.slice(0, -CHECKSUM_LENGTH)
  return checksum(body) === key.slice(-CHECKSUM_LENGTH) ? consumer : undefined
}

function randomBase62(length: number): string {
  let text = ''
  while (text.length < length) {
    // 248 = 4 × 62: bytes above are thrown away, so that every character is equally likely.
    const bytes = crypto.getRandomValues(new Uint8Array(length)).filter(byte => byte < 248)
    text += Array.from(bytes, byte => BASE62[byte % 62]).join('')
  }
  return text.slice(0, length)
}

function checksum(text: string): string {
  let rest = crc32(text)
  let digits = ''
  for (let i = 0; i < CHECKSUM_LENGTH; i++) {
    digits = BASE62[rest % 62] + digits
    rest = Math.floor(rest / 62)
  }
  return digits
}

/** CRC-32 as in ISO 3309 and zlib, over ASCII text. */
function crc32(text: string): number {
  let crc = 0xffffffff
  for (let i = 0; i < text.length; i++) crc = (crc >>> 8) ^ CRC_TABLE[(crc ^ text.charCodeAt(i)) & 0xff]!
  return ~crc >>> 0
}

/** What each byte adds: bit by bit, the checksum took a fifth of the time in which a caller is identified. */
const CRC_TABLE = /* @__PURE__ */ Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte
  for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0)
  return crc
})
