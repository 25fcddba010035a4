/** Fast hashes that are not cryptographic. For secrets, use sha256.ts. */

/** FNV-1a (Fowler, Noll, Vo) over the UTF-16 units of a text. @returns an unsigned 32-bit integer */
export function fnv1a(text: string): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  return hash >>> 0
}

/** The finalizer of MurmurHash3. Spreads FNV hashes of texts that differ only in their last letters. @returns an unsigned 32-bit integer */
export function finalizeHash(hash: number): number {
  let mixed = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35)
  return (mixed ^ (mixed >>> 16)) >>> 0
}
