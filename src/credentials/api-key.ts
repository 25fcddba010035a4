/**
 * API keys: `slk_<consumer>_<secret><checksum>`, or `slk_test_<consumer>_<secret><checksum>` with an environment.
 *
 * - The consumer is readable, so the key of its record is known without a look-up.
 * - The secret has 30 random base62 characters (178 bits).
 * - The last six characters are a CRC-32 of everything before them. Typos and garbage are refused without a trip to
 *   the store. The checksum proves nothing else. GitHub tokens have the same form
 *   (https://github.blog/2021-04-05-behind-githubs-new-authentication-token-formats/).
 * - A signed key has a signature in place of the checksum (key-signature.ts). The length tells the two apart.
 * - A test key has a `t` after the secret. So the mode is known without a look-up, and cannot be changed: the key would be another one.
 *
 * The store has only the SHA-256 of a key. A random secret of this length needs neither a salt nor a slow hash.
 */
import { BASE62 } from '../base62.ts'
import type { CallerMode } from '../config/caller-mode.ts'
import { isConsumerName } from '../config/forms.ts'

const SECRET_LENGTH = 30
const CHECKSUM_LENGTH = 6
/** Longer than any prefix, environment, consumer and secret together. */
const MAX_LENGTH = 160

/**
 * The text that all keys of a deployment start with. Secret scanners search for it (docs/security.md).
 *
 * @param prefix `credentials.keyPrefix` of the config
 */
export function apiKeyStart(prefix = 'slk', environment?: string): string {
  return environment === undefined ? `${prefix}_` : `${prefix}_${environment}_`
}

const TAIL = /^[0-9A-Za-z]{30}t?[0-9A-Za-z]{6}$/
/** The secret, and 28 characters for the signature. */
const SIGNED_TAIL = /^[0-9A-Za-z]{30}[lt][0-9A-Za-z]{27}$/
/** A test key, with a checksum or a signature. */
const TEST_KEY = /_[0-9A-Za-z]{30}t(?:[0-9A-Za-z]{6}|[0-9A-Za-z]{27})$/

/**
 * Creates a key for a consumer. It cannot be recovered: show it once, and store only its SHA-256.
 *
 * @throws TypeError if the consumer is not a valid name
 */
export function mintApiKey(consumer: string, start = apiKeyStart(), mode: CallerMode = 'live'): string {
  const body = mintKeyBody(consumer, start) + (mode === 'test' ? 't' : '')
  return body + checksum(body)
}

/** Creates a key without its checksum or signature. @throws TypeError if the consumer is not a valid name */
export function mintKeyBody(consumer: string, start: string): string {
  if (!isConsumerName(consumer)) throw new TypeError(`'${consumer}' is not a consumer name`)
  return `${start}${consumer}_${randomBase62(SECRET_LENGTH)}`
}

/**
 * Reads the consumer from a key, without a trip to the store. Does not check the signature of a signed key.
 *
 * @returns undefined if the form or the checksum is wrong. A result proves nothing: anyone can write a key for any
 * consumer
 */
export function consumerOfApiKey(key: string, start = apiKeyStart()): string | undefined {
  if (!key.startsWith(start) || key.length > MAX_LENGTH) return undefined
  const end = key.lastIndexOf('_')
  const consumer = key.slice(start.length, end)
  const tail = key.slice(end + 1)
  if (!isConsumerName(consumer)) return undefined
  if (SIGNED_TAIL.test(tail)) return consumer
  if (!TAIL.test(tail)) return undefined
  const body = key.slice(0, -CHECKSUM_LENGTH)
  return checksum(body) === key.slice(-CHECKSUM_LENGTH) ? consumer : undefined
}

/** The mode of a key whose form is valid (consumerOfApiKey). */
export const modeOfApiKey = (key: string): CallerMode => (TEST_KEY.test(key) ? 'test' : 'live')

export function randomBase62(length: number): string {
  let text = ''
  while (text.length < length) {
    // 248 is 4 × 62. Bytes from 248 on are discarded, so that every character is equally likely.
    const bytes = crypto.getRandomValues(new Uint8Array(length)).filter(byte => byte < 248)
    text += Array.from(bytes, byte => BASE62[byte % 62]).join('')
  }
  return text.slice(0, length)
}

/** Six base62 characters. It finds typos and proves nothing. */
export const checksum = (text: string): string => base62(crc32(text), CHECKSUM_LENGTH)

/** A whole number in base62, with leading zeros. */
export function base62(value: number, length: number): string {
  let left = value
  let digits = ''
  for (let i = 0; i < length; i++) {
    digits = BASE62[left % 62] + digits
    left = Math.floor(left / 62)
  }
  return digits
}

/** CRC-32 as in ISO 3309 and zlib, of ASCII text. */
function crc32(text: string): number {
  let crc = 0xffffffff
  for (let i = 0; i < text.length; i++) crc = (crc >>> 8) ^ CRC_TABLE[(crc ^ text.charCodeAt(i)) & 0xff]!
  return ~crc >>> 0
}

/** The remainder of each byte. Without this table, the checksum took a fifth of all the time that it takes to identify a caller. */
const CRC_TABLE = /* @__PURE__ */ Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte
  for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0)
  return crc
})
