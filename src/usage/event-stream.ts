/** Reads the events of a stream (text/event-stream) from its bytes, and keeps at most one event. */
import { createParser, type EventSourceMessage } from 'eventsource-parser'
import type { LargeEvent } from './large-event.ts'

export interface EventReader {
  feed(chunk: Uint8Array): void
  /** Reads what is left: a last event without its blank line. */
  end(): void
}

/**
 * @param maxEventBytes so many characters of an event are kept
 * @param beginLarge begins to read an event that has more, from its beginning
 * @param endLarge gets it when it has ended
 */
export function createEventReader(
  maxEventBytes: number,
  onEvent: (event: EventSourceMessage) => void,
  beginLarge: () => LargeEvent,
  endLarge: (event: LargeEvent) => void,
): EventReader {
  const decoder = new TextDecoder()
  const parser = createParser({
    onEvent(event) {
      pending = 0
      count = 0
      onEvent(event)
    },
    maxBufferSize: maxEventBytes,
    onError,
  })
  let isTooLarge = false
  let large: LargeEvent | undefined
  /** Characters since the last event. The parser keeps the texts that its lines are part of, so it can hold all of them. */
  let pending = 0
  /** These texts, from the one on in which the last event has ended. */
  const texts: string[] = []
  /** How many: a new list, or an empty one, for each event would be most of what the collector has to do. */
  let count = 0
  function onError({ type }: { type: string }) {
    // Other errors are unknown fields, which the format ignores.
    if (type === 'max-buffer-size-exceeded') isTooLarge = true
  }

  /** @returns the text behind the large event; undefined: it has not ended */
  function readLarge(event: LargeEvent, text: string): string | undefined {
    const rest = event.feed(text)
    large = rest === undefined ? event : undefined
    if (rest !== undefined) endLarge(event)
    return rest
  }

  function read(text: string): void {
    const rest = large ? readLarge(large, text) : text
    if (rest === undefined) return
    pending += rest.length
    parser.feed(rest)
    texts[count++] = rest
    if (!isTooLarge && pending <= 2 * maxEventBytes) return
    const all = texts.slice(0, count).join('')
    count = 0
    isTooLarge = false
    pending = 0
    texts.length = 0
    parser.reset()
    // There is no blank line in an event. Its own can be at the end, if a CR comes last.
    const kept = all.trimEnd()
    const from = Math.max(...['\n\n', '\r\r', '\n\r\n'].map(end => kept.lastIndexOf(end) + 1))
    const behind = readLarge(beginLarge(), all.slice(from).trimStart())
    if (behind) read(behind)
  }

  return {
    feed: chunk => read(decoder.decode(chunk, { stream: true })),
    end() {
      if (large) endLarge(large)
      large = undefined
      parser.feed('\n\n')
    },
  }
}
