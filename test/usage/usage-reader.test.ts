/** What a reply has cost, in the formats of the API that test/support/llm-origin.ts plays, and when it goes wrong. */
import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { withActualHook } from '../../src/usage/actual-hook.ts'
import { NO_TOKENS } from '../../src/usage/tokens.ts'
import type {
  AmountSources,
  ReplyEnding,
  UsageFormat,
  UsageReader,
  UsageReport,
} from '../../src/usage/usage.ts'
import { createUsageReader, type UsageReaderOptions } from '../../src/usage/usage-reader.ts'
import { createLlmOrigin, type LlmPlan } from '../support/llm-origin.ts'

const PATHS = {
  chat: '/v1/chat/completions',
  responses: '/v1/responses',
  embeddings: '/v1/embeddings',
  messages: '/v1/messages',
} as const

type Api = keyof typeof PATHS

interface Asked {
  /** Bytes that the client got. */
  sent: Uint8Array[]
  reader: UsageReader
  report: UsageReport
}

const formatOf = (api: Api) => (api === 'messages' ? 'anthropic' : 'openai')
const bothOf = (api: Api): AmountSources => ({
  tokens: { usage: formatOf(api) },
  usd: { usage: formatOf(api), weights: { input: 2.5, output: 10, cached: 0.25 } },
})

/** Passes on the body of a reply as a set-up does. */
async function passOn(
  reply: Response,
  sources: AmountSources,
  options: UsageReaderOptions & { leavesAfter?: number } = {},
): Promise<Asked> {
  const reader = createUsageReader(sources, reply, options)
  const sent: Uint8Array[] = []
  let ending: ReplyEnding = 'complete'
  const source = reply.body!.getReader()
  try {
    for (;;) {
      if (sent.length === options.leavesAfter) {
        ending = 'cancelled'
        await source.cancel()
        break
      }
      const { done, value } = await source.read()
      if (done) break
      sent.push(reader.pass(value))
      await reader.see(value)
    }
    sent.push(reader.rest())
  } catch {
    ending = 'failed'
  }
  return { sent, reader, report: await reader.end(ending) }
}

async function ask(
  api: Api,
  plan: LlmPlan,
  {
    stream = false,
    includesUsage = true,
    sources = bothOf(api),
    ...options
  }: {
    stream?: boolean
    includesUsage?: boolean
    sources?: AmountSources
    leavesAfter?: number
  } & UsageReaderOptions = {},
) {
  const origin = createLlmOrigin()
  const body = {
    ...{ model: 'words', messages: [{ role: 'user', content: 'Say some words.' }], stream },
    ...(includesUsage && { stream_options: { include_usage: true } }),
  }
  const reply = await origin.fetch(
    new Request(`http://origin.test${PATHS[api]}`, {
      method: 'POST',
      body: JSON.stringify(body),
      headers: { 'x-llm': JSON.stringify(plan) },
    }),
  )
  return { ...(await passOn(reply, sources, options)), call: origin.calls[0]! }
}

const sse = (...events: string[]) =>
  new Response(events.map(event => `${event}\n\n`).join(''), {
    headers: { 'content-type': 'text/event-stream' },
  })

const textOf = (parts: readonly Uint8Array[]) => new TextDecoder().decode(Buffer.concat(parts))

describe('the usage of a reply', () => {
  const cases = (['chat', 'responses', 'messages'] as const).flatMap(api =>
    [false, true].flatMap(stream => [false, true].map(gzip => ({ api, stream, gzip }))),
  )

  it.each([...cases, { api: 'embeddings', stream: false, gzip: false } as const])(
    'is what the origin has counted: $api, streaming: $stream, gzip: $gzip',
    async ({ api, stream, gzip }) => {
      const { report, call } = await ask(api, { input: 1000, cached: 300, output: 25, gzip }, { stream })
      const output = api === 'embeddings' ? 0 : 25
      expect(call.tokens).toEqual({ input: 1000, output, cached: 300, cacheWrite: 0 })
      expect(report).toEqual({
        amounts: { tokens: 1300 + output, usd: 2500 + 75 + 10 * output },
        tokens: call.tokens,
        ending: 'complete',
        isPartial: false,
        problems: [],
        ...(api === 'responses' && { job: { id: expect.any(String), isOver: true } }),
      })
    },
  )

  it('has the tokens that Anthropic writes to the cache, and those of compactions', async () => {
    const { report } = await ask(
      'messages',
      { input: 10, cached: 20, cacheWrite: 40, output: 5 },
      { stream: true },
    )
    expect(report.tokens).toEqual({ input: 10, cached: 20, cacheWrite: 40, output: 5 })
    expect(report.amounts.tokens).toBe(75)

    const usage = {
      ...{ input_tokens: 23, output_tokens: 10 },
      iterations: [
        { type: 'compaction', input_tokens: 180, output_tokens: 35 },
        { type: 'message', input_tokens: 23, output_tokens: 10 },
      ],
    }
    const { report: compacted } = await passOn(Response.json({ usage }), bothOf('messages'))
    expect(compacted.tokens).toEqual({ ...NO_TOKENS, input: 203, output: 45 })
  })

  it('is the latest of each field, not a sum', async () => {
    const { report } = await passOn(
      sse(
        'data: {"type":"message_start","message":{"usage":{"input_tokens":25,"output_tokens":1}}}',
        'data: {"type":"message_delta","usage":{"output_tokens":15,"cache_read_input_tokens":4}}',
        'data: {"type":"message_delta","usage":{"output_tokens":40,"input_tokens":30}}',
      ),
      bothOf('messages'),
    )
    expect(report.tokens).toEqual({ input: 30, output: 40, cached: 4, cacheWrite: 0 })
  })

  it('is read from chunks of any size, with any line endings', async () => {
    const events =
      '\ufeff: hello\r\n\r\nid: 1\r\ndata: {"choices":[{"delta":{"content":"\\"usage\\":{ é"}}],"usage":null}\r\n\r\n' +
      'data: {"choices":[],\r\ndata: "usage" : {"prompt_tokens":3,"completion_tokens":4}}\r\n\r\ndata: [DONE]\r\n\r\n'
    const bytes = new TextEncoder().encode(events)
    for (const size of [1, 2, 5, 64, bytes.length]) {
      const reader = createUsageReader(bothOf('chat'), sse())
      for (let at = 0; at < bytes.length; at += size) void reader.see(bytes.slice(at, at + size))
      expect((await reader.end('complete')).tokens).toEqual({ ...NO_TOKENS, input: 3, output: 4 })
    }
  })

  it('is in the choices that have ended (Kimi), one by one, or in x_groq', async () => {
    const delta = (index: number) => `data: {"choices":[{"index":${index},"delta":{"content":"a"}}]}`
    const end = (index: number, output: number) =>
      `data: {"choices":[{"index":${index},"finish_reason":"stop","usage":{"prompt_tokens":9,"completion_tokens":${output}}}]}`
    const kimi = await passOn(sse(delta(0), end(0, 5), 'data: [DONE]'), bothOf('chat'))
    expect(kimi.report).toMatchObject({ amounts: { tokens: 14 }, isPartial: false, problems: [] })
    const two = [delta(0), end(0, 5), delta(1), end(1, 6)]
    expect((await passOn(sse(...two), bothOf('chat'))).report.amounts.tokens).toBe(9 + 5 + 6)
    const broken = await passOn(sse(...two.slice(0, 3)), bothOf('chat'))
    expect(broken.report).toMatchObject({ amounts: { tokens: 9 + 5 + 1 }, isPartial: true })
    const groq =
      'data: {"choices":[{"delta":{},"finish_reason":"stop"}],"x_groq":{"usage":{"prompt_tokens":9,"completion_tokens":5}}}'
    const { report } = await passOn(sse(delta(0), groq, 'data: [DONE]'), bothOf('chat'))
    expect(report).toMatchObject({ amounts: { tokens: 14 }, isPartial: false, problems: [] })
  })

  it('is read in UTF-16, in events of another content type, and in a last event without its blank line', async () => {
    const body = '{"text":"é","usage":{"prompt_tokens":3,"completion_tokens":4}}'
    const little = Buffer.from(body, 'utf16le')
    const big = Buffer.from(little).swap16()
    for (const bytes of [little, big, Buffer.concat([Buffer.from([0xff, 0xfe]), little])]) {
      for (const size of [1, 3, bytes.length]) {
        const reader = createUsageReader(bothOf('chat'), Response.json({}))
        for (let at = 0; at < bytes.length; at += size) void reader.see(bytes.subarray(at, at + size))
        expect((await reader.end('complete')).amounts.tokens).toBe(7)
      }
    }
    const events = `data: {"choices":[]}\n\ndata: ${body}`
    for (const type of ['text/event-stream', 'application/json', 'text/plain']) {
      const reply = new Response(events, { headers: { 'content-type': type } })
      const { report } = await passOn(reply, bothOf('chat'))
      expect(report).toMatchObject({ amounts: { tokens: 7 }, isPartial: false, problems: [] })
    }
  })

  it('says which job a reply is about, and whether that is over', async () => {
    const jobIn = async (reply: Response) => (await passOn(reply, bothOf('chat'))).report.job
    const events = (...all: [name: string, response: unknown][]) => {
      const texts = all.map(([name, response]) => `event: ${name}\ndata: ${JSON.stringify({ response })}\n\n`)
      return new Response(texts.join(''), { headers: { 'content-type': 'text/event-stream' } })
    }
    const begun = { object: 'response', id: 'resp_1', status: 'queued', usage: null }
    const usage = { input_tokens: 2, output_tokens: 3 }
    const done = { ...begun, status: 'completed', usage }
    expect(await jobIn(Response.json(begun))).toEqual({ id: 'resp_1', isOver: false })
    expect(await jobIn(Response.json({ ...done, object: 'batch' }))).toEqual({ id: 'resp_1', isOver: true })
    const { object: _, ...untyped } = begun
    expect(await jobIn(Response.json(untyped))).toEqual({ id: 'resp_1', isOver: false })
    expect(await jobIn(events(['response.created', begun]))).toEqual({ id: 'resp_1', isOver: false })
    const whole = events(['response.created', begun], ['response.completed', done])
    expect(await jobIn(whole)).toEqual({ id: 'resp_1', isOver: true })
    for (const wrong of [{ object: 'chat.completion' }, { id: 5 }, { id: 'x'.repeat(513) }, { status: 5 }])
      expect(await jobIn(Response.json({ ...done, ...wrong }))).toBeUndefined()
    expect(await jobIn(Response.json({ data: [done] }))).toBeUndefined()
    expect(await jobIn(Response.json(done, { status: 404 }))).toBeUndefined()
  })

  it('is not final while a background response or a batch has not ended', async () => {
    const none = { input_tokens: 0, output_tokens: 0 }
    for (const status of [
      'queued',
      'in_progress',
      'validating',
      'finalizing',
      'a status of another server',
    ]) {
      const body = { object: 'response', id: 'r', status, usage: none }
      const data = `data: ${JSON.stringify({ type: 'response.in_progress', response: body })}\n\n`
      const stream = new Response(data, { headers: { 'content-type': 'text/event-stream' } })
      for (const reply of [Response.json(body), stream]) {
        const { report } = await passOn(reply, bothOf('chat'))
        expect(report).toMatchObject({ isPartial: true, job: { isOver: false } })
      }
    }
    const body = {
      object: 'response',
      id: 'r',
      status: 'completed',
      usage: { input_tokens: 2, output_tokens: 3 },
    }
    const { report } = await passOn(Response.json(body), bothOf('chat'))
    expect(report).toMatchObject({ amounts: { tokens: 5 }, isPartial: false })
  })

  it.each<[UsageFormat, Api]>([
    ['anthropic', 'chat'],
    ['anthropic', 'responses'],
    ['openai', 'messages'],
    ['gemini', 'chat'],
    ['gemini', 'messages'],
  ])(
    'is read with the format %s, too, if the caller has chosen another API of the origin: %s',
    async (usage, api) => {
      for (const stream of [false, true]) {
        const plan = { input: 40, cached: 10, output: 30 }
        const { report } = await ask(api, plan, { stream, sources: { tokens: { usage } } })
        const tokens = { input: 40, cached: 10, output: 30, cacheWrite: 0 }
        expect(report).toMatchObject({ tokens, amounts: { tokens: 80 }, isPartial: false })
      }
    },
  )

  it('is that of Gemini with another format, too, and without usage each event with output counts', async () => {
    const usageMetadata = { promptTokenCount: 40, candidatesTokenCount: 30 }
    for (const body of [{ usageMetadata }, [{ usageMetadata }]]) {
      const { report } = await passOn(Response.json(body), bothOf('chat'))
      expect(report.amounts.tokens).toBe(70)
    }
    const plan: LlmPlan = { usage: 'none', output: 30 }
    const messages = await ask('messages', plan, { stream: true, sources: bothOf('chat') })
    const chat = await ask('chat', plan, { stream: true, sources: bothOf('messages') })
    expect([messages.report.amounts.tokens, chat.report.amounts.tokens]).toEqual([30, 33])
  })

  it('is not final after a candidate of Gemini has ended while another goes on', async () => {
    const chunk = (index: number, finishReason?: string) => {
      const usageMetadata = { promptTokenCount: 4, candidatesTokenCount: 3 }
      return `data: ${JSON.stringify({ candidates: [{ index, finishReason }], usageMetadata })}\n\n`
    }
    const reply = new Response(chunk(0, 'STOP') + chunk(1), {
      headers: { 'content-type': 'text/event-stream' },
    })
    const reader = createUsageReader({ tokens: { usage: 'gemini' } }, reply)
    await reader.see(new Uint8Array(await reply.arrayBuffer()))
    expect((await reader.end('cancelled')).isPartial).toBe(true)
  })

  it.each(['\n', '\r', '\r\n'])(
    'is read in an event above the bound, and behind it: line ends %j',
    async end => {
      const usage = { input_tokens: 40, output_tokens: 30 }
      const output = [{ result: 'data: x'.repeat(300) }]
      const response = { id: 'resp_1', object: 'response', status: 'completed', output, usage }
      const large = `event: response.completed${end}data: ${JSON.stringify({ response })}${end}${end}`
      const first = `data: {"n":1}${end}${end}`
      const last = `data: {"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":1}}${end}${end}`
      const read = async (text: string, size: number) => {
        const reader = createUsageReader(bothOf('chat'), sse(), { maxEventBytes: 1000 })
        const bytes = new TextEncoder().encode(text)
        for (let at = 0; at < bytes.length; at += size) void reader.see(bytes.slice(at, at + size))
        return await reader.end('complete')
      }
      for (const size of [1, 7, 100, 1200, 9999]) {
        const report = {
          amounts: { tokens: 70 },
          isPartial: false,
          job: { id: 'resp_1', isOver: true },
          problems: [],
        }
        expect(await read(first + large, size)).toMatchObject(report)
        expect(await read(large.trimEnd(), size)).toMatchObject(report)
        expect(await read(large + last, size)).toMatchObject({ amounts: { tokens: 9 }, problems: [] })
      }
    },
  )

  it('has no length on its way if the usage chunk is taken out', () => {
    const lengthAfter = (type: string, hidesUsage: boolean) => {
      const headers = new Headers({ 'content-type': type, 'content-length': '5' })
      const reader = createUsageReader(bothOf('chat'), { status: 200, headers }, { hidesUsage })
      reader.cleanHeaders(headers)
      return [reader.changesBytes, headers.get('content-length')]
    }
    expect(lengthAfter('text/event-stream', true)).toEqual([true, null])
    expect(lengthAfter('text/event-stream', false)).toEqual([false, '5'])
    expect(lengthAfter('application/json', true)).toEqual([false, '5'])
  })

  it('does not change a byte on its way', async () => {
    for (const stream of [false, true]) {
      const { sent, reader } = await ask('messages', { output: 30 }, { stream })
      const { sent: plain } = await ask('messages', { output: 30 }, { stream, sources: {} })
      expect(textOf(sent)).toBe(textOf(plain))
      expect(reader).toMatchObject({ readsBody: true, changesBytes: false })
    }
  })
})

describe('a reply that breaks off', () => {
  it('has what was seen: Anthropic reports the prompt first, and each delta is at least a token', async () => {
    const { report, call } = await ask(
      'messages',
      { input: 50, output: 30 },
      { stream: true, leavesAfter: 13 },
    )
    expect(report).toMatchObject({ ending: 'cancelled', isPartial: true })
    // The first event has reported one.
    expect(report.tokens).toEqual({ ...NO_TOKENS, input: 50, output: 10 + 1 })
    expect(call.tokens).toEqual({ ...NO_TOKENS, input: 50, output: 10 })
  })

  it.each([true, false])('has what was seen before the origin failed, gzip: %s', async gzip => {
    const { report } = await ask('messages', { input: 50, output: 30, failAt: 13, gzip }, { stream: true })
    expect(report).toMatchObject({
      ...{ ending: 'failed', isPartial: true, amounts: { tokens: 61 } },
      ...{ tokens: { input: 50, output: 11 }, problems: [] },
    })
  })

  it.each(['chat', 'responses'] as const)(
    'has a token for each event with output, if no usage was seen: %s',
    async api => {
      for (const how of [{ leavesAfter: 15 }, { plan: { failAt: 15 } }]) {
        const { plan, ...options } = { plan: {}, ...how }
        const { report, call } = await ask(api, plan, { stream: true, ...options })
        expect(report).toMatchObject({ isPartial: true, problems: [] })
        expect(report.amounts.tokens).toBeGreaterThanOrEqual(call.tokens.output)
        // The first event of a chat has no text.
        expect(report.amounts.tokens).toBeLessThanOrEqual(call.tokens.output + 1)
        expect(report.amounts.usd).toBe(10 * report.amounts.tokens!)
      }
    },
  )

  it('is whole if the client leaves after the last usage', async () => {
    for (const [api, events] of [
      ['chat', 23],
      ['messages', 25],
    ] as const) {
      const { report } = await ask(api, { input: 5 }, { stream: true, leavesAfter: events })
      expect(report).toMatchObject({ ending: 'cancelled', isPartial: false, amounts: { tokens: 25 } })
    }
  })

  it('has no amounts if it fails before its first byte: the origin may have worked', async () => {
    for (const api of ['chat', 'responses', 'messages'] as const) {
      const { report } = await ask(api, { failAt: 0 }, { stream: true })
      expect(report).toMatchObject({ ending: 'failed', isPartial: true, amounts: {} })
    }
  })

  it('costs nothing if it says that nothing was produced', async () => {
    for (const api of ['chat', 'responses', 'messages'] as const) {
      for (const status of [400, 429, 500, 529]) {
        const { report } = await ask(api, { status })
        expect(report).toMatchObject({ amounts: { tokens: 0, usd: 0 }, isPartial: false, problems: [] })
      }
    }
    for (const event of [
      'event: error\ndata: {"type":"error"}',
      'data: {"error":{"message":"overloaded"}}',
      'data: { "error" : {"message":"overloaded"},"choices":[]}',
    ]) {
      const { report } = await passOn(sse(event, 'data: [DONE]'), bothOf('messages'))
      expect(report).toMatchObject({ amounts: { tokens: 0, usd: 0 }, problems: [] })
    }
  })

  it.each<[status: number, type: string, body: string, costsNothing: boolean]>([
    [404, 'text/html', '<html>', true],
    [422, 'application/json', '{"detail":[]}', true],
    [503, 'text/html', '<html>', true],
    [500, 'application/problem+json', '{}', true],
    [500, 'text/plain', 'Internal Server Error', false],
    [502, 'text/html', '<html>', false],
    [504, 'application/json', '{"error":{"message":"Timeout"}}', false],
    [524, 'text/html', '<html>', false],
    [408, 'application/json', '{"error":{}}', false],
    [400, 'application/json', '{"error":{"code":"tool_use_failed","failed_generation":"<tool"}}', false],
    [400, 'application/json', '{"error":{"code":"other","failed_generation": ""}}', true],
  ])(
    'that is an error with status %s in %s, %s: costs nothing is %s',
    async (status, type, body, costsNothing) => {
      const reply = new Response(body, { status, headers: { 'content-type': type } })
      const { report } = await passOn(reply, bothOf('chat'))
      expect(report.amounts).toEqual(costsNothing ? { tokens: 0, usd: 0 } : {})
    },
  )

  it('costs what it reports although it is an error, or began with one', async () => {
    const body = { error: {}, usage: { prompt_tokens: 3, completion_tokens: 4 } }
    expect((await passOn(Response.json(body, { status: 400 }), bothOf('chat'))).report.amounts.tokens).toBe(7)
    const delta = 'data: {"choices":[{"delta":{"content":"a"}}]}'
    const { report } = await passOn(sse('data: {"error":{}}', delta, delta), bothOf('chat'))
    expect(report).toMatchObject({ amounts: { tokens: 2 }, isPartial: true })
  })

  it('has no amounts if it fails in the middle of JSON', async () => {
    const { report } = await ask('chat', { failAt: 0 })
    expect(report).toMatchObject({ ending: 'failed', isPartial: true, amounts: {} })
  })

  it('is reported once: later ends have the same report, and what is seen later does not count', async () => {
    const reader = createUsageReader(bothOf('chat'), sse())
    const first = reader.end('cancelled')
    void reader.see(new TextEncoder().encode('data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n'))
    expect(await reader.end('complete')).toBe(await first)
    expect((await first).ending).toBe('cancelled')
    expect((await first).tokens).toBe(undefined)
  })
})

describe('other sources', () => {
  const replyWith = (headers: Record<string, string>, body: unknown = {}, status = 200) =>
    Response.json(body, { status, headers })

  it('are headers, which the client does not get unless they are kept', async () => {
    const reply = replyWith({ 'x-usage-tokens': '731', 'x-ms': ' 12 ' })
    const sources = { tokens: { header: 'X-Usage-Tokens' }, ms: { header: 'x-ms', keep: true } }
    const { reader, report } = await passOn(reply, sources)
    expect(report).toMatchObject({ amounts: { tokens: 731, ms: 12 }, isPartial: false, problems: [] })
    expect(reader.readsBody).toBe(false)
    reader.cleanHeaders(reply.headers)
    expect([reply.headers.get('x-usage-tokens'), reply.headers.get('x-ms')]).toEqual([null, ' 12 '.trim()])
  })

  it('are JSON pointers, in a body or in events, and round decimals up', async () => {
    const sources = { tokens: { json: '/usage/total_tokens' }, usd: { json: '/costs/0/micro' } }
    const body = { costs: [{ micro: 12.01 }], usage: { total_tokens: 5 } }
    expect((await passOn(Response.json(body), sources)).report.amounts).toEqual({ tokens: 5, usd: 13 })
    const events = [
      'data: {"text":"a"}',
      'data: {"usage":{"total_tokens":3}}',
      `data: ${JSON.stringify(body)}`,
      'data: {"usage":{"total_tokens":null}}',
    ]
    expect((await passOn(sse(...events), sources)).report).toMatchObject({
      ...{ amounts: { tokens: 5, usd: 13 }, isPartial: false, problems: [] },
    })
  })

  it('are JSON pointers with any letters, also if an event arrives byte by byte', async () => {
    const reader = createUsageReader({ tokens: { json: '/é/größe' } }, sse())
    for (const byte of new TextEncoder().encode('data: {"é":{"größe":5}}\n\n')) {
      void reader.see(new Uint8Array([byte]))
    }
    expect((await reader.end('complete')).amounts).toEqual({ tokens: 5 })
  })

  it('are statuses: 1 or 0', async () => {
    const sources = { guesses: { status: [401, 403] } }
    for (const [status, amount] of [
      [200, 0],
      [401, 1],
      [403, 1],
      [500, 0],
    ]) {
      const { report, reader } = await passOn(replyWith({}, {}, status), sources)
      expect([report.amounts, reader.readsBody]).toEqual([{ guesses: amount }, false])
    }
  })

  it('are a hook over all that was found', async () => {
    const reply = replyWith({ 'x-factor': '3' }, { usage: { prompt_tokens: 7, completion_tokens: 2 } })
    const { report } = await passOn(reply, bothOf('chat'))
    const hooked = await withActualHook(
      report,
      ({ tokens }, { headers }) => ({ usd: tokens!.input * Number(headers.get('x-factor')) }),
      reply,
    )
    expect(hooked).toEqual({ ...report, amounts: { tokens: 9, usd: 21 } })
    expect(await withActualHook(report, () => undefined, reply)).toEqual(report)
  })

  it.each([
    [
      'throws',
      () => {
        throw new TypeError('secret')
      },
      'The hook failed: TypeError.',
    ],
    ['returns a negative number', () => ({ usd: -1 }), undefined],
    ['returns NaN', async () => ({ usd: Number.NaN }), undefined],
    ['returns a number', () => 5 as never, undefined],
  ])('keep their amounts if the hook %s', async (_, hook, detail) => {
    const { report } = await passOn(replyWith({}, { usage: { prompt_tokens: 7 } }), bothOf('chat'))
    const hooked = await withActualHook(report, hook, replyWith({}))
    expect(hooked.amounts).toEqual(report.amounts)
    expect(hooked.problems).toMatchObject([{ reason: 'hook', ...(detail && { detail }) }])
  })
})

describe('what cannot be read', () => {
  const reasonsOf = ({ problems }: UsageReport) => problems.map(({ reason }) => reason)
  const json = (text: string, headers: Record<string, string> = {}) =>
    new Response(text, { headers: { 'content-type': 'application/json', ...headers } })

  it.each(['-5', '1.5', 'NaN', '1e3', '9999999999', '', '0x10', '5, 6'])('is a header of %j', async value => {
    const { report } = await passOn(json('{}', { 'x-tokens': value }), { tokens: { header: 'x-tokens' } })
    expect([report.amounts, reasonsOf(report)]).toEqual([{}, ['bad-amount']])
  })

  it.each(['-5', '1000000001', '"5"', 'true', '{}', '[5]', '1e400'])(
    'is a value of %s at a pointer',
    async value => {
      const { report } = await passOn(json(`{"n":${value}}`), { tokens: { json: '/n' } })
      expect([report.amounts, reasonsOf(report)]).toEqual([{}, ['bad-amount']])
    },
  )

  it.each(['negative', 'text'] as const)('is usage with values that are %s', async usage => {
    for (const stream of [false, true]) {
      const { report } = await ask('chat', { usage, input: 3 }, { stream })
      // The events of the stream are counted.
      expect(report.amounts.tokens ?? 0).toBe(stream ? 23 : 0)
      expect(report.isPartial).toBe(stream)
      expect(reasonsOf(report)).toContain('bad-amount')
    }
  })

  it('is usage of which one value is wrong or missing; the rest of it alone would be too little', async () => {
    for (const usage of ['{"prompt_tokens":-1,"completion_tokens":9}', '{"completion_tokens":9}']) {
      const { report } = await passOn(json(`{"usage":${usage}}`), bothOf('chat'))
      expect(report.amounts).toEqual({})
    }
    const start = 'data: {"type":"message_start","message":{"usage":{"input_tokens":25,"output_tokens":1}}}'
    const delta = 'data: {"type":"message_delta","usage":{"input_tokens":1.5,"output_tokens":50}}'
    const { report } = await passOn(sse(start, delta), bothOf('messages'))
    expect(report).toMatchObject({ isPartial: true, tokens: { input: 25, output: 1 } })
    expect(reasonsOf(report)).toEqual(['bad-amount'])
  })

  it('is a reply without usage, header or value', async () => {
    const sources = { a: { usage: 'openai' }, b: { header: 'x-b' }, c: { json: '/c' } } as const
    const { report } = await passOn(json('{"usage":null,"c":null}'), sources)
    expect(report.amounts).toEqual({})
    expect(report.problems.map(({ reason, unit }) => `${reason} ${unit}`)).toEqual([
      'no-usage b',
      'no-usage a',
      'no-usage c',
    ])
    for (const stream of [true, false]) {
      const { report } = await ask('chat', { usage: 'none' }, { stream })
      expect([report.amounts.tokens, report.isPartial]).toEqual(stream ? [23, true] : [undefined, false])
      expect(reasonsOf(report)).toEqual(['no-usage', 'no-usage'])
    }
  })

  it.each(['<html></html>', '', '{"usage":'])('is a body that is not JSON: %j', async text => {
    const { report } = await passOn(json(text), bothOf('chat'))
    expect([report.amounts, reasonsOf(report)]).toEqual([{}, ['not-json']])
  })

  it('is an encoding other than gzip, unless the platform has decoded the body', async () => {
    const body = '{"usage":{"prompt_tokens":7}}'
    const { report, reader } = await passOn(json(body, { 'content-encoding': 'br' }), bothOf('chat'))
    expect([report.amounts, reasonsOf(report), reader.readsBody]).toEqual([{}, ['encoding'], false])
    for (const encoding of ['br', 'gzip', 'identity']) {
      const options = { isDecoded: encoding === 'br' }
      const { report } = await passOn(json(body, { 'content-encoding': encoding }), bothOf('chat'), options)
      expect(report.tokens?.input).toBe(7)
    }
  })

  it('is gzip with an error in it', async () => {
    const zipped = gzipSync(JSON.stringify({ usage: { prompt_tokens: 7 }, text: 'x'.repeat(1000) }))
    zipped.fill(7, 15, 30)
    const { report, sent } = await passOn(
      new Response(zipped, { headers: { 'content-encoding': 'gzip' } }),
      bothOf('chat'),
    )
    expect([report.amounts, reasonsOf(report)]).toEqual([{}, ['unreadable']])
    expect(Buffer.concat(sent)).toEqual(zipped)
  })

  it('is gzip that gets 200 times as large and more, above 10 MB: it would only take CPU time', async () => {
    const read = async (text: string) => {
      const zipped = gzipSync(text)
      const reply = new Response(zipped, { headers: { 'content-encoding': 'gzip' } })
      const { report, sent } = await passOn(reply, bothOf('chat'))
      expect(Buffer.concat(sent)).toEqual(zipped)
      return [report.tokens?.input, reasonsOf(report)]
    }
    const end = '],"usage":{"prompt_tokens":7}}'
    const largeText = (bytes: number) => `{"data":["${'x'.repeat(bytes)}"${end}`
    expect(await read(largeText(1_000_000))).toEqual([7, []])
    expect(await read(largeText(11_000_000))).toEqual([undefined, ['unreadable']])
  })

  it('has no text of the body in its details', async () => {
    const { report } = await passOn(json('{"secret":1,"n":"secret"}'), {
      n: { json: '/n' },
      m: { json: '/m' },
    })
    expect(report.problems).toHaveLength(2)
    expect(JSON.stringify(report.problems)).not.toContain('secret')
  })
})
