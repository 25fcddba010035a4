/** Reads the events of a stream (text/event-stream) from its bytes, and keeps at most one event. */
import { createParser, type EventSourceMessage } from 'eventsource-parser'

export interface EventReader {
  feed(chunk: Uint8Array): void
}

/**
 * @param maxEventBytes an event that has more characters is skipped
 * @param onTooLarge called for each event that is skipped
 */
export function createEventReader(
  maxEventBytes: number,
  onEvent: (event: EventSourceMessage) => void,
  onTooLarge: () => void,
): EventReader {
  const decoder = new TextDecoder()
  const parser = createParser({
    onEvent(event) {
      pending = 0
      onEvent(event)
    },
    maxBufferSize: maxEventBytes,
    onError,
  })
  let isTooLarge = false
  /** Characters since the last event. The parser keeps the texts that its lines are part of, so it can hold all of them. */
  let pending = 0
  function onError({ type }: { type: string }) {
    // Other errors are unknown fields, which the format ignores.
    if (type === 'max-buffer-size-exceeded') isTooLarge = true
  }
  return {
    feed(chunk) {
      const text = decoder.decode(chunk, { stream: true })
      pending += text.length
      parser.feed(text)
      if (!isTooLarge && pending <= 2 * maxEventBytes) return
      isTooLarge = false
      pending = 0
      onTooLarge()
      // It skips what remains of the line.
      parser.reset()
    },
  }
}
