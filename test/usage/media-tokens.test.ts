/** What pictures, sounds and files in requests cost, and that no text is taken for one. */
import { describe, expect, it } from 'vitest'
import { LlmScan } from '../../src/usage/llm-scan.ts'
import { mediumTokens } from '../../src/usage/media-tokens.ts'

const base64 = (bytes: Uint8Array, length = bytes.length) => {
  const all = new Uint8Array(Math.max(length, bytes.length))
  all.set(bytes)
  return Buffer.from(all).toString('base64')
}
const bytesOf = (...parts: (string | number[])[]) =>
  Uint8Array.from(parts.flatMap(part => (typeof part === 'string' ? [...Buffer.from(part, 'latin1')] : part)))
const u16 = (n: number) => [n >> 8, n & 255]
const le16 = (n: number) => [n & 255, n >> 8]

const png = (width: number, height: number) =>
  bytesOf('\x89PNG\r\n\x1a\n', [0, 0, 0, 13], 'IHDR', [0, 0], u16(width), [0, 0], u16(height))
const gif = (width: number, height: number) => bytesOf('GIF89a', le16(width), le16(height))
const jpeg = (width: number, height: number) =>
  bytesOf([0xff, 0xd8, 0xff, 0xe0, 0, 6, 1, 2, 3, 4, 0xff, 0xc2, 0, 17, 8], u16(height), u16(width))
const riff = (chunk: string, rest: number[]) => bytesOf('RIFF', [0, 0, 0, 0], 'WEBP', chunk, rest)
const webp = (width: number, height: number) =>
  riff('VP8X', [10, 0, 0, 0, 0, 0, 0, 0, ...le16(width - 1), 0, ...le16(height - 1), 0])
const lossy = (width: number, height: number) =>
  riff('VP8 ', [0, 0, 0, 0, 0, 0, 0, 0x9d, 1, 0x2a, ...le16(width), ...le16(height)])
const lossless = (width: number, height: number) => {
  const bits = (width - 1) | ((height - 1) << 14)
  return riff('VP8L', [0, 0, 0, 0, 0x2f, bits & 255, (bits >> 8) & 255, (bits >> 16) & 255, bits >> 24])
}
const KINDS = [png, gif, jpeg, webp, lossy, lossless]

const image = (bytes: Uint8Array, format: 'openai' | 'anthropic' | 'gemini') =>
  mediumTokens('image', format, base64(bytes, 60), 900_000)

describe('a picture', () => {
  it.each([
    [1024, 1024, 2520, 1369, 2240],
    [512, 512, 630, 361, 2240],
    [2048, 1024, 3779, 2738, 2240],
    [16, 16, 255, 1, 2240],
    [8000, 8000, 3779, 4784, 16 * 258],
    [3000, 10, 765, 108, 2240],
    [2304, 2304, 3779, 4784, 9 * 258],
  ])('of %i × %i costs %i, %i and %i tokens, in every kind of file', (width, height, ...tokens) => {
    for (const kind of KINDS) {
      const costs = (['openai', 'anthropic', 'gemini'] as const).map(format =>
        image(kind(width, height), format),
      )
      expect([kind.name, costs]).toEqual([kind.name, tokens])
    }
  })

  it('costs the maximum if its size is not found', () => {
    const filled = jpeg(1, 1)
    filled.set([0xff, 0x01], 2)
    for (const bytes of [
      bytesOf('BM'),
      png(0, 5),
      jpeg(1, 1).slice(0, 12),
      filled,
      bytesOf('xPNG', [...png(1, 1)].slice(4)),
    ])
      expect([image(bytes, 'openai'), image(bytes, 'anthropic'), image(bytes, 'gemini')]).toEqual([
        3779, 4784, 4128,
      ])
  })
})

describe('a sound or a file', () => {
  it('costs what the shortest sound or the longest text of its length could be', () => {
    const wav = bytesOf(
      'RIFF',
      [0, 0, 0, 0],
      'WAVEfmt ',
      [16, 0, 0, 0, 1, 0, 1, 0],
      [0xc0, 0x5d, 0, 0],
      // The rate of bytes, which is a lie, and the size of a sample.
      [0, 0, 0xff, 0, 2, 0, 16, 0],
    )
    // 48 kB a second; ten seconds.
    expect(mediumTokens('audio', 'openai', base64(wav, 60), 640_000)).toBe(100)
    expect(mediumTokens('audio', 'openai', base64(bytesOf('ID3'), 60), 4000)).toBe(30)
    expect(mediumTokens('file', 'anthropic', base64(bytesOf('%PDF'), 60), 16_000)).toBe(3000)
    expect(mediumTokens('file', 'anthropic', base64(bytesOf('%PDF'), 60), 1e8)).toBe(300_000)
    expect(mediumTokens('file', 'anthropic', base64(png(16, 16), 60), 1e6)).toBe(1)
    const pdf = Uint8Array.from([...png(16, 16), ...bytesOf('%PDF-1.7')])
    for (const [format, head] of [
      ['anthropic', pdf],
      ['openai', png(16, 16)],
    ] as const)
      expect(mediumTokens('file', format, base64(head, 60), 16_000)).toBe(3000)
  })
})

describe('a request with media', () => {
  const DATA = base64(png(1024, 1024), 90_000)
  const inputOf = (body: unknown, size = 7000) => {
    const bytes = new TextEncoder().encode(typeof body === 'string' ? body : JSON.stringify(body))
    const scan = new LlmScan()
    for (let at = 0; at < bytes.length; at += size) scan.feed(bytes.subarray(at, at + size))
    scan.finish()
    expect(scan.problem).toBe(undefined)
    return scan.tokens().input
  }
  const user = (...content: unknown[]) => ({ messages: [{ role: 'user', content }] })

  it.each<[string, unknown, number]>([
    [
      'a chat of OpenAI',
      user({ type: 'image_url', image_url: { url: `data:image/png;base64,${DATA}` } }),
      2520,
    ],
    [
      'a response',
      { input: [{ content: [{ type: 'input_image', image_url: `data:image/png;base64,${DATA}` }] }] },
      2520,
    ],
    [
      'a message of Anthropic',
      user({ type: 'image', source: { type: 'base64', media_type: 'image/png', data: DATA } }),
      1369,
    ],
    ['and in another order', user({ source: { data: DATA, type: 'base64' } }), 1369],
    [
      'a result of a tool',
      user({ type: 'tool_result', content: [{ source: { type: 'base64', data: DATA } }] }),
      1369,
    ],
    ['Gemini', { contents: [{ parts: [{ inlineData: { mimeType: 'image/png', data: DATA } }] }] }, 2240],
    ['its other spelling', { contents: [{ parts: [{ inline_data: { data: DATA } }] }] }, 2240],
    [
      'a sound',
      user({ type: 'input_audio', input_audio: { data: base64(bytesOf('ID3'), 9000), format: 'mp3' } }),
      90,
    ],
    [
      'a file',
      user({ file: { file_data: `data:application/pdf;base64,${base64(bytesOf('%PDF'), 9000)}` } }),
      2251,
    ],
    [
      'a file that says it is a picture',
      user({ file: { file_data: `data:image/png;base64,${base64(png(1, 1), 9000)}` } }),
      2251,
    ],
    ['a link', user({ image_url: { url: 'https://example.com/a.png' } }), 3779],
  ])('costs what they cost, not their text: %s', (_, body, tokens) => {
    for (const size of [100, 7000, 1e6]) {
      expect(inputOf(body, size)).toBeGreaterThanOrEqual(tokens)
      expect(inputOf(body, size)).toBeLessThan(tokens + 60)
    }
    // As PHP writes slashes.
    expect(inputOf(JSON.stringify(body).replaceAll('/', '\\/'))).toBeLessThan(tokens + 70)
  })

  it.each<[string, unknown]>([
    ['a text that is a data URL', user({ type: 'text', text: `data:image/png;base64,${DATA}` })],
    ['a message that is one', { messages: [{ role: 'user', content: `data:image/png;base64,${DATA}` }] }],
    [
      'the arguments of a tool',
      user({ type: 'tool_use', input: { image_url: { url: `data:image/png;base64,${DATA}` } } }),
    ],
    [
      'the schema of a tool',
      { tools: [{ content: [{ image_url: { url: `data:image/png;base64,${DATA}` } }] }] },
    ],
    [
      'a document of Anthropic that is text',
      user({ type: 'document', source: { type: 'text', data: DATA } }),
    ],
    [
      'one that is both',
      `{"messages":[{"content":[{"source":{"type":"base64","data":"${DATA}","type":"text"}}]}]}`,
    ],
    ['one that is neither', user({ source: { data: DATA } })],
    ['a data URL without base64', user({ file: { file_data: `data:text/plain,${DATA}` } })],
    [
      'an element whose name is *',
      { messages: { '*': { content: [{ image_url: { url: `data:image/png;base64,${DATA}` } }] } } },
    ],
  ])('counts text where the model reads text: %s', (_, body) => {
    expect(inputOf(body)).toBeGreaterThan(DATA.length / 4)
  })
})
