/** Estimates how many tokens a request to a language model will take, from its body, which goes on to the origin unchanged. */
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
}

export interface LlmRequest {
  /** Forward this request instead of the given one, whose body may be used up. It has the same body, unless `hidesUsage` is true. */
  request: Request
  tokens: Tokens
  /**
   * - `read`: from the whole body.
   * - `too-large`: from the length of the body and the default.
   * - `not-json`: likewise, because the body is not a JSON object.
   * - `no-body`: 0.
   * - `failed`: the client broke off its body, or something else has read it.
   */
  how: 'read' | 'too-large' | 'not-json' | 'no-body' | 'failed'
  /** The request asks the origin for a chunk that the client must not get. */
  hidesUsage: boolean
}

const DEFAULT_MAX_BYTES = 256_000
const DEFAULT_OUTPUT = 1000
const BYTES_PER_TOKEN = 4

/** Estimates a request. Never rejects. */
export async function readLlmRequest(
  request: Request,
  settings: LlmRequestSettings = {},
): Promise<LlmRequest> {
  const { maxBytes = DEFAULT_MAX_BYTES, includeUsage = false } = settings
  const length = lengthOf(request)
  const guess = (how: LlmRequest['how'], bytes: number, forwarded = request): LlmRequest => ({
    ...{ request: forwarded, how, hidesUsage: false },
    tokens: tokensOf(bytes, undefined, settings),
  })
  // Express passes on the request without its body.
  if (!request.body && (length > 0 || request.headers.has('transfer-encoding')))
    return guess('failed', length)
  if (!request.body) return { request, tokens: NO_TOKENS, how: 'no-body', hidesUsage: false }
  if (length > maxBytes) return guess('too-large', length)
  try {
    const { chunks, bytes, rest } = await readUpTo(request.body as ReadableStream<Uint8Array>, maxBytes)
    if (rest) return guess(rest.how, bytes, withBody(request, continued(chunks, rest.reader)))
    const text = concat(chunks)
    const body = parseObject(text)
    if (!body) return guess('not-json', bytes, withBody(request, text))
    // That it could be parsed shows that it is not compressed, whatever Content-Encoding says.
    const edited = includeUsage ? askForUsage(text, body) : undefined
    return {
      request: withBody(request, edited ?? text),
      tokens: tokensOf(bytes, outputOf(body), settings),
      how: 'read',
      hidesUsage: edited !== undefined,
    }
  } catch {
    return guess('failed', length)
  }
}

/** The largest number of output tokens that a request allows; undefined if it does not say. */
function outputOf(body: Readonly<Record<string, unknown>>): number | undefined {
  const maxima = [body.max_tokens, body.max_completion_tokens, body.max_output_tokens].filter(isCount)
  if (maxima.length === 0) return undefined
  // `best_of` of completions: so many are generated, and `n` of them are returned.
  const choices = Math.max(1, ...[body.n, body.best_of].filter(isCount))
  return Math.max(...maxima) * choices
}

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

type Reader = ReadableStreamDefaultReader<Uint8Array>

interface Beginning {
  chunks: Uint8Array[]
  bytes: number
  /** Absent: the body has ended. */
  rest?: { how: 'too-large' | 'failed'; reader: Reader }
}

async function readUpTo(body: ReadableStream<Uint8Array>, maxBytes: number): Promise<Beginning> {
  const reader = body.getReader()
  const chunks: Uint8Array[] = []
  let bytes = 0
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return { chunks, bytes }
      chunks.push(value)
      bytes += value.byteLength
      if (bytes > maxBytes) return { chunks, bytes, rest: { how: 'too-large', reader } }
    }
  } catch {
    return { chunks, bytes, rest: { how: 'failed', reader } }
  }
}

/** A body that was read in part: what was read, then the rest as it arrives. If it has failed, it fails again. */
function continued(chunks: Uint8Array[], reader: Reader): ReadableStream<Uint8Array> {
  const first = [...chunks]
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const chunk = first.shift()
        if (chunk) return controller.enqueue(chunk)
        const { done, value } = await reader.read()
        if (done) controller.close()
        else controller.enqueue(value)
      },
      cancel: reason => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  )
}

function withBody(request: Request, body: Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>): Request {
  const headers = new Headers(request.headers)
  if (body instanceof Uint8Array && headers.has('content-length')) {
    headers.set('content-length', String(body.byteLength))
  }
  // Node requires `duplex` for a stream.
  return new Request(request, { body, headers, duplex: 'half' } as RequestInit)
}
