/**
 * An API of language models, in the formats of OpenAI, Anthropic and Gemini. The header X-LLM of a request plans its reply, as JSON. A model says one
 * word for each token.
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createGzip, constants as zlib } from 'node:zlib'
import type { Tokens } from '../../src/usage/tokens.ts'

/** How the model replies to a request. */
export interface LlmPlan {
  /** Tokens of the prompt. Default: its JSON has so many characters, divided by four. */
  input?: number
  /** Tokens of the prompt that come from the cache, or are written to it (Anthropic). */
  cached?: number
  cacheWrite?: number
  /** Tokens of output (default 20), at most the maximum of the request. */
  output?: number
  /** Waits before the head, and between events (ms). */
  delayMs?: number
  pauseMs?: number
  /** Waits after the first event, or after so many events, until the test opens this gate. */
  gate?: string
  gateAt?: number
  /** Refuses with this status, with an error in JSON or with this text. */
  status?: number
  errorText?: string
  /** Breaks off before this event, or in the middle of a JSON body. */
  failAt?: number
  gzip?: boolean
  /** Reports no usage, or values that are not numbers of tokens. */
  usage?: 'none' | 'negative' | 'text'
}

export interface LlmCall {
  path: string
  headers: Record<string, string>
  body: Record<string, unknown>
  /** What it has cost so far: a client that leaves does not pay for what was not generated. */
  tokens: Tokens
  /** Whether the whole reply was sent. */
  isWhole: boolean
}

export interface LlmOrigin {
  fetch(request: Request): Promise<Response>
  /** Oldest first. */
  calls: LlmCall[]
  /** Requests to other paths. */
  refused: { path: string; authorization: string | null }[]
  /** Lets the replies that wait at this gate go on. */
  open(gate: string): void
}

type Json = Record<string, unknown>

interface Format {
  /** Whether it replies with events. Absent: if the request has any `stream` that is true in JavaScript, as lenient servers do. */
  streams?: boolean
  /** The maximum of the request. */
  maximum(body: Json): unknown
  json(tokens: Tokens, plan: LlmPlan): Json
  /** Calls `say` before each token. */
  events(
    tokens: Tokens,
    plan: LlmPlan,
    body: Json,
  ): Iterable<{ event?: string; data: unknown; words?: number }>
}

const word = (i: number) => `word${i} `
const textOf = ({ output }: Tokens) => Array.from({ length: output }, (_, i) => word(i)).join('')
const wrong = (value: number, { usage }: LlmPlan) =>
  usage === 'negative' ? -value : usage === 'text' ? String(value) : value

/** The usage of a chat completion or an embedding. OpenAI counts cached tokens as tokens of the prompt, too. */
function chatUsage(tokens: Tokens, plan: LlmPlan): Json {
  if (plan.usage === 'none') return {}
  const prompt = tokens.input + tokens.cached
  return {
    usage: {
      prompt_tokens: wrong(prompt, plan),
      completion_tokens: wrong(tokens.output, plan),
      total_tokens: prompt + tokens.output,
      prompt_tokens_details: { cached_tokens: tokens.cached, audio_tokens: 0 },
      completion_tokens_details: { reasoning_tokens: 0 },
    },
  }
}

function responsesUsage(tokens: Tokens, plan: LlmPlan): Json {
  if (plan.usage === 'none') return { usage: null }
  const prompt = tokens.input + tokens.cached
  return {
    usage: {
      input_tokens: wrong(prompt, plan),
      input_tokens_details: { cached_tokens: tokens.cached },
      output_tokens: wrong(tokens.output, plan),
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: prompt + tokens.output,
    },
  }
}

function messageUsage(tokens: Tokens, plan: LlmPlan): Json {
  if (plan.usage === 'none') return {}
  return {
    usage: {
      input_tokens: wrong(tokens.input, plan),
      cache_creation_input_tokens: tokens.cacheWrite,
      cache_read_input_tokens: tokens.cached,
      output_tokens: wrong(tokens.output, plan),
      service_tier: 'standard',
    },
  }
}

function geminiUsage(tokens: Tokens, plan: LlmPlan): Json {
  if (plan.usage === 'none') return {}
  const prompt = tokens.input + tokens.cached
  return {
    usageMetadata: {
      promptTokenCount: wrong(prompt, plan),
      candidatesTokenCount: wrong(tokens.output, plan),
      totalTokenCount: wrong(prompt + tokens.output, plan),
    },
  }
}

const chunk = (fields: Json) => ({
  ...{ id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'words' },
  ...fields,
})

const FORMATS: Record<string, Format> = {
  '/v1/chat/completions': {
    maximum: body => body.max_completion_tokens ?? body.max_tokens,
    json: (tokens, plan) => ({
      ...{ id: 'chatcmpl-1', object: 'chat.completion', created: 1, model: 'words' },
      choices: [{ index: 0, message: { role: 'assistant', content: textOf(tokens) }, finish_reason: 'stop' }],
      ...chatUsage(tokens, plan),
    }),
    *events(tokens, plan, body) {
      const options = body.stream_options as { include_usage?: boolean } | undefined
      const usage = options?.include_usage && plan.usage !== 'none' ? { usage: null } : {}
      const choice = (delta: Json, reason: string | null = null) =>
        chunk({ choices: [{ index: 0, delta, finish_reason: reason }], ...usage })
      yield { data: choice({ role: 'assistant', content: '' }) }
      for (let i = 0; i < tokens.output; i++) yield { data: choice({ content: word(i) }), words: 1 }
      yield { data: choice({}, 'stop') }
      if (options?.include_usage) yield { data: chunk({ choices: [], ...chatUsage(tokens, plan) }) }
      yield { data: '[DONE]' }
    },
  },
  '/v1/completions': {
    maximum: body => body.max_tokens,
    json: (tokens, plan) => ({
      ...completion([{ index: 0, text: textOf(tokens), finish_reason: 'stop' }]),
      ...chatUsage(tokens, plan),
    }),
    *events(tokens, plan, body) {
      const options = body.stream_options as { include_usage?: boolean } | undefined
      for (let i = 0; i < tokens.output; i++) {
        yield { data: completion([{ index: 0, text: word(i), finish_reason: null }]), words: 1 }
      }
      if (options?.include_usage) yield { data: { ...completion([]), ...chatUsage(tokens, plan) } }
      yield { data: '[DONE]' }
    },
  },
  '/v1/responses': {
    maximum: body => body.max_output_tokens,
    json: (tokens, plan) => ({
      ...responseOf(tokens, 'completed'),
      ...responsesUsage(tokens, plan),
    }),
    *events(tokens, plan) {
      const typed = (type: string, fields: Json, words = 0) => ({
        event: type,
        data: { type, ...fields },
        words,
      })
      yield typed('response.created', { response: { ...responseOf(tokens, 'in_progress'), usage: null } })
      for (let i = 0; i < tokens.output; i++) {
        yield typed('response.output_text.delta', { item_id: 'msg_1', delta: word(i) }, 1)
      }
      const response = { ...responseOf(tokens, 'completed'), ...responsesUsage(tokens, plan) }
      yield typed('response.completed', { response })
    },
  },
  '/v1/embeddings': {
    maximum: () => 0,
    json: (tokens, plan) => ({
      object: 'list',
      data: [{ object: 'embedding', index: 0, embedding: Array.from({ length: 256 }, (_, i) => i / 256) }],
      model: 'words',
      ...chatUsage(tokens, plan),
    }),
    events: () => [],
  },
  '/v1/messages': {
    maximum: body => body.max_tokens,
    json: (tokens, plan) => ({
      ...messageOf([{ type: 'text', text: textOf(tokens) }], 'end_turn'),
      ...messageUsage(tokens, plan),
    }),
    *events(tokens, plan) {
      const typed = (type: string, fields: Json, words = 0) => ({
        event: type,
        data: { type, ...fields },
        words,
      })
      const first = { ...tokens, output: Math.min(tokens.output, 1) }
      yield typed('message_start', { message: { ...messageOf([], null), ...messageUsage(first, plan) } })
      yield typed('content_block_start', { index: 0, content_block: { type: 'text', text: '' } })
      yield typed('ping', {})
      for (let i = 0; i < tokens.output; i++) {
        yield typed('content_block_delta', { index: 0, delta: { type: 'text_delta', text: word(i) } }, 1)
      }
      yield typed('content_block_stop', { index: 0 })
      yield typed('message_delta', {
        delta: { stop_reason: 'end_turn', stop_sequence: null },
        ...messageUsage(tokens, plan),
      })
      yield typed('message_stop', {})
    },
  },
  '/v1beta/models/words:generateContent': {
    streams: false,
    maximum: geminiMaximum,
    json: (tokens, plan) => ({ ...candidateOf(textOf(tokens), 'STOP'), ...geminiUsage(tokens, plan) }),
    events: () => [],
  },
  '/v1beta/models/words:streamGenerateContent': {
    streams: true,
    maximum: geminiMaximum,
    json: () => ({}),
    *events(tokens, plan) {
      for (let i = 0; i < tokens.output; i++) {
        const reason = i === tokens.output - 1 ? 'STOP' : undefined
        const soFar = geminiUsage({ ...tokens, output: i + 1 }, plan)
        yield { data: { ...candidateOf(word(i), reason), ...soFar }, words: 1 }
      }
    },
  },
}

function geminiMaximum({ generationConfig }: Json): unknown {
  return (generationConfig as Json | undefined)?.maxOutputTokens
}

const candidateOf = (text: string, finishReason: string | undefined) => ({
  candidates: [{ index: 0, content: { role: 'model', parts: [{ text }] }, finishReason }],
  modelVersion: 'words',
})

const completion = (choices: unknown[]) => ({
  ...{ id: 'cmpl-1', object: 'text_completion', created: 1, model: 'words', choices },
})

const responseOf = (tokens: Tokens, status: string) => ({
  ...{ id: 'resp_1', object: 'response', created_at: 1, status, error: null, model: 'words' },
  output:
    status === 'completed'
      ? [
          {
            ...{ id: 'msg_1', type: 'message', status, role: 'assistant' },
            content: [{ type: 'output_text', text: textOf(tokens), annotations: [] }],
          },
        ]
      : [],
})

const messageOf = (content: unknown[], reason: string | null) => ({
  ...{ id: 'msg_1', type: 'message', role: 'assistant', model: 'words', content },
  ...{ stop_reason: reason, stop_sequence: null },
})

export function createLlmOrigin(): LlmOrigin {
  const calls: LlmCall[] = []
  const refused: LlmOrigin['refused'] = []
  const gates = new Map<string, PromiseWithResolvers<void>>()
  function gateOf(name: string) {
    const gate = gates.get(name) ?? Promise.withResolvers<void>()
    gates.set(name, gate)
    return gate
  }
  return {
    ...{ calls, refused },
    open: gate => gateOf(gate).resolve(),
    async fetch(request) {
      const { pathname: path } = new URL(request.url)
      const format = FORMATS[path]
      if (!format || request.method !== 'POST') {
        refused.push({ path, authorization: request.headers.get('authorization') })
        return refuse(404)
      }
      const text = await request.text()
      const body = JSON.parse(text) as Json
      const plan = JSON.parse(request.headers.get('x-llm') ?? '{}') as LlmPlan
      const { input = Math.ceil(text.length / 4), cached = 0, cacheWrite = 0 } = plan
      const output = Math.min(plan.output ?? 20, Number(format.maximum(body) ?? Number.POSITIVE_INFINITY))
      const tokens = { input, output, cached, cacheWrite }
      const call: LlmCall = {
        ...{ path, body, isWhole: false },
        headers: Object.fromEntries(request.headers),
        tokens: { ...tokens, output: 0 },
      }
      calls.push(call)
      await pause(plan.delayMs)
      if (plan.status) {
        call.tokens = { input: 0, output: 0, cached: 0, cacheWrite: 0 }
        return refuse(plan.status, plan.errorText)
      }
      const streams = format.streams ?? Boolean(body.stream)
      // As Gemini streams without `alt=sse`.
      const isList = streams && new URL(request.url).searchParams.get('alt') === 'json'
      const events = () => format.events(tokens, plan, body)
      const lines = isList
        ? elementsOf(events())
        : streams
          ? linesOf(events())
          : [whole(format, tokens, plan)]
      const opened = plan.gate === undefined ? undefined : gateOf(plan.gate).promise
      return new Response(bodyOf(lines, plan, { call, streams, opened }), {
        headers: {
          'content-type': streams && !isList ? 'text/event-stream; charset=utf-8' : 'application/json',
          'x-usage-tokens': String(input + cached + cacheWrite + output),
          ...(plan.gzip && { 'content-encoding': 'gzip' }),
        },
      })
    },
  }
}

interface Line {
  text: string
  words: number
}

const whole = (format: Format, tokens: Tokens, plan: LlmPlan): Line => ({
  text: JSON.stringify(format.json(tokens, plan)),
  words: tokens.output,
})

function* linesOf(events: ReturnType<Format['events']>): Iterable<Line> {
  for (const { event, data, words = 0 } of events) {
    const name = event ? `event: ${event}\n` : ''
    yield { text: `${name}data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`, words }
  }
}

/** The same as one JSON list. */
function* elementsOf(events: ReturnType<Format['events']>): Iterable<Line> {
  let before = '['
  for (const { data, words = 0 } of events) {
    yield { text: `${before}${JSON.stringify(data)}`, words }
    before = ',\n'
  }
  yield { text: ']', words: 0 }
}

function refuse(status: number, text?: string): Response {
  if (text !== undefined) return new Response(text, { status })
  return Response.json({ error: { type: 'server_error', message: 'The model is busy.' } }, { status })
}

/** @param opened resolves when the reply may go on after its first event */
function bodyOf(
  lines: Iterable<Line>,
  plan: LlmPlan,
  { call, streams, opened }: { call: LlmCall; streams: boolean; opened: Promise<void> | undefined },
): ReadableStream<Uint8Array> {
  const iterator = lines[Symbol.iterator]()
  const encode = plan.gzip ? gzipper() : async (text: string | undefined) => new TextEncoder().encode(text)
  let sent = 0
  return new ReadableStream(
    {
      async pull(controller) {
        const { done, value } = iterator.next()
        if (!done && sent === plan.failAt) {
          if (!streams) {
            controller.enqueue(await encode(value.text.slice(0, value.text.length / 2)))
          }
          // Later, so that what was sent leaves before the connection breaks.
          await pause(5)
          return controller.error(new Error('The model has failed.'))
        }
        if (sent >= (plan.gateAt ?? 1)) await opened
        if (sent > 0) await pause(plan.pauseMs)
        if (done) {
          const end = await encode(undefined)
          if (end.byteLength > 0) controller.enqueue(end)
          call.isWhole = true
          return controller.close()
        }
        call.tokens.output += value.words
        sent += 1
        controller.enqueue(await encode(value.text))
      },
    },
    { highWaterMark: 0 },
  )
}

/** Compresses texts so that each can be read before the next one. Undefined: the end. */
function gzipper(): (text: string | undefined) => Promise<Uint8Array> {
  const gzip = createGzip()
  let bytes: Buffer[] = []
  gzip.on('data', part => bytes.push(part))
  const taken = () => {
    const all = Buffer.concat(bytes)
    bytes = []
    return new Uint8Array(all)
  }
  return text =>
    new Promise(resolve => {
      if (text === undefined) gzip.once('end', () => resolve(taken())).end()
      else {
        gzip.write(text)
        gzip.flush(zlib.Z_SYNC_FLUSH, () => setImmediate(() => resolve(taken())))
      }
    })
}

const pause = async (ms = 0): Promise<void> => {
  if (ms > 0) await new Promise(resolve => setTimeout(resolve, ms))
}

/** The same over HTTP. A body that fails breaks the connection. */
export async function startLlmOrigin(): Promise<LlmOrigin & { url: string; close(): Promise<void> }> {
  const origin = createLlmOrigin()
  const server = createServer(async (req, res) => {
    try {
      const body: Buffer[] = []
      for await (const part of req) body.push(part)
      const response = await origin.fetch(
        new Request(`http://origin.test${req.url}`, {
          method: req.method!,
          headers: Object.entries(req.headers).map(
            ([name, value]) => [name, String(value)] as [string, string],
          ),
          ...(body.length > 0 && { body: Buffer.concat(body) }),
        }),
      )
      res.writeHead(response.status, Object.fromEntries(response.headers))
      res.flushHeaders()
      const reader = response.body!.getReader()
      res.once('close', () => void reader.cancel().catch(() => {}))
      for (;;) {
        const { done, value } = await reader.read()
        if (done) break
        if (!res.write(value)) await new Promise(resolve => res.once('drain', resolve).once('close', resolve))
      }
      res.end()
    } catch {
      res.destroy()
    }
  })
  // A Worker does not send a request again whose connection was closed at that moment.
  server.keepAliveTimeout = 600_000
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    ...origin,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}
