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
  const parser = createParser({ onEvent, maxBufferSize: maxEventBytes, onError })
  let isTooLarge = false
  function onError({ type }: { type: string }) {
    // Other errors are unknown fields, which the format ignores.
    if (type === 'max-buffer-size-exceeded') isTooLarge = true
  }
  return {
    feed(chunk) {
      parser.feed(decoder.decode(chunk, { stream: true }))
      if (!isTooLarge) return
      isTooLarge = false
      onTooLarge()
      // It skips what remains of the line.
      parser.reset()
    },
  }
}
