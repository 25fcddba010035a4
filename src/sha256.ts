/**
 * The only form in which a key is stored. Computed here and not by crypto.subtle, whose asynchronous hop costs more than the digest
 * of anything as short as a credential.
 */
import { sha256 as digest } from '@noble/hashes/sha2.js'
import { bytesToHex } from '@noble/hashes/utils.js'

const encoder = new TextEncoder()

/** @returns in hexadecimal */
export function sha256(data: string | Uint8Array): string {
  return bytesToHex(digest(typeof data === 'string' ? encoder.encode(data) : data))
}
