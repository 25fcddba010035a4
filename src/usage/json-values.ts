/**
 * Finds values in JSON that arrives in chunks, and keeps only those. A reply can have many MB, such as one with embeddings, and its usage is
 * often at the end. Lines of JSON (NDJSON) are read as one text: the last value counts.
 */

import { KeptBytes } from './kept-bytes.ts'

/** In a path: each element of a list. */
export const EACH = Symbol('each')

/** The path that a JSON pointer names. */
export type JsonPath = readonly (string | typeof EACH)[]

/** A value that was found. */
export interface FoundValue {
  value: unknown
  /** Where its text begins and ends, in bytes from the start of the JSON. The end can include white space. */
  from: number
  to: number
}

export interface JsonValues {
  /** Reads a chunk. Does not keep it. */
  feed(chunk: Uint8Array): void
  /** Call once, after the last chunk. */
  end(): void
  /** Whether what has been read can be JSON; only brackets and quotes are checked. After `end`: whether it is whole. */
  isJson(): boolean
  /** The last value of each path. Undefined for a path without a value, and for a value that was too large to keep. */
  found: readonly (FoundValue | undefined)[]
}

/** A larger value is not kept (bytes). Usage has less than 1 kB. */
const MAX_VALUE_BYTES = 65_536
const MAX_KEY_BYTES = 1024

/**
 * Reads a JSON pointer (RFC 6901).
 * @returns undefined if it is not one
 */
export function parsePointer(pointer: string): string[] | undefined {
  if (pointer === '') return []
  if (!pointer.startsWith('/') || /~(?![01])/.test(pointer)) return undefined
  return pointer
    .slice(1)
    .split('/')
    .map(token => token.replaceAll('~1', '/').replaceAll('~0', '~'))
}

/** The value at a path of parsed JSON. Undefined for a path without a value. */
export function valueAt(json: unknown, path: readonly string[]): unknown {
  let value = json
  for (const token of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, token)) return undefined
    if (Array.isArray(value) && token === 'length') return undefined
    value = (value as Record<string, unknown>)[token]
  }
  return value
}

const [QUOTE, COMMA, COLON, BACKSLASH] = [34, 44, 58, 92] as const
const [OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT] = [91, 93, 123, 125] as const
const isSpace = (byte: number) => byte === 32 || byte === 10 || byte === 13 || byte === 9
/** A byte order mark can come before the JSON. */
const isOfMark = (byte: number) => byte === 0xef || byte === 0xbb || byte === 0xbf
/** The bytes that a value can begin with: `"`, `-`, digits, `[`, `f`, `n`, `t`, `{`. */
const FIRST_BYTES = new Set('"-0123456789[fnt{'.split('').map(char => char.charCodeAt(0)))

/** Bytes that matter at every depth. */
const MARKS = new Uint8Array(256)
for (const mark of [QUOTE, OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT]) MARKS[mark] = 1

/** The text of a part of the JSON that spans chunks. */
class Kept {
  readonly #text = new KeptBytes()
  #isTooLong = false
  readonly max: number
  constructor(max: number) {
    this.max = max
  }
  add(part: Uint8Array): void {
    this.#isTooLong ||= this.#text.length + part.byteLength > this.max
    if (this.#isTooLong) this.#text.take()
    else this.#text.add(part)
  }
  /** @returns undefined if it is too long, or not JSON */
  parse(before = '', after = ''): unknown {
    if (this.#isTooLong) return undefined
    const text = new TextDecoder().decode(this.#text.take())
    try {
      return JSON.parse(before + text + after)
    } catch {
      return undefined
    }
  }
}

/** A value of one of the paths, while it is read. */
interface Capture {
  path: number
  depth: number
  from: number
  kept: Kept
  /** Where its part begins in the current chunk. */
  start: number
}

export function createJsonValues(paths: readonly JsonPath[]): JsonValues {
  const found: (FoundValue | undefined)[] = paths.map(() => undefined)
  /** Only so many levels have keys that matter. */
  const levels = Math.max(...paths.map(({ length }) => length))
  /** Of each level from 1: whether it is an array, and the current key, or index. */
  const isArray: boolean[] = []
  const keys: (string | number | undefined)[] = []
  let depth = 0
  let offset = 0
  let isInString = false
  /** The string ended with so many backslashes at the end of the last chunk that the next byte is escaped. */
  let isEscaped = false
  let key: Kept | undefined
  let expects: 'key' | 'value' | undefined = 'value'
  let isValid = true
  let isEmpty = true
  let captures: Capture[] = []

  const matches = (path: JsonPath) =>
    path.length === depth &&
    path.every((token, i) => {
      const key = keys[i + 1]
      return token === EACH ? isArray[i + 1] : key !== undefined && token === String(key)
    })

  function beginValue(at: number): void {
    expects = undefined
    isEmpty = false
    paths.forEach((path, i) => {
      if (!matches(path)) return
      captures.push({ path: i, depth, from: offset + at, kept: new Kept(MAX_VALUE_BYTES), start: at })
    })
  }

  /** Ends the values that began at this depth. */
  function endValues(chunk: Uint8Array, at: number): void {
    if (captures.length === 0) return
    captures = captures.filter(({ path, depth: of, from, kept, start }) => {
      if (of !== depth) return true
      kept.add(chunk.subarray(start, at))
      const value = kept.parse()
      if (value !== undefined) found[path] = { value, from, to: offset + at }
      return false
    })
  }

  function open(array: boolean): void {
    depth += 1
    if (depth > levels) return
    isArray[depth] = array
    keys[depth] = array ? 0 : undefined
    expects = array ? 'value' : 'key'
  }

  function close(chunk: Uint8Array, at: number): void {
    endValues(chunk, at)
    depth -= 1
    expects = undefined
    if (depth > 0) return
    if (depth < 0) isValid = false
    // The root is a value of its own, and another line of JSON can follow.
    endValues(chunk, at + 1)
    expects = 'value'
  }

  function separate(chunk: Uint8Array, at: number): void {
    endValues(chunk, at)
    if (depth === 0) isValid = false
    if (depth > levels) return
    if (isArray[depth]) {
      keys[depth] = (keys[depth] as number) + 1
      expects = 'value'
    } else expects = 'key'
  }

  /** @returns the position after the string, or the end of the chunk */
  function skipString(chunk: Uint8Array, at: number): number {
    let from = at
    if (isEscaped && from < chunk.length) {
      isEscaped = false
      from += 1
    }
    for (;;) {
      const quote = chunk.indexOf(QUOTE, from)
      const end = quote < 0 ? chunk.length : quote
      let backslashes = 0
      while (end - backslashes > from && chunk[end - backslashes - 1] === BACKSLASH) backslashes += 1
      const escapes = backslashes % 2 === 1
      if (quote < 0) isEscaped = escapes
      if (quote < 0 || !escapes) {
        key?.add(chunk.subarray(at, end))
        if (quote >= 0) endString()
        return quote < 0 ? end : end + 1
      }
      from = quote + 1
    }
  }

  function endString(): void {
    isInString = false
    if (!key) return
    keys[depth] = key.parse('"', '"') as string | undefined
    key = undefined
  }

  function feed(chunk: Uint8Array): void {
    for (const capture of captures) capture.start = 0
    let at = 0
    while (at < chunk.length && isValid) {
      if (isInString) {
        at = skipString(chunk, at)
        continue
      }
      // Most bytes of a large body are numbers or texts below the levels that matter.
      if (depth > levels) while (at < chunk.length && MARKS[chunk[at]!] === 0) at += 1
      if (at === chunk.length) break
      const byte = chunk[at]!
      if (expects === 'value' && !isSpace(byte) && byte !== CLOSE_ARRAY && !(isEmpty && isOfMark(byte))) {
        if (FIRST_BYTES.has(byte)) beginValue(at)
        else isValid = false
      }
      if (byte === QUOTE) {
        isInString = true
        if (expects === 'key') key = new Kept(MAX_KEY_BYTES)
        expects = undefined
      } else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) open(byte === OPEN_ARRAY)
      else if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) close(chunk, at)
      else if (byte === COMMA) separate(chunk, at)
      else if (byte === COLON && depth <= levels && !isArray[depth]) expects = 'value'
      at += 1
    }
    for (const { kept, start } of captures) kept.add(chunk.subarray(start))
    offset += chunk.length
  }

  return {
    found,
    feed,
    end() {
      for (const capture of captures) capture.start = 0
      // A number or a word at the root ends with the text.
      if (depth === 0) endValues(new Uint8Array(), 0)
      if (depth !== 0 || isInString || isEmpty) isValid = false
    },
    isJson: () => isValid,
  }
}
