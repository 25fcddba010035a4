/**
 * The slot of a key, as Redis Cluster computes it: CRC16 (the XMODEM variant) of the hash tag, or of the whole key
 * when it has none, modulo 16384.
 *
 * Computed here, because the package cluster-key-slot is archived, and wrong if the first braces are empty: it computes 4015
 * for `foo{}{bar}`, and Redis 8363. node-redis and ioredis replaced the package for this reason (redis/node-redis#3431).
 */

export const SLOTS = 16384

const TABLE = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1
  return crc
})

export function slotOf(key: string | Buffer): number {
  let crc = 0
  for (const byte of hashedPart(Buffer.from(key))) crc = ((crc << 8) & 0xffff) ^ TABLE[(crc >> 8) ^ byte]!
  return crc % SLOTS
}

/** The bytes between the first `{` and the next `}`; empty braces are not a tag, and the whole key counts. */
function hashedPart(key: Buffer): Buffer {
  const open = key.indexOf('{')
  const close = open < 0 ? -1 : key.indexOf('}', open + 1)
  return close > open + 1 ? key.subarray(open + 1, close) : key
}
