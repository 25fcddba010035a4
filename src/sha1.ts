/** SHA-1, by which Redis identifies a script. Not for secrets. */
import { sha1 as digest } from '@noble/hashes/legacy.js'
import { bytesToHex, utf8ToBytes } from '@noble/hashes/utils.js'

/** @returns the digest in hexadecimal */
export function sha1(text: string): string {
  return bytesToHex(digest(utf8ToBytes(text)))
}
