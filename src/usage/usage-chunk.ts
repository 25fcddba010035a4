/**
 * A stream of OpenAI's chat completions has its usage only if the request asks for it. Then its last chunk has no choices, which clients that
 * have not asked may not expect. So the gateway asks, and takes this chunk out again. The other chunks have `"usage": null`, which
 * stays.
 */
import { createParser } from 'eventsource-parser'
import { concat } from './concat.ts'
import { isUsageChunk, USAGE_OBJECT } from './formats.ts'
import { KeptBytes } from './kept-bytes.ts'

export interface UsageChunkFilter {
  /** Returns the events that are complete, and holds back the beginning of the next one. */
  pass(chunk: Uint8Array): Uint8Array
  /** The beginning of an event that did not end. */
  rest(): Uint8Array
}

const [LF, CR] = [10, 13] as const
const NOTHING = new Uint8Array()

/**
 * Takes the usage chunk out of a stream of chat completions. The bytes of all other events are not changed.
 * @param maxEventBytes a larger event is passed on as it arrives
 */
export function createUsageChunkFilter(maxEventBytes: number): UsageChunkFilter {
  const held = new KeptBytes()
  /** The current event is too large, and its beginning was passed on. */
  let isPassing = false
  let isLineEmpty = true
  let followsCr = false
  /** The last event ended with a CR at the end of its chunk, and was passed on or taken out. If a LF follows, it belongs to this event. */
  let endedWithCr: 'passed' | 'taken' | undefined

  /** Where the current event ends in the chunk (the position after its blank line), from a position on; undefined: not in this chunk. */
  function endOfEvent(chunk: Uint8Array, from: number): number | undefined {
    for (let at = from; at < chunk.length; at++) {
      const byte = chunk[at]
      if (byte === LF && followsCr) {
        // The second half of a line ending.
        followsCr = false
        continue
      }
      followsCr = byte === CR
      if (byte !== LF && byte !== CR) {
        isLineEmpty = false
        continue
      }
      if (isLineEmpty) {
        if (byte === LF || chunk[at + 1] !== LF) return at + 1
        followsCr = false
        return at + 2
      }
      isLineEmpty = true
    }
    return undefined
  }

  return {
    pass(chunk) {
      const out: Uint8Array[] = []
      /** Where the bytes begin that are passed on together. */
      let passFrom = 0
      let from = 0
      if (endedWithCr && chunk[0] === LF) {
        followsCr = false
        from = 1
        if (endedWithCr === 'taken') passFrom = 1
      }
      if (chunk.length > 0) endedWithCr = undefined
      for (;;) {
        const end = endOfEvent(chunk, from)
        if (end === undefined) break
        const beginning = held.take()
        const event = concat([beginning, chunk.subarray(from, end)])
        const isTaken = !isPassing && hasOnlyUsage(event)
        if (isTaken) {
          out.push(chunk.subarray(passFrom, from))
          passFrom = end
        } else out.push(beginning)
        if (followsCr && end === chunk.length) endedWithCr = isTaken ? 'taken' : 'passed'
        isPassing = false
        from = end
      }
      if (!isPassing && held.length + chunk.length - from > maxEventBytes) {
        out.push(held.take())
        isPassing = true
      }
      out.push(chunk.subarray(passFrom, isPassing ? chunk.length : from))
      if (!isPassing) held.add(chunk.subarray(from))
      const parts = out.filter(({ byteLength }) => byteLength > 0)
      return parts.length === 0 ? NOTHING : parts.length === 1 ? parts[0]! : concat(parts)
    },
    rest: () => held.take(),
  }
}

const decoder = new TextDecoder()

function hasOnlyUsage(event: Uint8Array): boolean {
  const text = decoder.decode(event)
  if (!USAGE_OBJECT.test(text)) return false
  let isUsage = false
  const parser = createParser({
    onEvent({ data }) {
      try {
        isUsage = isUsageChunk(JSON.parse(data))
      } catch {}
    },
  })
  parser.feed(text)
  return isUsage
}
