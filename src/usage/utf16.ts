/** Bodies of JSON in UTF-16, which some servers send to clients that ask for it. Usage is read from a copy in UTF-8. */

/** Reads the bytes of a body. The first two show whether it is UTF-16: by a byte order mark, or because one of them is 0 (RFC 4627, section 3). */
export function asUtf8(read: (bytes: Uint8Array) => void): (bytes: Uint8Array) => void {
  let first: number | undefined
  let pass: ((bytes: Uint8Array) => void) | undefined

  function passFor(first: number, second: number): (bytes: Uint8Array) => void {
    const isBig = first === 0 || (first === 0xfe && second === 0xff)
    const isLittle = second === 0 || (first === 0xff && second === 0xfe)
    if (isBig === isLittle) return read
    const decoder = new TextDecoder(isBig ? 'utf-16be' : 'utf-16le')
    const encoder = new TextEncoder()
    return bytes => read(encoder.encode(decoder.decode(bytes, { stream: true })))
  }

  return bytes => {
    if (pass) return pass(bytes)
    if (bytes.length === 0) return
    if (first === undefined && bytes.length === 1) {
      first = bytes[0]!
      return
    }
    const [a, b] = first === undefined ? [bytes[0]!, bytes[1]!] : [first, bytes[0]!]
    pass = passFor(a, b)
    if (first !== undefined) pass(new Uint8Array([first]))
    pass(bytes)
  }
}
