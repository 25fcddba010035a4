/**
 * Reads JSON that arrives in chunks, and keeps none of it. What parsers could read differently is an error: values that are not JSON (`NaN`),
 * comments, another encoding, text behind the end. Texts in strings are not checked, because they change nothing for what follows.
 */
import { KeptBytes } from './kept-bytes.ts'

/** Gets what is found. Positions are those in the chunk that is being read. */
export interface JsonHandler {
  /**
   * A value begins. `depth` is the number of objects and lists around it.
   * @param first its first byte
   * @returns how many bytes of a string, or of a number or word, are kept for `end`
   */
  begin(first: number, depth: number, at: number): number
  /** An object or a list is about to be closed, at its bracket. `depth` is that of its members. */
  close?(depth: number, at: number, isEmpty: boolean): void
  /** A value has ended before this position. @param kept the beginning of a string between its quotes, or of a number or word */
  end(depth: number, at: number, kept: KeptText): void
}

export interface KeptText {
  /** Raw, with its escapes. */
  text: string
  /** The length of the whole in bytes. */
  bytes: number
}

const NOTHING: KeptText = { text: '', bytes: 0 }

const [QUOTE, COMMA, COLON, BACKSLASH] = [34, 44, 58, 92] as const
export const [OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT] = [91, 93, 123, 125] as const
export const FIRST_OF_STRING = QUOTE
const isSpace = (byte: number) => byte === 32 || byte === 10 || byte === 13 || byte === 9
/** What a number, `true`, `false` and `null` begin with. */
const FIRST_OF_SCALAR = new Set([...'-0123456789tfn'].map(char => char.charCodeAt(0)))
const SCALAR = /^(?:true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)$/
const MARK = [0xef, 0xbb, 0xbf] as const

/** Python's parser and others go only so deep, or less. */
const MAX_DEPTH = 10_000
const MAX_SCALAR_BYTES = 1000
/** Longer names are not read. Each character of a name can be escaped. */
const MAX_NAME_BYTES = 256
/** Names are known for so many levels. */
const LEVELS = 14

type Expects = 'value' | 'value-or-end' | 'name' | 'name-or-end' | 'colon' | 'next' | 'nothing'

/** The parser of Go takes `Stream` and even `ſtream` for `stream`. */
const folded = (name: string) => name.toUpperCase().toLowerCase()

export class JsonScanner {
  /** The names of the members around the current value, from the root, as they are written. `*`: an element of a list. */
  readonly names: string[] = []
  /** The same in lower case. */
  readonly path: string[] = []
  /** What is wrong, as the end of a sentence. */
  problem: string | undefined
  readonly #handler: JsonHandler
  /** 1: a list, 0: an object. */
  readonly #open: number[] = []
  #expects: Expects = 'value'
  #offset = 0
  #scalar: string | undefined
  #isInString = false
  #isName = false
  #isEscaped = false
  #stringBytes = 0
  #toKeep = 0
  readonly #kept = new KeptBytes()

  constructor(handler: JsonHandler) {
    this.#handler = handler
  }

  /** Whether the innermost value around the current one is an object. */
  get isObjectOpen(): boolean {
    return this.#open.at(-1) === 0
  }

  /** Does not keep the chunk. */
  feed(chunk: Uint8Array): void {
    let at = 0
    while (at < chunk.length && this.problem === undefined) {
      const byte = chunk[at]!
      if (this.#isInString) at = this.#readString(chunk, at)
      else if (this.#scalar !== undefined) at = this.#readScalar(byte, at)
      else if (isSpace(byte) || this.#isMark(byte, at)) at += 1
      else {
        this.#read(byte, at)
        at += 1
      }
    }
    this.#offset += chunk.length
  }

  /** Call once, after the last chunk. */
  end(): void {
    if (this.#scalar !== undefined) this.#endScalar(0)
    if (this.#expects !== 'nothing') this.problem ??= 'ends before its JSON does'
  }

  /** A byte order mark of UTF-8 can come first. */
  #isMark(byte: number, at: number): boolean {
    return this.#offset + at < MARK.length && MARK[this.#offset + at] === byte
  }

  #fail(at: number): void {
    this.problem ??= `is not JSON at byte ${this.#offset + at + 1}`
  }

  #read(byte: number, at: number): void {
    const expects = this.#expects
    switch (byte) {
      case QUOTE:
        if (expects === 'name' || expects === 'name-or-end') this.#beginName()
        else if (this.#begin(byte, at)) this.#isInString = true
        return
      case OPEN_OBJECT:
      case OPEN_ARRAY:
        if (this.#begin(byte, at)) this.#push(byte === OPEN_ARRAY)
        return
      case CLOSE_OBJECT:
      case CLOSE_ARRAY:
        this.#close(byte === CLOSE_ARRAY, at)
        return
      case COMMA:
        if (expects !== 'next') this.#fail(at)
        else this.#expects = this.#open.at(-1) ? 'value' : 'name'
        return
      case COLON:
        if (expects === 'colon') this.#expects = 'value'
        else this.#fail(at)
        return
      default:
        if (!FIRST_OF_SCALAR.has(byte)) this.#fail(at)
        else if (this.#begin(byte, at)) this.#scalar = String.fromCharCode(byte)
    }
  }

  #begin(first: number, at: number): boolean {
    const isExpected = this.#expects === 'value' || this.#expects === 'value-or-end'
    if (!isExpected) this.#fail(at)
    else this.#toKeep = this.#handler.begin(first, this.#open.length, at)
    this.#stringBytes = 0
    return isExpected
  }

  #push(isArray: boolean): void {
    if (this.#open.length >= MAX_DEPTH) {
      this.problem ??= `is nested deeper than ${MAX_DEPTH} levels`
      return
    }
    this.#open.push(isArray ? 1 : 0)
    this.#setName(isArray ? '*' : '')
    this.#expects = isArray ? 'value-or-end' : 'name-or-end'
  }

  #close(isArray: boolean, at: number): void {
    const isEmpty = this.#expects === (isArray ? 'value-or-end' : 'name-or-end')
    if (!(isEmpty || this.#expects === 'next') || this.#open.at(-1) !== (isArray ? 1 : 0)) {
      this.#fail(at)
      return
    }
    this.#handler.close?.(this.#open.length, at, isEmpty)
    this.#open.pop()
    this.#endValue(at + 1, NOTHING)
  }

  #endValue(at: number, kept: KeptText): void {
    this.#expects = this.#open.length === 0 ? 'nothing' : 'next'
    this.#handler.end(this.#open.length, at, kept)
  }

  #setName(name: string): void {
    const level = this.#open.length - 1
    if (level >= LEVELS) return
    this.names[level] = name
    this.path[level] = name === '*' ? name : folded(name)
  }

  #readScalar(byte: number, at: number): number {
    if (isSpace(byte) || byte === COMMA || byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) {
      this.#endScalar(at)
      return at
    }
    this.#scalar += String.fromCharCode(byte)
    if (this.#scalar!.length > MAX_SCALAR_BYTES) this.#fail(at)
    return at + 1
  }

  #endScalar(at: number): void {
    const text = this.#scalar!
    this.#scalar = undefined
    if (SCALAR.test(text)) this.#endValue(at, { text, bytes: text.length })
    else this.#fail(at - text.length)
  }

  #beginName(): void {
    this.#isInString = true
    this.#isName = true
    this.#stringBytes = 0
    this.#toKeep = this.#open.length <= LEVELS ? MAX_NAME_BYTES + 1 : 0
  }

  /** @returns the position after the string, or the end of the chunk */
  #readString(chunk: Uint8Array, at: number): number {
    let from = at
    if (this.#isEscaped) {
      this.#isEscaped = false
      from += 1
    }
    for (;;) {
      const quote = chunk.indexOf(QUOTE, from)
      const end = quote < 0 ? chunk.length : quote
      let backslashes = 0
      while (end - backslashes > from && chunk[end - backslashes - 1] === BACKSLASH) backslashes += 1
      const escapes = backslashes % 2 === 1
      if (quote >= 0 && escapes) {
        from = quote + 1
        continue
      }
      if (quote < 0) this.#isEscaped = escapes
      const missing = this.#toKeep - this.#kept.length
      if (missing > 0) this.#kept.add(chunk.subarray(at, Math.min(end, at + missing)))
      this.#stringBytes += end - at
      if (quote < 0) return end
      this.#endString(quote)
      return quote + 1
    }
  }

  #endString(quote: number): void {
    this.#isInString = false
    const bytes = this.#stringBytes
    const text = this.#kept.length > 0 ? new TextDecoder().decode(this.#kept.take()) : ''
    if (!this.#isName) {
      this.#endValue(quote + 1, { text, bytes })
      return
    }
    this.#isName = false
    this.#expects = 'colon'
    if (this.#open.length > LEVELS) return
    const name = bytes > MAX_NAME_BYTES ? '' : nameOf(text)
    if (name === undefined) this.#fail(quote)
    else this.#setName(name)
  }

  /** What is known of a string that has not ended. */
  unfinished(): KeptText {
    if (!this.#isInString || this.#isName) return NOTHING
    const bytes = this.#kept.take()
    this.#kept.add(bytes)
    return { text: new TextDecoder().decode(bytes), bytes: this.#stringBytes }
  }
}

/** A `*` in JSON is a name, not an element. */
function nameOf(text: string): string | undefined {
  try {
    const name: string = text.includes('\\') ? JSON.parse(`"${text}"`) : text
    return name === '*' ? '' : name
  } catch {
    return undefined
  }
}
