/**
 * Drops interim responses in front of a response. A client must be able to read any number of them, also `100 Continue` that it has not asked
 * for (RFC 9110, section 15.2), and undici (7.30) closes the connection at a 100. Only 101 is left to undici: it ends HTTP.
 */
import type { Socket } from 'node:net'

export interface InterimFilter {
  /** Called before each request: what arrives next is the beginning of its response. */
  expectResponse(): void
}

/** The bytes of an interim response at most. A longer one is left to undici. */
const MAX_BYTES = 4096

const START = 'HTTP/1.1 1'
/** Where the first digit of a status is. */
const DIGIT_AT = START.length - 1
const ONE = 49

/**
 * Only what no reader could end elsewhere: with a bare CR or LF in it, or a line without a name, a part of the response behind it, which a
 * caller may have chosen, could be taken for the response.
 */
const INTERIM = /^HTTP\/1\.1 1(?!01)\d\d(?: [^\r\n]*)?\r\n(?:[\w!#$%&'*+.^`|~-]+:[^\r\n]*\r\n)*\r\n/

/** @param socket undici has not read it before */
export function filterInterim(socket: Socket): InterimFilter {
  const { push } = socket
  let isBeginning = false
  let held = Buffer.alloc(0)
  socket.push = (chunk: Buffer | null, ...rest) => {
    const isOther = held.length === 0 && chunk && chunk.length > DIGIT_AT && chunk[DIGIT_AT] !== ONE
    if (isOther) isBeginning = false
    if (!isBeginning) return push.call(socket, chunk, ...rest)
    if (chunk) held = Buffer.concat([held, chunk])
    for (;;) {
      const text = held.toString('latin1', 0, MAX_BYTES)
      const length = INTERIM.exec(text)?.[0].length ?? 0
      if (length === 0) {
        if (chunk && isIncomplete(text)) return true
        break
      }
      held = held.subarray(length)
    }
    isBeginning = false
    const isWanted = held.length > 0 ? push.call(socket, held) : true
    held = Buffer.alloc(0)
    return chunk ? isWanted : push.call(socket, null)
  }
  return {
    expectResponse() {
      isBeginning = true
    },
  }
}

/** Whether it may become one when more arrives. */
function isIncomplete(text: string): boolean {
  if (text.length < START.length) return START.startsWith(text)
  return text.startsWith(START) && text.length < MAX_BYTES && !/\r\n\r\n|[^\r]\n/.test(text)
}
