/** Estimates how many tokens a request to a language model will take, from its body, which goes on to the origin unchanged. */
import { SYSTEM_TIMER, type Timer } from '../clock.ts'
import { readUpTo, resumeBody } from './read-body.ts'
import { MAX_AMOUNT, NO_TOKENS, type Tokens } from './tokens.ts'
import { askForUsage, concat } from './usage-chunk.ts'

export interface LlmRequestSettings {
  /** A larger body is not read; its estimate follows from its length (bytes, default 256,000). */
  maxBytes?: number | undefined
  /** The tokens of output if the request does not name a maximum (default 1000). For embeddings, which have no output: 0. */
  defaultOutput?: number | undefined
  /** The largest estimate of output. Default: `MAX_AMOUNT`. */
  maxOutput?: number | undefined
  /** Adds `stream_options.include_usage` to chat completions of OpenAI that stream (default `false`). */
  includeUsage?: boolean | undefined
  /** Ends the reading of a slow body; tests pass their own. */
  timer?: Timer
}

export interface LlmRequest {
  /** Forward this request. It has the same body as the given one, unless `hidesUsage` is true. */
  request: Request
  tokens: Tokens
  /**
   * - `read`: from the whole body.
   * - `too-large`: from the length of the body and the default; also while the isolate reads too many bodies.
   * - `too-slow`: likewise, because it did not end within 10 s, or came in tiny chunks.
   * - `not-json`: likewise, because the body is not a JSON object.
   * - `no-body`: 0.
   * - `broken`: likewise, because the client broke off its body.
   * - `failed`: likewise, because something else has read it.
   */
  how: 'read' | 'too-large' | 'too-slow' | 'not-json' | 'no-body' | 'broken' | 'failed'
  /** The request asks the origin for a chunk that the client must not get. */
  hidesUsage: boolean
  /** Is aborted when the client breaks off the rest of a body that was not read to its end. Absent: the platform notices it. */
  bodyFailed?: AbortSignal
}

const DEFAULT_MAX_BYTES = 256_000

const DEFAULT_OUTPUT = 1000
const BYTES_PER_TOKEN = 4

/** Estimates a request. Never rejects. */
export async function readLlmRequest(
  request: Request,
  settings: LlmRequestSettings = {},
): Promise<LlmRequest> {
  const { maxBytes = DEFAULT_MAX_BYTES, includeUsage = false, timer = SYSTEM_TIMER } = settings
  const length = lengthOf(request)
  const guess = (how: LlmRequest['how'], bytes: number): LlmRequest => ({
    ...{ request, how, hidesUsage: false },
    tokens: tokensOf(bytes, undefined, settings),
  })
  // Express passes on the request without its body.
  if (!request.body && (length > 0 || request.headers.has('transfer-encoding')))
    return guess('failed', length)
  if (!request.body) return { request, tokens: NO_TOKENS, how: 'no-body', hidesUsage: false }
  if (length > maxBytes) return guess('too-large', length)
  try {
    // A body with a length goes on as the platform delivers it. If it is broken off, its length shows that. Of one without, a copy would
    // end as if it was complete.
    const isCopied = length > 0 || isBodiless(request)
    const body = isCopied ? request.clone().body : request.body
    const reader = (body as ReadableStream<Uint8Array>).getReader()
    const beginning = await readUpTo(reader, maxBytes, timer)
    const { how } = beginning
    const text = concat(beginning.chunks)
    if (isCopied && how) reader.cancel().catch(() => {})
    if (how) {
      const guessed = guess(how, Math.max(length, text.byteLength))
      if (isCopied) return guessed
      const { body, failed } = resumeBody(reader, beginning, timer)
      return { ...guessed, request: withBody(request, body), bodyFailed: failed }
    }
    const parsed = parseObject(text)
    // That it could be parsed shows that it is not compressed, whatever Content-Encoding says.
    const edited = includeUsage && parsed ? askForUsage(text, parsed) : undefined
    // Some origins refuse a body in chunks, without Content-Length.
    const forwarded = edited || !isCopied ? withBody(request, edited ?? text) : request
    // In workerd, a request with Content-Length: 0 has a body without bytes.
    if (text.byteLength === 0) return { ...guess('no-body', 0), request: forwarded, tokens: NO_TOKENS }
    if (!parsed) return { ...guess('not-json', text.byteLength), request: forwarded }
    return {
      request: forwarded,
      tokens: tokensOf(text.byteLength, outputOf(parsed), settings),
      how: 'read',
      hidesUsage: edited !== undefined,
    }
  } catch {
    return guess('failed', length)
  }
}

/** Requests of these methods cannot be created with a body. */
const isBodiless = ({ method }: Request) => method === 'GET' || method === 'HEAD'

/** The largest number of output tokens that a request allows; undefined if it does not say. */
function outputOf(body: Readonly<Record<string, unknown>>): number | undefined {
  const maxima = [body.max_tokens, body.max_completion_tokens, body.max_output_tokens].filter(isCount)
  if (maxima.length === 0) return undefined
  // `best_of` of completions: so many are generated, and `n` of them are returned.
  const choices = Math.max(1, ...[body.n, body.best_of].filter(isCount))
  return Math.max(...maxima) * choices * promptsIn(body)
}

/** Completions can have a list of prompts, each with outputs of its own. A list of numbers is one prompt, in tokens. */
const promptsIn = ({ prompt }: Readonly<Record<string, unknown>>): number =>
  Array.isArray(prompt) && typeof prompt[0] !== 'number' ? Math.max(1, prompt.length) : 1

const isCount = (value: unknown): value is number => Number.isInteger(value) && (value as number) >= 0

function tokensOf(
  bytes: number,
  output: number | undefined,
  { defaultOutput = DEFAULT_OUTPUT, maxOutput = MAX_AMOUNT }: LlmRequestSettings,
): Tokens {
  return {
    ...NO_TOKENS,
    input: Math.min(Math.ceil(bytes / BYTES_PER_TOKEN), MAX_AMOUNT),
    output: Math.min(output ?? defaultOutput, maxOutput, MAX_AMOUNT),
  }
}

/** Content-Length, or 0 if it is not known. */
function lengthOf({ headers }: Request): number {
  const length = headers.get('content-length')
  return length !== null && /^\d{1,15}$/.test(length) ? Number(length) : 0
}

function parseObject(text: Uint8Array): Record<string, unknown> | undefined {
  try {
    const body: unknown = JSON.parse(new TextDecoder().decode(text))
    return typeof body === 'object' && body !== null && !Array.isArray(body)
      ? (body as Record<string, unknown>)
      : undefined
  } catch {
    return undefined
  }
}

function withBody(request: Request, body: Uint8Array<ArrayBuffer> | ReadableStream): Request {
  const headers = new Headers(request.headers)
  if (headers.has('content-length') && body instanceof Uint8Array)
    headers.set('content-length', String(body.byteLength))
  return new Request(request, { body, headers, duplex: 'half' } as RequestInit)
}
