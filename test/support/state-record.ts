/** The record of a rule in a state, as src/script/prelude.lua describes it. @param idleAt µs */
export function record(tag: string, idleAt: number, n: number): Buffer {
  const bytes = Buffer.alloc(14)
  bytes.write(tag, 'latin1')
  const bits = (BigInt(2 ** 42 - 1 - Math.floor(idleAt / 1000)) << 46n) + BigInt(n)
  bytes.write(bits.toString(16).padStart(22, '0'), 3, 'hex')
  return bytes
}
