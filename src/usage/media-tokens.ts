/**
 * What pictures, sounds and files in a request cost, by the sizes that the makers of the models document (docs/units.md has the sources).
 * Where a model is not known, the largest of the documented numbers counts. The usage in the reply replaces all of this.
 */

export type Medium = 'image' | 'audio' | 'file'
export type MediaFormat = 'openai' | 'anthropic' | 'gemini'

/** So much of the base64 text is kept, to find the size of a picture (bytes). A picture whose size comes later costs the maximum. */
export const HEAD_BYTES = 16_384

interface Size {
  width: number
  height: number
}

/**
 * Tokens of a part in base64.
 * @param head the beginning of its text
 * @param bytes the length of its text
 */
export function mediumTokens(medium: Medium, format: MediaFormat, head: string, bytes: number): number {
  const data = decode(head)
  const size = sizeOf(data)
  // Some fields take pictures and files. Readers of PDF look for its mark also behind the head of a picture.
  const isFile = format === 'openai' || textAt(data, 0, data.length).includes('%PDF-')
  if (medium === 'image' || (size && !isFile)) return IMAGE[format](size)
  const decoded = Math.ceil((bytes * 3) / 4)
  return medium === 'audio' ? audioTokens(data, decoded, format) : fileTokens(decoded)
}

/** Tokens of a picture that the model fetches. */
export const linkedImageTokens = (format: MediaFormat) => IMAGE[format](undefined)

const IMAGE: Record<MediaFormat, (size: Size | undefined) => number> = {
  /** The larger of: 85, and 170 for each tile of 512 px; 2.46 for each patch of 32 px, of which there are at most 1536. */
  openai(size) {
    if (!size) return Math.ceil(1536 * 2.46)
    const patches = Math.min(Math.ceil(size.width / 32) * Math.ceil(size.height / 32), 1536)
    const fit = Math.min(1, 2048 / Math.max(size.width, size.height))
    const scale = fit * Math.min(1, 768 / (fit * Math.min(size.width, size.height)))
    const tiles = Math.ceil((size.width * scale) / 512) * Math.ceil((size.height * scale) / 512)
    return Math.max(85 + 170 * tiles, Math.ceil(patches * 2.46))
  },
  /** One for each patch of 28 px, at most 4784. */
  anthropic: size => (size ? Math.min(Math.ceil(size.width / 28) * Math.ceil(size.height / 28), 4784) : 4784),
  /** The larger of: 2240 (Gemini 3, whatever the size); 258 for each tile of 768 px, of at most 3072 × 3072. */
  gemini(size) {
    if (!size) return 258 * 16
    const tiles = Math.ceil(size.width / 768) * Math.ceil(size.height / 768)
    return Math.max(2240, 258 * Math.min(tiles, 16))
  },
}

/** Of a second, by format. */
const AUDIO_PER_SECOND: Record<MediaFormat, number> = { openai: 10, anthropic: 10, gemini: 32 }
/** The lowest bit rate of MP3 is 8 kbit/s. */
const MIN_BYTES_PER_SECOND = 1000

function audioTokens(data: Uint8Array, bytes: number, format: MediaFormat): number {
  const isWav = textAt(data, 0, 4) === 'RIFF' && textAt(data, 8, 8) === 'WAVEfmt ' && data.length >= 36
  // Players do not read the rate of bytes, which can be anything.
  const [channels, frames, bits] = [
    littleEndian(data, 22, 2),
    littleEndian(data, 24, 4),
    littleEndian(data, 34, 2),
  ]
  // 192 kB a second: two channels of 32 bits at 24 kHz, and more than any that models take.
  const rate = isWav ? Math.min((channels * frames * bits) / 8, 192_000) : 0
  return Math.ceil((bytes / Math.max(rate, MIN_BYTES_PER_SECOND)) * AUDIO_PER_SECOND[format])
}

/** As text, and at most as 100 pages of 3000 tokens. */
const fileTokens = (bytes: number) => Math.min(Math.ceil(bytes / 4), 300_000)

/** @param head of a base64 text in JSON: some encoders write `\/` for `/` */
function decode(head: string): Uint8Array {
  const clean = head.replace(/\\[nr]/g, '').replace(/[^A-Za-z0-9+/_-]/g, '')
  const base64 = clean.replaceAll('-', '+').replaceAll('_', '/')
  return Uint8Array.from(atob(base64.slice(0, base64.length & ~3)), char => char.charCodeAt(0))
}

const textAt = (data: Uint8Array, at: number, length: number) =>
  String.fromCharCode(...data.subarray(at, at + length))

function bigEndian(data: Uint8Array, at: number, length: number): number {
  return data.subarray(at, at + length).reduce((sum, byte) => sum * 256 + byte, 0)
}

function littleEndian(data: Uint8Array, at: number, length: number): number {
  return data.subarray(at, at + length).reduceRight((sum, byte) => sum * 256 + byte, 0)
}

/** Reads width and height of a PNG, GIF, WebP or JPEG. */
function sizeOf(data: Uint8Array): Size | undefined {
  const size = readSize(data)
  return size && size.width > 0 && size.height > 0 ? size : undefined
}

function readSize(data: Uint8Array): Size | undefined {
  if (data.length < 30) return undefined
  if (textAt(data, 0, 8) === '\x89PNG\r\n\x1a\n')
    return { width: bigEndian(data, 16, 4), height: bigEndian(data, 20, 4) }
  if (textAt(data, 0, 4) === 'GIF8')
    return { width: littleEndian(data, 6, 2), height: littleEndian(data, 8, 2) }
  if (textAt(data, 0, 4) === 'RIFF' && textAt(data, 8, 4) === 'WEBP') return webpSize(data)
  return data[0] === 0xff && data[1] === 0xd8 ? jpegSize(data) : undefined
}

function webpSize(data: Uint8Array): Size | undefined {
  switch (textAt(data, 12, 4)) {
    case 'VP8X':
      return { width: 1 + littleEndian(data, 24, 3), height: 1 + littleEndian(data, 27, 3) }
    case 'VP8 ':
      return { width: littleEndian(data, 26, 2) & 0x3fff, height: littleEndian(data, 28, 2) & 0x3fff }
    case 'VP8L': {
      const bits = littleEndian(data, 21, 4)
      return { width: 1 + (bits & 0x3fff), height: 1 + ((bits >> 14) & 0x3fff) }
    }
    default:
      return undefined
  }
}

/** The segment SOF has the size (ITU T.81, B.2.2). */
function jpegSize(data: Uint8Array): Size | undefined {
  let at = 2
  while (at + 9 < data.length && data[at] === 0xff) {
    const marker = data[at + 1]!
    // Others have no length, so what follows can be read in two ways.
    if (marker < 0xc0 || (marker >= 0xd0 && marker <= 0xd9) || marker === 0xff) return undefined
    const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)
    if (isFrame) return { height: bigEndian(data, at + 5, 2), width: bigEndian(data, at + 7, 2) }
    at += 2 + bigEndian(data, at + 2, 2)
  }
  return undefined
}
