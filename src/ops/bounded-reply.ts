/** Replies of servers that a command was given the URL of: they are read up to a size, whatever they announce. */

/** A reply has more bytes than were read of it. */
export class ReplyTooLarge extends Error {
  /** Bytes. */
  readonly most: number

  constructor(most: number) {
    super(`The reply has more than ${sizeText(most)}.`)
    this.most = most
  }
}

/** `16 MB` */
export const sizeText = (bytes: number) => (bytes >= 1e6 ? `${bytes / 1e6} MB` : `${bytes / 1e3} kB`)

/**
 * Reads a body as text. The rest of a longer one is cancelled, which closes its connection.
 * @param most bytes, after decompression
 * @throws ReplyTooLarge, and if the connection breaks
 */
export async function readTextUpTo(most: number, { body }: Pick<Response, 'body'>): Promise<string> {
  const decoder = new TextDecoder()
  let text = ''
  let read = 0
  for await (const chunk of body ?? []) {
    read += chunk.byteLength
    if (read > most) throw new ReplyTooLarge(most)
    text += decoder.decode(chunk, { stream: true })
  }
  return text + decoder.decode()
}
