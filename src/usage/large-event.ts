/** Reads an event that is too large to be kept: only what is looked for in its data, which is JSON. */
import { createJsonValues, type FoundValue, type JsonPath } from './json-values.ts'

export interface LargeEvent {
  /**
   * Reads text of the event.
   * @returns the text behind the event; undefined: it has not ended
   */
  feed(text: string): string | undefined
  /** Call once, at the end of the event or of the stream. @returns what is at each path */
  end(): readonly (FoundValue | undefined)[]
}

const DATA = 'data:'

export function createLargeEvent(paths: readonly JsonPath[]): LargeEvent {
  const values = createJsonValues(paths)
  const encoder = new TextEncoder()
  /** The beginning of the current line, as far as it tells its field. */
  let field = ''
  let followsCr = false

  function readPart(part: string): void {
    const missing = DATA.length - field.length
    field += part.slice(0, missing)
    if (field === DATA && part.length > missing) values.feed(encoder.encode(part.slice(missing)))
  }

  return {
    feed(text) {
      let at = 0
      while (at < text.length) {
        if (followsCr && text[at] === '\n') at += 1
        followsCr = false
        const length = text.slice(at).search(/[\r\n]/)
        readPart(text.slice(at, length < 0 ? undefined : at + length))
        if (length < 0) return undefined
        at += length
        followsCr = text[at] === '\r'
        at += 1
        if (field === '') return text.slice(at)
        field = ''
      }
      return undefined
    },
    end() {
      values.end()
      return values.found
    },
  }
}
