/** Reading usage takes no memory that grows with the reply. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, it } from 'vitest'
import type { UsageReader } from '../../src/usage/usage.ts'
import { createUsageReader } from '../../src/usage/usage-reader.ts'

setFlagsFromString('--expose-gc')
const gc = runInNewContext('gc') as () => void
/** The second run waits until the first one has given back what buffers had. */
const collect = () => {
  gc()
  gc()
}

/** An hour of a fast model: 280 events a second. */
const EVENTS = 1_000_000
/** Less than one pointer for each event (bytes). What else runs in the process takes some. */
const MOST_GROWTH = 7_000_000

const head = (type: string) => ({ status: 200, headers: new Headers({ 'content-type': type }) })
const bytesOf = (text: string) => new TextEncoder().encode(text)

/** Heap and buffers after the events of each tenth (bytes). */
function heaps(reader: UsageReader, eventOf: (i: number) => string): number[] {
  return Array.from({ length: 10 }, (_, tenth) => {
    const perChunk = 100
    for (let i = 0; i < EVENTS / 10; i += perChunk) {
      let text = ''
      for (let j = 0; j < perChunk; j++) text += eventOf((tenth * EVENTS) / 10 + i + j)
      // An event is often in two chunks.
      const chunk = bytesOf(text)
      for (const part of [chunk.subarray(0, 5000), chunk.subarray(5000)]) {
        reader.pass(part)
        void reader.see(part)
      }
    }
    collect()
    const { heapUsed, arrayBuffers } = process.memoryUsage()
    return heapUsed + arrayBuffers
  })
}

describe('the memory of a reader', () => {
  const chatEvent = (i: number) =>
    `data: {"id":"chatcmpl-${i}","choices":[{"index":0,"delta":{"content":"word${i} "}}],"usage":null}\n\n`
  const messageEvent = (i: number) =>
    `event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"word${i} "}}\n\n`

  it.each([
    ['chat completions', 'openai', false, 'text/event-stream', chatEvent],
    ['chat completions whose usage is hidden', 'openai', true, 'text/event-stream', chatEvent],
    ['messages', 'anthropic', false, 'text/event-stream', messageEvent],
    [
      'JSON',
      'openai',
      false,
      'application/json',
      (i: number) => `${i === 0 ? '{"data":[' : ','}{"text":"word${i}"}`,
    ],
  ] as const)(
    'does not grow with a reply of a million parts: %s',
    async (_, usage, hidesUsage, type, eventOf) => {
      const reader = createUsageReader({ tokens: { usage } }, head(type), { hidesUsage })
      const [first = 0, ...later] = heaps(reader, eventOf)
      expect(Math.min(...later.slice(-3)) - first).toBeLessThan(MOST_GROWTH)
      const { tokens } = await reader.end('cancelled')
      expect(tokens).toBe(undefined)
    },
  )

  const grows = (reader: UsageReader, parts: Iterable<string>) => {
    collect()
    const before = process.memoryUsage()
    for (const text of parts) {
      const part = bytesOf(text)
      reader.pass(part)
      void reader.see(part)
    }
    collect()
    const after = process.memoryUsage()
    return after.heapUsed + after.arrayBuffers - before.heapUsed - before.arrayBuffers
  }

  it('is bounded for an event with a short line in each of many large chunks', () => {
    const reader = createUsageReader({ tokens: { usage: 'openai' } }, head('text/event-stream'))
    const parts = function* () {
      for (let i = 0; i < 1000; i++) yield `: ${'x'.repeat(60_000)}\ndata: line ${i} with some text\n`
    }
    expect(grows(reader, parts())).toBeLessThan(MOST_GROWTH)
  })

  it('is bounded for a body that arrives byte by byte', () => {
    const bytes = function* (start: string, count: number) {
      yield start
      for (let i = 0; i < count; i++) yield 'x'
    }
    const source = { tokens: { usage: 'openai' } } as const
    const hiding = createUsageReader(source, head('text/event-stream'), { hidesUsage: true })
    expect(grows(hiding, bytes('data: ', 500_000))).toBeLessThan(3 * MOST_GROWTH)
    const ofJson = createUsageReader(source, head('application/json'))
    expect(grows(ofJson, bytes('{"usage":{"a":"', 65_000))).toBeLessThan(MOST_GROWTH)
  })
})
