/**
 * SHA-256. An API key is stored only as its digest. crypto.subtle is not used: for a text as short as a credential, its
 * asynchronous call takes longer than the digest itself.
 */
import { sha256 as digest } from '@noble/hashes/sha2.js'
import { bytesToHex } from '@noble/hashes/utils.js'

const encoder = new TextEncoder()

type Sha256 = (data: string | Uint8Array) => string

/** @returns the digest in hexadecimal */
export let sha256: Sha256 = data => bytesToHex(digest(typeof data === 'string' ? encoder.encode(data) : data))

/** Uses the implementation of the platform, which must return the same. */
export function replaceSha256(implementation: Sha256): void {
  sha256 = implementation
}
