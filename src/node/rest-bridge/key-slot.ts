/**
 * The slot of a key, as Redis Cluster computes it: CRC16 (the XMODEM variant) of the hash tag, or of the whole key
 * when it has none, modulo 16384.
 */

export const SLOTS = 16384

const TABLE = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1
  return crc
})

export function slotOf(key: string | Buffer): number {
  let crc = 0
  for (const byte of hashed(Buffer.from(key))) crc = ((crc << 8) & 0xffff) ^ TABLE[(crc >> 8) ^ byte]!
  return crc % SLOTS
}

/** What stands between the first `{` and the next `}`; with nothing between them there is no tag at all. */
function hashed(key: Buffer): Buffer {
  const open = key.indexOf('{')
  const close = open < 0 ? -1 : key.indexOf('}', open + 1)
  return close > open + 1 ? key.subarray(open + 1, close) : key
}
