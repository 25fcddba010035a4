import { describe, expect, it } from 'vitest'
import type { Timer } from '../../src/clock.ts'
import { acceptEncoding } from '../../src/usage/encodings.ts'
import { type LlmRequest, readLlmRequest } from '../../src/usage/llm-request.ts'
import type { OutputSettings } from '../../src/usage/llm-scan.ts'
import { NO_TOKENS } from '../../src/usage/tokens.ts'

const URL = 'https://api.test/v1/chat/completions'

const requestOf = (body: unknown, headers: Record<string, string> = {}) => {
  const text = typeof body === 'string' ? body : JSON.stringify(body)
  return new Request(URL, {
    method: 'POST',
    body: text,
    headers: { 'content-length': String(text.length), ...headers },
  })
}

const outputOf = async (body: unknown, settings?: OutputSettings) =>
  (await readLlmRequest(requestOf(body))).tokens(settings).output

/** What is known of a request when it is decided. */
const seen = ({ how, tokens, isUnreadable, refusal }: LlmRequest) => ({
  ...{ how, tokens: tokens(), isUnreadable: isUnreadable(), refusal: refusal() },
})
const READABLE = { isUnreadable: false, refusal: undefined }
/** The head of a picture of 750 × 100 px, in base64. */
const PNG = Buffer.from('89504e470d0a1a0a0000000d49484452000002ee00000064', 'hex').toString('base64')
const JSON_TYPE = { 'content-type': 'application/json' }

/** A body that arrives in chunks, and fails at its end if there is an error. */
function streamed(
  chunks: readonly string[],
  { error, headers = {} }: { error?: Error; headers?: Record<string, string> } = {},
) {
  let pulled = 0
  let cancelled: unknown
  const body = new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        const chunk = chunks[pulled]
        pulled += 1
        if (chunk !== undefined) controller.enqueue(new TextEncoder().encode(chunk))
        else if (error) controller.error(error)
        else controller.close()
      },
      cancel(reason) {
        cancelled = reason
      },
    },
    { highWaterMark: 0 },
  )
  const request = new Request(URL, { method: 'POST', body, headers, duplex: 'half' } as RequestInit)
  return { request, pulled: () => pulled, cancelled: () => cancelled }
}

describe('the estimate of a request', () => {
  it('is a token for each four bytes, and the maximum of output that the request names', async () => {
    const body = { messages: ['é'.repeat(100)], max_tokens: 70 }
    const read = await readLlmRequest(requestOf(body))
    const bytes = new TextEncoder().encode(JSON.stringify(body)).length
    expect([seen(read), read.hidesUsage()]).toEqual([
      { ...READABLE, tokens: { ...NO_TOKENS, input: Math.ceil(bytes / 4), output: 70 }, how: 'read' },
      false,
    ])
  })

  it.each([
    [{ max_completion_tokens: 50 }, 50],
    [{ max_output_tokens: 60 }, 60],
    [{ max_tokens: 10, max_completion_tokens: 20 }, 20],
    [{ max_tokens: 10, n: 3 }, 30],
    [{ prompt: 'a', max_tokens: 10, n: 1, best_of: 5 }, 50],
    [{ prompt: ['a', 'b', 'c'], max_tokens: 10, n: 2 }, 60],
    [{ prompt: [[1, 2], [3]], max_tokens: 10 }, 20],
    [{ prompt: [1, 2, 3], max_tokens: 10 }, 10],
    [{ prompt: [], max_tokens: 10 }, 10],
    [{ contents: [], generationConfig: { maxOutputTokens: 7 } }, 7],
    [{ max_tokens: 0 }, 0],
    [{}, 1000],
    [{ n: 4 }, 4000],
    [{ max_tokens: null, n: null }, 1000],
    [{ max_tokens: 10, n: 'many' }, 10],
    [{ max_tokens: 10, n: -1 }, 10],
    [{ max_tokens: 1e15, n: 1e15 }, 1e9],
  ])('has for %j so many tokens of output: %i', async (body, output) => {
    expect(await outputOf(body)).toBe(output)
  })

  it.each([
    ['a number that some servers refuse', '{"max_tokens":-5}', 1000],
    ['a fraction', '{"max_tokens":1.5}', 1000],
    ['a text, which some read as a number', '{"max_tokens":"70"}', 1000],
    ['a larger one', '{"max_tokens":"5000"}', 5000],
    ['a member twice', '{"max_tokens":5000,"max_tokens":1}', 5000],
    ['another case, which Go reads', '{"max_tokens":1,"MAX_TOKENS":5000}', 5000],
    ['and which others do not', '{"Max_Tokens":1}', 1000],
    ['a maximum of another API', '{"messages":[],"max_output_tokens":1}', 1000],
    ['of two APIs at once', '{"messages":[],"prompt":"a","max_completion_tokens":1}', 1000],
    ['a name that few servers read', '{"messages":[],"max_tokens":1,"n_predict":5000}', 5000],
    ['such a name alone', '{"messages":[],"num_predict":1}', 1000],
    ['an object', '{"max_tokens":{"a":1}}', 1000],
  ])('is the largest that an origin may read: %s', async (_, body, output) => {
    expect(await outputOf(body)).toBe(output)
  })

  it('has a token at least for each id of a token', async () => {
    for (const list of [Array(8000).fill(5), [Array(4000).fill(5), Array(4000).fill(12)]]) {
      for (const name of ['prompt', 'input']) {
        const { input } = (await readLlmRequest(requestOf({ [name]: list }))).tokens()
        expect(input).toBeGreaterThanOrEqual(8000)
        expect(input).toBeLessThan(8010)
      }
    }
    const long = { prompt: Array(1000).fill(100_000) }
    const { input } = (await readLlmRequest(requestOf(long))).tokens()
    expect(input).toBe(Math.ceil(JSON.stringify(long).length / 4))
  })

  it('has the output of each request of a batch, and its pictures by their size', async () => {
    const params = (max_tokens: unknown) => ({ params: { messages: [{ content: 'a' }], max_tokens } })
    expect(await outputOf({ requests: [params(50), params(20), params(undefined)] })).toBe(150)
    expect(await outputOf({ requests: [{ params: { messages: [] } }, {}] }, { defaultOutput: 70 })).toBe(140)
    const source = { type: 'base64', media_type: 'image/png', data: `${PNG}${'A'.repeat(40_000)}` }
    const content = [{ type: 'image', source }]
    const read = await readLlmRequest(
      requestOf({ requests: [{ params: { messages: [{ role: 'user', content }] } }] }),
    )
    expect(read.tokens().input).toBeLessThan(100 + 60)
  })

  it('has the output of each request of a batch of Gemini, and of each candidate', async () => {
    const request = { contents: [{ parts: [{ text: 'a' }] }], generationConfig: { maxOutputTokens: 5000 } }
    for (const name of ['inputConfig', 'input_config']) {
      const batch = { [name]: { requests: { requests: [{ request }, { request }, { request }] } } }
      expect(await outputOf({ batch })).toBe(15_000)
    }
    expect(await outputOf({ contents: [], generation_config: { candidate_count: 8 } })).toBe(8000)
  })

  it('has the default and the cap of the config', async () => {
    expect(await outputOf({}, { defaultOutput: 0 })).toBe(0)
    expect(await outputOf({}, { defaultOutput: 500, maxOutput: 200 })).toBe(200)
    expect(await outputOf({ max_tokens: 100_000 }, { maxOutput: 4096 })).toBe(4096)
    expect(await outputOf({ max_tokens: 3000, n: 2 }, { maxOutput: 4096 })).toBe(4096)
  })

  it.each(['[]', '"text"', 'null', '{"messages":', '{"a":NaN}', '--boundary'])(
    'is not known of a body that is not declared as JSON, and is none: %j',
    async body => {
      const read = await readLlmRequest(streamed([body]).request, { includeUsage: true })
      expect([read.isUnreadable(), read.refusal(), read.hidesUsage()]).toEqual([true, undefined, false])
      expect(await read.request.text()).toBe(body)
    },
  )

  it('is not known of a form, of which no more is read than its first chunk', async () => {
    const headers = { 'content-type': 'multipart/form-data; boundary=a' }
    const { request, pulled } = streamed(['--a', 'b', 'c'], { headers })
    const read = await readLlmRequest(request, { includeUsage: true })
    expect([read.isUnreadable(), read.hidesUsage(), pulled()]).toEqual([true, false, 1])
    expect(await read.request.text()).toBe('--abc')
  })

  it('is read from JSON that is declared as a form, because some servers do not look at the type', async () => {
    const headers = { 'content-type': 'multipart/form-data; boundary=a' }
    const { request } = streamed(['{"messages":[],"stream":true,"max_tokens":70}'], { headers })
    const read = await readLlmRequest(request, { includeUsage: true })
    expect([read.isUnreadable(), read.hidesUsage(), read.tokens().output]).toEqual([false, true, 70])
  })

  it('is 0 without a body', async () => {
    const request = new Request(URL)
    const read = await readLlmRequest(request)
    expect([seen(read), read.request]).toEqual([{ ...READABLE, tokens: NO_TOKENS, how: 'no-body' }, request])
  })

  it('is 0 if the body has no bytes, whether it has a length or not', async () => {
    for (const headers of [{}, { 'content-length': '0' }, JSON_TYPE]) {
      const estimated = await readLlmRequest(
        streamed([''], { headers: headers as Record<string, string> }).request,
      )
      expect(seen(estimated)).toMatchObject({ tokens: NO_TOKENS, how: 'no-body' })
      expect(await estimated.request.text()).toBe('')
    }
  })
})

describe('a body that is declared as JSON', () => {
  const bytesOf = (text: string) => new TextEncoder().encode(text)
  const utf16 = Uint8Array.from(Buffer.from('\ufeff{"messages":[]}', 'utf16le'))
  const refusalOf = async (body: Uint8Array<ArrayBuffer>, type = 'application/json', more = {}) => {
    const headers = { 'content-type': type, ...more }
    const read = await readLlmRequest(new Request(URL, { method: 'POST', body, headers }))
    return read.refusal()
  }

  it.each<[string, Uint8Array<ArrayBuffer>, string]>([
    ['NaN', bytesOf('{"a":NaN}'), 'is not JSON at byte 6'],
    ['Infinity', bytesOf('{"a":-Infinity}'), 'is not JSON at byte 6'],
    ['a comment', bytesOf('{/**/"a":1}'), 'is not JSON at byte 2'],
    ['a comma at the end', bytesOf('{"a":1,}'), 'is not JSON at byte 8'],
    ['single quotes', bytesOf("{'a':1}"), 'is not JSON at byte 2'],
    ['a name without quotes', bytesOf('{a:1}'), 'is not JSON at byte 2'],
    ['a number of JavaScript', bytesOf('{"a":0x1}'), 'is not JSON at byte 6'],
    ['a bad escape in a name', bytesOf('{"\\stream":true}'), 'is not JSON at byte 10'],
    ['two values', bytesOf('{} {}'), 'is not JSON at byte 4'],
    ['a missing end', bytesOf('{"a":[1'), 'ends before its JSON does'],
    ['another bracket', bytesOf('{"a":[1}'), 'is not JSON at byte 8'],
    ['too many levels', bytesOf('['.repeat(10_001)), 'is nested deeper than 10000 levels'],
    ['UTF-16', utf16, 'is UTF-16 or UTF-32'],
    ['UTF-16 without a mark', utf16.slice(2), 'is UTF-16 or UTF-32'],
  ])('is refused if parsers could read it differently: %s', async (_, body, detail) => {
    expect(await refusalOf(body)).toEqual({ reason: 'not-json', detail })
  })

  it('is refused if it says that it is not UTF-8, or is compressed', async () => {
    const body = bytesOf('{"messages":[]}')
    const detail = 'is declared as utf-7'
    expect(await refusalOf(body, 'application/json; charset="utf-7"')).toEqual({ reason: 'not-json', detail })
    expect(await refusalOf(body, 'application/vnd.a+json; charset=UTF-8')).toBe(undefined)
    // A compressed body can be JSON as well.
    for (const bytes of [bytesOf('\u001f'), body])
      expect(await refusalOf(bytes, 'application/json', { 'content-encoding': 'br' })).toEqual({
        ...{ reason: 'not-json', detail: 'has a Content-Encoding' },
      })
  })

  it('is read with a byte order mark, with white space, and with any text in its strings', async () => {
    for (const text of [
      '\ufeff{"max_tokens":5}',
      ' \n{"max_tokens" : 5.0e0\t} ',
      '{"max_tokens":5,"a":"\n\\x"}',
    ]) {
      const read = await readLlmRequest(requestOf(text, JSON_TYPE))
      expect([read.refusal(), read.tokens().output]).toEqual([undefined, 5])
    }
  })
})

describe('the body of an estimated request', () => {
  it('goes on unchanged, with its headers, method and signal', async () => {
    const client = new AbortController()
    const text = '{ "messages":[],"stream":true, "seed":9007199254740993}'
    const original = new Request(`${URL}?a=1`, {
      ...{ method: 'PUT', body: text, signal: client.signal },
      headers: { 'content-length': String(text.length), 'content-type': 'application/json', 'x-kept': 'yes' },
    })
    const { request } = await readLlmRequest(original)
    expect([request.url, request.method]).toEqual([`${URL}?a=1`, 'PUT'])
    expect(Object.fromEntries(request.headers)).toEqual(Object.fromEntries(original.headers))
    expect(await request.text()).toBe(text)
    client.abort()
    expect(request.signal.aborted).toBe(true)
  })

  it('is read up to the bound, and the rest while it passes, chunk by chunk', async () => {
    const chunks = [
      '{"max_tokens":5,"a":"',
      ...Array.from({ length: 9 }, (_, i) => `${i}`.repeat(5000)),
      '"}',
    ]
    const { request, pulled } = streamed(chunks)
    const read = await readLlmRequest(request, { maxBytes: 12_000 })
    expect(seen(read)).toMatchObject({ how: 'passing', tokens: { input: 3756, output: 5 } })
    // At most one chunk more than was read.
    expect(pulled()).toBeLessThanOrEqual(5)
    const reader = read.request.body!.getReader()
    for (const [i, chunk] of chunks.entries()) {
      expect(new TextDecoder().decode((await reader.read()).value)).toBe(chunk)
      expect(pulled()).toBeLessThanOrEqual(Math.max(5, i + 2))
    }
    expect((await reader.read()).done).toBe(true)
    expect(read.tokens()).toMatchObject({ input: Math.ceil(45_023 / 4), output: 5 })
  })

  it('costs what its rest says: a maximum, or pictures', async () => {
    const start = `{"messages":[{"content":"${'x'.repeat(4000)}"}],`
    for (const [end, tokens] of [
      ['"max_tokens":9000}', { input: 1012, output: 9000 }],
      [
        `"messages":[{"content":[{"image_url":{"url":"data:image/png;base64,${'A'.repeat(8000)}"}}]}]}`,
        { input: 4800, output: 1000 },
      ],
    ] as const) {
      const headers = { 'content-length': String(start.length + end.length), ...JSON_TYPE }
      const { request } = streamed([start, end], { headers })
      const read = await readLlmRequest(request, { maxBytes: 4000 })
      expect(read.tokens()).toMatchObject({ input: Math.ceil((start.length + end.length) / 4), output: 1000 })
      expect(await read.request.text()).toBe(start + end)
      expect(read.tokens()).toMatchObject(tokens)
    }
  })

  it('is broken off if its rest is not JSON', async () => {
    const { request, cancelled } = streamed(['{"messages":[1,', '2', ',NaN', ']}'], { headers: JSON_TYPE })
    const read = await readLlmRequest(request, { maxBytes: 10 })
    expect([read.how, read.refusal()]).toEqual(['passing', undefined])
    await expect(read.request.text()).rejects.toThrow('The body is not JSON at byte 18.')
    expect(read.refusal()).toEqual({ reason: 'not-json', detail: 'is not JSON at byte 18' })
    expect(read.bodyFailed!.aborted).toBe(true)
    expect(cancelled()).toBeDefined()
  })

  it('is not broken off if it was not declared as JSON', async () => {
    const { request } = streamed(['{"messages":[1,', '2', ',NaN', ']}'])
    const read = await readLlmRequest(request, { maxBytes: 10, includeUsage: true })
    expect(await read.request.text()).toBe('{"messages":[1,2,NaN]}')
    expect([read.isUnreadable(), read.refusal(), read.hidesUsage()]).toEqual([true, undefined, false])
  })

  it('can be exactly as large as the bound', async () => {
    const body = JSON.stringify({ max_tokens: 5, text: 'x'.repeat(100) })
    expect(await readLlmRequest(streamed([body]).request, { maxBytes: body.length })).toMatchObject({
      how: 'read',
    })
    expect(await readLlmRequest(streamed([body]).request, { maxBytes: body.length - 1 })).toMatchObject({
      how: 'passing',
    })
  })

  it('is cancelled at the client if the origin does not read its rest', async () => {
    const { request, cancelled } = streamed(['{"a":1', ',"b":1', '}'])
    const read = await readLlmRequest(request, { maxBytes: 5 })
    await read.request.body!.cancel('enough')
    expect(cancelled()).toContain('enough')
  })

  it('is refused if its beginning takes longer than 30 s', async () => {
    const request = new Request(URL, {
      method: 'POST',
      body: new ReadableStream(),
      duplex: 'half',
    } as RequestInit)
    const timer: Timer = (ms, run) => {
      expect(ms).toBe(30_000)
      setImmediate(run)
      return () => {}
    }
    expect((await readLlmRequest(request, { timer })).refusal()).toEqual({ reason: 'slow' })
  })

  it('is read if it comes in single bytes', async () => {
    const text = JSON.stringify({ max_tokens: 5, text: 'é'.repeat(1000) })
    const bytes = new TextEncoder().encode(text)
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        for (let at = 0; at < bytes.length; at++) controller.enqueue(bytes.slice(at, at + 1))
        controller.close()
      },
    })
    const request = new Request(URL, {
      method: 'POST',
      body,
      headers: JSON_TYPE,
      duplex: 'half',
    } as RequestInit)
    const read = await readLlmRequest(request)
    expect(seen(read)).toMatchObject({
      how: 'read',
      tokens: { input: Math.ceil(bytes.length / 4), output: 5 },
    })
    expect(await read.request.text()).toBe(text)
  })

  it('can belong to a GET', async () => {
    // Requests of Node cannot be like this.
    const { request } = streamed(['{"max_tokens":5}'])
    const get = Object.defineProperty(request, 'method', { value: 'GET' })
    const read = await readLlmRequest(get)
    expect(seen(read)).toMatchObject({ how: 'read', tokens: { output: 5 } })
    expect(await read.request.text()).toBe('{"max_tokens":5}')
  })

  it('is not forwarded if the client breaks it off', async () => {
    const { request } = streamed(['{"messages"'], { error: new Error('gone') })
    expect(await readLlmRequest(request)).toMatchObject({ how: 'broken' })
  })

  it('fails on its way to the origin if the client breaks its rest off', async () => {
    const { request } = streamed(['{"messages"', ':['], { error: new Error('gone') })
    const read = await readLlmRequest(request, { maxBytes: 5 })
    await expect(read.request.text()).rejects.toThrow('gone')
    expect([read.bodyFailed!.aborted, read.refusal()]).toEqual([true, undefined])
  })

  it('costs at least its length, or the bound, if something else has read it', async () => {
    const request = requestOf({ max_tokens: 5, a: 'x'.repeat(400) })
    await request.text()
    const read = await readLlmRequest(request)
    expect(seen(read)).toMatchObject({ how: 'unread', tokens: { input: 106, output: 1000 } })
    expect(read.request).toBe(request)
    const chunked = new Request(URL, { method: 'POST', headers: { 'transfer-encoding': 'chunked' } })
    expect(seen(await readLlmRequest(chunked))).toMatchObject({ how: 'unread', tokens: { input: 64_000 } })
  })

  it('asks for usage if the config wants that, and has its new length', async () => {
    const body = { messages: [{ role: 'user', content: 'é' }], stream: true }
    const text = JSON.stringify(body)
    const read = await readLlmRequest(requestOf(text), { includeUsage: true })
    const edited = new Uint8Array(await read.request.arrayBuffer())
    expect(JSON.parse(new TextDecoder().decode(edited))).toEqual({
      ...body,
      stream_options: { include_usage: true },
    })
    expect(read.request.headers.get('content-length')).toBe(String(edited.length))
    expect([read.hidesUsage(), read.tokens().input]).toEqual([true, Math.ceil((text.length + 1) / 4)])
  })

  it.each([
    ['has a Content-Encoding that is not true', '"stream":true', { 'content-encoding': 'gzip' }],
    ['writes true as a number', '"stream":1', {}],
    ['as a text', '"stream":"true"', {}],
    ['as an object', '"stream":{}', {}],
    ['writes it twice', '"stream":true,"stream":false', {}],
    ['in the other order', '"stream":false,"stream":true', {}],
    ['in escapes', '"str\\u0065am":true', {}],
    ['in other letters, which Go reads', '"ſTREAM":true', {}],
  ])('asks for usage, even if the client tries to avoid it: %s', async (_, members, headers) => {
    const text = `{"messages":[],${members}}`
    const read = await readLlmRequest(requestOf(text, headers as Record<string, string>), {
      includeUsage: true,
    })
    expect(read.hidesUsage()).toBe(true)
    expect(await read.request.json()).toMatchObject({ stream_options: { include_usage: true } })
  })

  it.each([
    ['a chat', '{"messages":[],"stream":true}', '/v1/chat', true],
    ['a completion', '{"prompt":"a","stream":true}', '/v1/x', true],
    ['one without a prompt', '{"stream":true}', '/v1/completions', true],
    ['a response', '{"input":"a","prompt":{"id":"b"},"stream":true}', '/v1/responses', false],
    [
      'one with options',
      '{"input":"a","stream":true,"stream_options":{"include_obfuscation":false}}',
      '/v1/responses',
      false,
    ],
    ['no stream', '{"messages":[],"stream":false}', '/v1/chat/completions', false],
    ['nothing said', '{"messages":[],"stream":null}', '/v1/chat/completions', false],
    [
      'asked already',
      '{"messages":[],"stream":true,"stream_options":{"include_usage":true}}',
      '/v1/x',
      false,
    ],
  ])('asks for the usage of completions that stream: %s', async (_, text, path, asks) => {
    for (const maxBytes of [1000, 10]) {
      const request = new Request(`https://api.test${path}`, {
        ...{ method: 'POST', body: text },
        headers: { 'content-length': String(text.length), ...JSON_TYPE },
      })
      const read = await readLlmRequest(request, { includeUsage: true, maxBytes })
      const sent = await read.request.text()
      expect([maxBytes, read.hidesUsage(), sent.includes('"include_usage":true')]).toEqual([
        maxBytes,
        asks,
        asks || text.includes('"include_usage":true'),
      ])
      expect(read.request.headers.get('content-length')).toBe(String(sent.length))
    }
  })

  it('asks above the bound too, in a body whose length was known before', async () => {
    const chunks = [
      '{"stream":true,"messages":["',
      ...Array.from({ length: 100 }, () => 'x'.repeat(10_000)),
      '"]}',
    ]
    const length = chunks.join('').length
    const { request, pulled } = streamed(chunks, {
      headers: { 'content-length': String(length), ...JSON_TYPE },
    })
    const read = await readLlmRequest(request, { includeUsage: true, maxBytes: 20_000 })
    expect([read.how, read.mayHideUsage, read.hidesUsage()]).toEqual(['passing', true, false])
    expect(pulled()).toBeLessThan(6)
    const sent = await read.request.text()
    expect(JSON.parse(sent)).toMatchObject({ stream: true, stream_options: { include_usage: true } })
    expect(read.hidesUsage()).toBe(true)
    expect([sent.length, read.request.headers.get('content-length')]).toEqual([
      length + 64,
      String(length + 64),
    ])
  })

  it('is not longer than its length says, whatever it asks', async () => {
    const text = `{"messages":[],${'"stream_options":null,'.repeat(10)}"stream":true}`
    const headers = { 'content-length': String(text.length), ...JSON_TYPE }
    const read = await readLlmRequest(streamed([...text], { headers }).request, {
      includeUsage: true,
      maxBytes: 10,
    })
    await expect(read.request.text()).rejects.toThrow('too many stream_options')
    expect(read.refusal()).toMatchObject({ reason: 'not-json' })
  })
})

describe('the encodings that the origin may use', () => {
  it.each([
    [null, 'identity'],
    ['', 'identity'],
    ['br, zstd', 'identity'],
    ['gzip', 'gzip'],
    ['br;q=1.0, GZIP;q=0.8, *;q=0.1', 'gzip'],
    ['x-gzip', 'gzip'],
    ['gzip;q=0', 'identity'],
    ['gzip ; q=0.000', 'identity'],
    ['*', 'identity'],
  ])('are for a client that accepts %j: %s', (accepted, encoding) => {
    expect(acceptEncoding(accepted)).toBe(encoding)
    expect(acceptEncoding(accepted, true)).toBe('identity')
  })
})
