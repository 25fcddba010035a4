/**
 * The only form in which a key is stored. Computed here and not by crypto.subtle, whose asynchronous hop costs more than the digest
 * of anything as short as a credential.
 */
import { sha256 as digest } from '@noble/hashes/sha2.js'
import { bytesToHex, utf8ToBytes } from '@noble/hashes/utils.js'

/** @returns in hexadecimal */
export function sha256(data: string | Uint8Array): string {
  return bytesToHex(digest(typeof data === 'string' ? utf8ToBytes(data) : data))
}
