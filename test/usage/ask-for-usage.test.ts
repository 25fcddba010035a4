import { describe, expect, it } from 'vitest'
import { createUsageAsker } from '../../src/usage/ask-for-usage.ts'

/** Edits the text, in chunks of a size. */
function edit(text: string, size = text.length, isWanted = true): string {
  const asker = createUsageAsker(() => isWanted)
  const bytes = new TextEncoder().encode(text)
  let edited = ''
  for (let at = 0; at < bytes.length; at += size)
    for (const part of asker.edit(bytes.subarray(at, at + size))) edited += String.fromCharCode(...part)
  expect(asker.hasAsked()).toBe(edited !== String.fromCharCode(...bytes))
  return edited
}

describe('a completion that streams asks for its usage', () => {
  it.each([
    [
      '{"stream":true,"messages":[]}',
      '{"stream":true,"messages":[],"stream_options":{"include_usage":true}}',
    ],
    ['{}', '{"stream_options":{"include_usage":true}}'],
    [
      ' { "seed": 9007199254740993, "t":1.0 }\n',
      ' { "seed": 9007199254740993, "t":1.0 ,"stream_options":{"include_usage":true}}\n',
    ],
    [
      '{"stream_options":{"include_obfuscation":false},"messages":["a"]}',
      '{"stream_options":{"include_obfuscation":false,"include_usage":true},"messages":["a"]}',
    ],
    ['{"stream_options":{}}', '{"stream_options":{"include_usage":true}}'],
    [
      '{"stream_options":{"include_usage":false,"x":{"y":[1]}}}',
      '{"stream_options":{"include_usage":true,"x":{"y":[1]}}}',
    ],
    ['{"stream_options":{"include_usage":{"a":1}}}', '{"stream_options":{"include_usage":true}}'],
    ['{"stream_options":null,"a":1}', '{"stream_options":{"include_usage":true},"a":1}'],
    ['{"stream_options":[{"a":[1]}],"a":1}', '{"stream_options":{"include_usage":true},"a":1}'],
    ['{"stream_options":"wrong"}', '{"stream_options":{"include_usage":true}}'],
    // Members that come twice, in escapes or in other letters: parsers take the first, the last, or any of them.
    [
      '{"stream_options":{"include_usage":false},"stream_options":{}}',
      '{"stream_options":{"include_usage":true},"stream_options":{"include_usage":true}}',
    ],
    [
      '{"stream_options":{"include_usage":true,"include_usage":false}}',
      '{"stream_options":{"include_usage":true,"include_usage":true}}',
    ],
    [
      '{"Stream_Options":{"Include_Usage":0}}',
      '{"Stream_Options":{"Include_Usage":true,"include_usage":true},"stream_options":{"include_usage":true}}',
    ],
    ['{"\\u0073tream_options":{"a":"}"}}', '{"\\u0073tream_options":{"a":"}","include_usage":true}}'],
    [
      '{"messages":[{"stream_options":{}}]}',
      '{"messages":[{"stream_options":{}}],"stream_options":{"include_usage":true}}',
    ],
  ])('%s', (text, edited) => {
    for (const size of [1, 2, 7, text.length]) expect(edit(text, size)).toBe(edited)
  })

  it('stays as it is if it asks already, is not JSON, or does not have to ask', () => {
    for (const text of ['{"stream_options":{"include_usage":true}}', '[{}]', '"a"', '{"a":NaN}', '\u0000'])
      expect(edit(text)).toBe(text)
    expect(edit('{"stream_options":{}}', 5, false)).toBe('{"stream_options":{}}')
  })

  it('keeps options of any length, without keeping them in memory', () => {
    const long = 'x'.repeat(100_000)
    expect(edit(`{"stream_options":{"include_usage":false,"x":"${long}"}}`, 1000)).toBe(
      `{"stream_options":{"include_usage":true,"x":"${long}"}}`,
    )
  })

  it('of any depth', () => {
    const deep = `${'['.repeat(6000)}${']'.repeat(6000)}`
    expect(edit(`{"stream_options":{"x":${deep}}}`, 100)).toBe(
      `{"stream_options":{"x":${deep},"include_usage":true}}`,
    )
  })
})
