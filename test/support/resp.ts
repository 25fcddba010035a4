/** The parts of the Redis protocol and of HTTP that a proxy needs. */

/** The end of the first command, which is a list of texts with their lengths. @returns 0 if the command is incomplete */
export function endOfCommand(bytes: Buffer): number {
  const head = lineAt(bytes, 0, '*')
  let end = head?.end ?? 0
  for (let words = head?.number ?? 0; words > 0; words--) {
    const length = lineAt(bytes, end, '$')
    if (!length) return 0
    end = length.end + length.number + 2
  }
  return end <= bytes.length ? end : 0
}

function lineAt(bytes: Buffer, start: number, kind: string): { number: number; end: number } | undefined {
  const end = bytes.indexOf('\r\n', start)
  if (end < 0) return undefined
  const line = bytes.toString('latin1', start, end)
  if (!line.startsWith(kind)) throw new Error(`This is not a command: ${line.slice(0, 40)}`)
  return { number: Number(line.slice(1)), end: end + 2 }
}

export function commandOf(...words: readonly string[]): Buffer {
  const texts = words.map(word => `$${Buffer.byteLength(word)}\r\n${word}\r\n`)
  return Buffer.from(`*${words.length}\r\n${texts.join('')}`)
}

/** The end of the first HTTP request, whose body has a length. @returns 0 if it is incomplete */
export function endOfRequest(bytes: Buffer): number {
  const body = bytes.indexOf('\r\n\r\n') + 4
  if (body < 4) return 0
  const [, length = 0] = /^content-length: *(\d+)/im.exec(bytes.toString('latin1', 0, body)) ?? []
  const end = body + Number(length)
  return end <= bytes.length ? end : 0
}
