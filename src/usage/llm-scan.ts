/**
 * Finds in the body of a request to a language model what it will cost, while the body arrives. If members can be read in several ways
 * (twice, in other letters, as texts), the most expensive one counts, because origins differ in what they read.
 */
import { FIRST_OF_STRING, JsonScanner, type KeptText, OPEN_ARRAY, OPEN_OBJECT } from './json-scanner.ts'
import { HEAD_BYTES, linkedImageTokens, type MediaFormat, type Medium, mediumTokens } from './media-tokens.ts'
import { MAX_AMOUNT, NO_TOKENS, type Tokens } from './tokens.ts'

export interface OutputSettings {
  /** The tokens of output if the request does not name a maximum (default 1000). For embeddings, which have no output: 0. */
  defaultOutput?: number | undefined
  /** The largest estimate of output. Default: `MAX_AMOUNT`. */
  maxOutput?: number | undefined
}

const DEFAULT_OUTPUT = 1000
const BYTES_PER_TOKEN = 4

/** Members that say which API a body is for, with the names of the maximum that this API certainly reads. */
const MAXIMA: Readonly<Record<string, readonly string[]>> = {
  messages: ['max_tokens', 'max_completion_tokens'],
  prompt: ['max_tokens'],
  input: ['max_output_tokens'],
  contents: ['generationConfig/maxOutputTokens', 'generation_config/max_output_tokens'],
}
const CERTAIN = Object.values(MAXIMA).flat()
/** Names that some server reads (llama.cpp, Ollama, TGI), in lower case. They can only raise the estimate. */
const OTHER_MAXIMA = ['maxoutputtokens', 'max_new_tokens', 'num_predict', 'n_predict']
const ALL_MAXIMA = new Set([...CERTAIN.map(name => name.toLowerCase()), ...OTHER_MAXIMA])
/** `best_of` of completions: so many are generated, and `n` of them are returned. */
const CHOICES = new Set(['n', 'best_of', 'candidatecount', 'candidate_count'])
/** Objects that have such members. */
const PARAMETERS = new Set(['generationconfig', 'generation_config', 'options', 'parameters'])

type Place = readonly [medium: Medium, format: MediaFormat]

/** Where base64 can be, of which the model reads nothing as text. In lower case; `*`: each element of a list. */
const MEDIA: ReadonlyMap<string, Place> = new Map([
  ...['messages/*/content/*', 'input/*/content/*', 'input/*/output/*', 'input/*/output'].flatMap(
    (part): [string, Place][] => [
      [`${part}/image_url/url`, ['image', 'openai']],
      [`${part}/image_url`, ['image', 'openai']],
      [`${part}/input_audio/data`, ['audio', 'openai']],
      [`${part}/audio_url/url`, ['audio', 'openai']],
      [`${part}/video_url/url`, ['file', 'openai']],
      [`${part}/file/file_data`, ['file', 'openai']],
      [`${part}/file_data`, ['file', 'openai']],
    ],
  ),
  ...['messages/*/content/*/source', 'messages/*/content/*/content/*/source'].flatMap(
    (source): [string, Place][] => [
      [`${source}/data`, ['file', 'anthropic']],
      [`${source}/url`, ['image', 'anthropic']],
    ],
  ),
  ...['contents/*/parts/*', 'contents/parts/*', 'contents/*/parts'].flatMap((part): [string, Place][] => [
    [`${part}/inlinedata/data`, ['file', 'gemini']],
    [`${part}/inline_data/data`, ['file', 'gemini']],
  ]),
])
const MEDIA_NAMES = new Set([...MEDIA.keys()].map(place => place.slice(place.lastIndexOf('/') + 1)))

/** The depth of an element of the list of requests in a batch of Gemini's API. */
const BATCH_DEPTH = 5

/** What is kept of values that are short. */
const SHORT = 32

/** Where a batch of Anthropic's or Gemini's API has its requests. */
const BATCHES: readonly (readonly string[])[] = [
  ['requests', '*', 'params'],
  ['batch', 'inputconfig', 'requests', 'requests', '*', 'request'],
  ['batch', 'input_config', 'requests', 'requests', '*', 'request'],
]

/** The object `source` of Anthropic, whose `data` is a text with `type: 'text'`. */
interface Source {
  depth: number
  bytes: number
  tokens: number
  types: string[]
}

/** A part in base64, as far as it is known. */
interface Part {
  /** Of its text that is not read as text. */
  bytes: number
  tokens: number
}

const isBase64 = ({ types }: Source) => types.length > 0 && types.every(type => type === 'base64')

export class LlmScan {
  /** All bytes that were read. */
  bytes = 0
  /** Nothing was read that is not part of an object. */
  canBeObject = true
  /** It is not certain that the reply is not streamed. */
  streams = false
  /** Has the members `messages` and so on, which say what API a body is for. */
  readonly kinds = new Set<string>()
  readonly #json: JsonScanner
  #media: Part = { bytes: 0, tokens: 0 }
  /** By name, exact. */
  readonly #maxima = new Map<string, number>()
  /** The largest of what an origin may read as a maximum. */
  #largest = 0
  /** A maximum has a value that origins read in different ways. */
  #isUncertain = false
  #choices = 1
  #prompts = 0
  /** How many bytes the ids of tokens are too short for one token each. */
  #missingBytes = 0
  #isTokenId = false
  #place: Place | undefined
  #source: Source | undefined

  constructor() {
    this.#json = new JsonScanner({
      begin: (first, depth) => this.#begin(first, depth),
      end: (depth, _, kept) => this.#end(depth, kept),
    })
  }

  /** What is wrong with the body, as the end of a sentence. Undefined: nothing so far. */
  get problem(): string | undefined {
    return this.#json.problem
  }

  feed(chunk: Uint8Array): void {
    this.bytes += chunk.byteLength
    this.#json.feed(chunk)
  }

  finish(): void {
    this.#json.end()
  }

  /**
   * Estimates the request.
   * @param restBytes of the body that have not been read; they count as what was read last
   */
  tokens(
    { defaultOutput = DEFAULT_OUTPUT, maxOutput = MAX_AMOUNT }: OutputSettings = {},
    restBytes = 0,
  ): Tokens {
    const { bytes, tokens } = this.#media
    const pending = this.#pending(restBytes)
    const text = this.bytes + restBytes + this.#missingBytes - bytes - pending.bytes
    const input = Math.ceil(text / BYTES_PER_TOKEN) + tokens + pending.tokens
    const output = this.#outputOf(defaultOutput) * this.#choices * Math.max(1, this.#prompts)
    return {
      ...NO_TOKENS,
      input: Math.min(input, MAX_AMOUNT),
      output: Math.min(output, maxOutput, MAX_AMOUNT),
    }
  }

  #outputOf(defaultOutput: number): number {
    // Of a body for several APIs, nothing says which of them the origin serves.
    const kinds = [...this.kinds].flatMap(kind => (MAXIMA[kind] ? [MAXIMA[kind]] : []))
    const certain = CERTAIN.filter(name => kinds.every(names => names.includes(name)))
    const isNamed = certain.some(name => this.#maxima.has(name))
    return Math.max(this.#largest, isNamed && !this.#isUncertain ? 0 : defaultOutput)
  }

  /** How much deeper a value of this depth is than in a body of its own. */
  #offsetAt(depth: number): number {
    const { path } = this.#json
    if (path[0] !== 'requests' && path[0] !== 'batch') return 0
    const batch = BATCHES.find(batch => depth > batch.length && batch.every((name, i) => name === path[i]))
    return batch?.length ?? 0
  }

  #begin(first: number, ofBody: number): number {
    const offset = this.#offsetAt(ofBody)
    const path = offset === 0 ? this.#json.path : this.#json.path.slice(offset)
    const depth = ofBody - offset
    this.#place = undefined
    this.#isTokenId = isDigit(first) && isInTokenIds(path, depth)
    if (ofBody === 0) this.canBeObject = first === OPEN_OBJECT
    if (depth === 1) {
      this.#beginMember(path[0]!, first)
      return SHORT
    }
    if (depth === 2) {
      // A list of numbers is one prompt, in tokens.
      const isPrompt = path[0] === 'prompt' && (first === FIRST_OF_STRING || first === OPEN_ARRAY)
      const isRequest = path[0] === 'requests' && first === OPEN_OBJECT
      if (path[1] === '*' && (isPrompt || isRequest)) this.#prompts += 1
      return PARAMETERS.has(path[0]!) ? SHORT : 0
    }
    if (depth === BATCH_DEPTH && first === OPEN_OBJECT && path[0] === 'batch' && path[4] === '*')
      this.#prompts += 1
    return depth > 2 ? this.#beginPart(path, first, depth, ofBody) : 0
  }

  #beginMember(name: string, first: number): void {
    // The Responses API has an object there, which names a template.
    if (Object.hasOwn(MAXIMA, name) && !(name === 'prompt' && first === OPEN_OBJECT)) this.kinds.add(name)
    if (name === 'stream' && isOdd(first)) this.streams = true
    if (ALL_MAXIMA.has(name) && isOdd(first)) this.#isUncertain = true
  }

  #beginPart(path: readonly string[], first: number, depth: number, ofBody: number): number {
    const name = path[depth - 1]
    if (name === 'source' && first === OPEN_OBJECT)
      this.#source = { depth: ofBody, bytes: 0, tokens: 0, types: [] }
    if (first !== FIRST_OF_STRING || name === undefined) return 0
    if (name === 'type' && this.#source) return SHORT
    if (!MEDIA_NAMES.has(name)) return 0
    this.#place = MEDIA.get(path.slice(0, depth).join('/'))
    return this.#place ? HEAD_BYTES : 0
  }

  #end(depth: number, kept: KeptText): void {
    const { names, path } = this.#json
    const at = this.#offsetAt(depth)
    // With its comma.
    if (this.#isTokenId) this.#missingBytes += Math.max(0, BYTES_PER_TOKEN - kept.text.length - 1)
    this.#isTokenId = false
    if (depth - at === 1) this.#endMember(names[at]!, path[at]!, kept.text)
    else if (depth - at === 2 && PARAMETERS.has(path[at]!))
      this.#endMember(`${names[at]}/${names[at + 1]}`, path[at + 1]!, kept.text)
    else if (this.#source?.depth === depth) this.#endSource(this.#source)
    else if (this.#place) this.#endPart(this.#place, kept)
    else if (this.#source?.depth === depth - 1 && path[depth - 1] === 'type')
      this.#source.types.push(kept.text)
    this.#place = undefined
  }

  /** @param name exact @param folded in lower case */
  #endMember(name: string, folded: string, text: string): void {
    if (folded === 'stream' && text !== '' && text !== 'false' && text !== 'null') this.streams = true
    if (CHOICES.has(folded)) this.#choices = Math.max(this.#choices, countOf(text) ?? 1)
    if (!ALL_MAXIMA.has(folded) && !CERTAIN.includes(name)) return
    if (text === 'null') return
    const count = countOf(text)
    if (count === undefined) this.#isUncertain = true
    else this.#largest = Math.max(this.#largest, count)
    if (count !== undefined) this.#maxima.set(name, count)
  }

  #endPart(place: Place, kept: KeptText): void {
    const part = partOf(place, kept)
    const sum = this.#source ?? this.#media
    sum.bytes += part.bytes
    sum.tokens += part.tokens
  }

  #endSource(source: Source): void {
    this.#source = undefined
    if (isBase64(source)) this.#media.bytes += source.bytes
    // A link costs a picture, and its own text.
    this.#media.tokens += source.tokens
  }

  /** What is known of a part that has not ended, if the rest of the body is all of it. */
  #pending(restBytes: number): Part {
    const place = this.#place
    if (!place || (this.#source && !isBase64(this.#source))) return { bytes: 0, tokens: 0 }
    const { text, bytes } = this.#json.unfinished()
    return partOf(place, { text, bytes: bytes + restBytes })
  }
}

const isDigit = (first: number) => first >= 48 && first <= 57

/** Whether a number is the id of a token: an element of a prompt, or of one of several prompts. */
const isInTokenIds = (path: readonly string[], depth: number) =>
  (path[0] === 'prompt' || path[0] === 'input') &&
  path[1] === '*' &&
  (depth === 2 || (depth === 3 && path[2] === '*'))

/** Whether a value is not a number, a boolean or null. */
const isOdd = (first: number) => first === FIRST_OF_STRING || first === OPEN_OBJECT || first === OPEN_ARRAY

const DATA_URL = /^data:([^,;]*)(?:;[^,;]*)*?;base64,/i

function partOf([medium, format]: Place, kept: KeptText): Part {
  const { text, bytes } = kept
  const isRaw = format !== 'openai' || medium === 'audio'
  const url = DATA_URL.exec(text.replaceAll('\\/', '/'))
  if (url) {
    const [prefix, type = ''] = url
    const head = text.slice(text.indexOf(',') + 1)
    return { bytes, tokens: mediumTokens(mediumOf(type, medium), format, head, bytes - prefix.length) }
  }
  if (medium === 'image') return { bytes: 0, tokens: linkedImageTokens(format) }
  return isRaw ? { bytes, tokens: mediumTokens(medium, format, text, bytes) } : NO_PART
}

const NO_PART: Part = { bytes: 0, tokens: 0 }

function mediumOf(type: string, medium: Medium): Medium {
  if (medium === 'image' && /^image\//i.test(type)) return 'image'
  if (/^audio\//i.test(type)) return 'audio'
  return medium === 'image' ? 'file' : medium
}

/** @returns undefined if it is not a number of tokens */
function countOf(text: string): number | undefined {
  const count = Number(text)
  return text !== '' && Number.isInteger(count) && count >= 0 ? count : undefined
}
