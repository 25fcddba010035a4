/** The body of a message as a web stream that reads nothing in advance. */
import type { Readable } from 'node:stream'

/** A request of `node:http`, or the response of an origin. */
type Message = Readable & { readonly complete: boolean }

/**
 * @param onRead called before the first read
 * @param onCancel called when the rest is not wanted. Default: destroys the message
 * @returns the body. It fails if the message breaks off
 */
export function bodyStream(
  message: Message,
  onRead: () => void = () => {},
  onCancel: () => void = () => void message.destroy(),
): ReadableStream<Uint8Array> {
  let isEnded = message.readableEnded
  let wake = () => {}
  const onReadable = () => wake()
  const begin = () => {
    message.on('readable', onReadable)
    message.on('end', () => {
      isEnded = true
      wake()
    })
    message.on('close', () => wake())
    message.on('error', () => wake())
  }
  let hasBegun = false
  async function readNext(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    for (;;) {
      const chunk: Buffer | null = isEnded || message.destroyed ? null : message.read()
      if (chunk) return controller.enqueue(chunk)
      if (isEnded) return controller.close()
      if (message.destroyed) throw message.errored ?? new Error('The body has broken off.')
      await new Promise<void>(resolve => {
        wake = resolve
      })
    }
  }
  return new ReadableStream(
    {
      pull(controller) {
        if (hasBegun) return readNext(controller)
        hasBegun = true
        onRead()
        // A short body has arrived with its head, and needs no events.
        if (message.complete && message.readableLength > 0 && !message.destroyed) {
          controller.enqueue(message.read())
          return controller.close()
        }
        begin()
        return readNext(controller)
      },
      cancel() {
        message.off('readable', onReadable)
        onCancel()
      },
    },
    { highWaterMark: 0 },
  )
}
