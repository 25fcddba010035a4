import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createUsageChunkFilter } from '../../src/usage/usage-chunk.ts'
import { randomCases } from '../selection.ts'
import { forEvery } from '../support/property.ts'

const bytesOf = (text: string) => new TextEncoder().encode(text)
const textOf = (bytes: Uint8Array) => new TextDecoder().decode(bytes)

const USAGE = [
  'data: {"id":"1","choices":[],"usage":{"prompt_tokens":3}}',
  'data: {"choices":null,"usage" : {"prompt_tokens":3}}',
  'data: {"usage":{"prompt_tokens":3}}',
  'id: 7\ndata: {"choices":[],\ndata: "usage":{"prompt_tokens":3}}',
]
const OTHERS = [
  ': comment',
  'data: {"choices":[{"delta":{"content":"\\"usage\\":{}"}}],"usage":null}',
  'data: {"choices":[{"delta":{}}],"usage":{"prompt_tokens":3}}',
  'data: {"choices":[],"prompt_filter_results":[{"é":1}]}',
  'data: {"choices":[],"usage":{"broken',
  'event: a\ndata: b',
  'data: [DONE]',
  '',
]

/** Passes the text in chunks of the sizes, in turn. */
function filter(text: string, sizes: readonly number[], maxEventBytes = 10_000) {
  const bytes = bytesOf(text)
  const { pass, rest } = createUsageChunkFilter(maxEventBytes)
  const out: Uint8Array[] = []
  for (let at = 0, i = 0; at < bytes.length; i++) {
    const size = sizes[i % sizes.length]!
    const chunk = bytes.slice(at, at + size)
    out.push(pass(chunk).slice())
    // The chunk was passed on: the client can use its memory for something else.
    chunk.fill(0)
    at += size
  }
  out.push(rest())
  return { parts: out.map(textOf), text: textOf(Buffer.concat(out)) }
}

describe('the chunk that has only usage', () => {
  it('is taken out of a stream, whose other bytes stay, in any chunks and with any line endings', async () => {
    const cases = fc.record({
      events: fc.array(fc.constantFrom(...USAGE, ...OTHERS), { maxLength: 8 }),
      end: fc.constantFrom('\n', '\r\n', '\r'),
      sizes: fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1, maxLength: 5 }),
      tail: fc.constantFrom('', 'data: {"choices":[],"usage":{"prompt_tok'),
    })
    await forEvery(cases, randomCases(2000), async ({ events, end, sizes, tail }) => {
      const textOfEvents = (list: readonly string[]) =>
        list.map(event => `${event.replaceAll('\n', end)}${end}${end}`).join('') + tail
      const expected = textOfEvents(events.filter(event => !USAGE.includes(event)))
      expect(filter(textOfEvents(events), sizes).text).toBe(expected)
    })
  })

  it('delays no event that is complete', () => {
    const events = OTHERS.slice(0, 7).map(event => `${event}\n\n`)
    const { pass } = createUsageChunkFilter(10_000)
    for (const event of events) {
      const bytes = bytesOf(event)
      expect(textOf(pass(bytes.slice(0, 3)))).toBe('')
      expect(textOf(pass(bytes.slice(3)))).toBe(event)
      expect(textOf(pass(bytes))).toBe(event)
    }
  })

  it('is looked for in an event that arrives byte by byte', () => {
    const { pass } = createUsageChunkFilter(200_000)
    pass(bytesOf(': '))
    const letter = bytesOf('x')
    for (let i = 0; i < 150_000; i++) pass(letter)
    expect(pass(bytesOf(`\n${OTHERS[0]}\n\n${USAGE[0]}\n\n`))).toHaveLength(150_005 + OTHERS[0]!.length)
  })

  it('is looked for only in events up to the bound; larger ones are passed on as they arrive', () => {
    const large = `data: ${'x'.repeat(500)}\n\n`
    const { parts, text } = filter(large + `${USAGE[0]}\n\n` + large, [100], 250)
    expect(text).toBe(large + large)
    expect(parts.slice(0, 4).map(({ length }) => length)).toEqual([0, 0, 300, 100])
  })
})
