import { describe, expect, it } from 'vitest'
import type { Timer } from '../../src/clock.ts'
import { acceptEncoding } from '../../src/usage/encodings.ts'
import { type LlmRequestSettings, readLlmRequest } from '../../src/usage/llm-request.ts'
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

const outputOf = async (body: unknown, settings?: LlmRequestSettings) =>
  (await readLlmRequest(requestOf(body), settings)).tokens.output

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
    const { tokens, how, hidesUsage } = await readLlmRequest(requestOf(body))
    const bytes = new TextEncoder().encode(JSON.stringify(body)).length
    expect({ tokens, how, hidesUsage }).toEqual({
      tokens: { ...NO_TOKENS, input: Math.ceil(bytes / 4), output: 70 },
      how: 'read',
      hidesUsage: false,
    })
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
    [{ max_tokens: 0 }, 0],
    [{}, 1000],
    [{ n: 4 }, 1000],
    [{ max_tokens: null, n: null }, 1000],
    [{ max_tokens: -5 }, 1000],
    [{ max_tokens: 1.5 }, 1000],
    [{ max_tokens: '70' }, 1000],
    [{ max_tokens: 10, n: 'many' }, 10],
    [{ max_tokens: 10, n: -1 }, 10],
    [{ max_tokens: 1e15, n: 1e15 }, 1e9],
  ])('has for %j so many tokens of output: %i', async (body, output) => {
    expect(await outputOf(body)).toBe(output)
  })

  it('has the default and the cap of the config', async () => {
    expect(await outputOf({}, { defaultOutput: 0 })).toBe(0)
    expect(await outputOf({}, { defaultOutput: 500, maxOutput: 200 })).toBe(200)
    expect(await outputOf({ max_tokens: 100_000 }, { maxOutput: 4096 })).toBe(4096)
    expect(await outputOf({ max_tokens: 3000, n: 2 }, { maxOutput: 4096 })).toBe(4096)
  })

  it.each(['[]', '"text"', 'null', '{"messages":', '--boundary'])(
    'counts bytes if the body is %j',
    async body => {
      const { request, tokens, how } = await readLlmRequest(streamed([body]).request)
      expect({ tokens, how }).toEqual({
        tokens: { ...NO_TOKENS, input: Math.ceil(body.length / 4), output: 1000 },
        how: 'not-json',
      })
      expect(await request.text()).toBe(body)
    },
  )

  it('is 0 without a body', async () => {
    const request = new Request(URL)
    expect(await readLlmRequest(request)).toEqual({
      request,
      tokens: NO_TOKENS,
      how: 'no-body',
      hidesUsage: false,
    })
  })

  it('is 0 if the body has no bytes, whether it has a length or not', async () => {
    for (const { request } of [streamed(['']), streamed([''], { headers: { 'content-length': '0' } })]) {
      const estimated = await readLlmRequest(request)
      expect(estimated).toMatchObject({ tokens: NO_TOKENS, how: 'no-body' })
      expect(await estimated.request.text()).toBe('')
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

  it('is not read if Content-Length is above the bound', async () => {
    const { request, pulled } = streamed(['{}'], { headers: { 'content-length': '4001' } })
    const read = await readLlmRequest(request, { maxBytes: 4000 })
    expect(read).toMatchObject({ how: 'too-large', tokens: { input: 1001, output: 1000 } })
    expect(read.request).toBe(request)
    expect(pulled()).toBe(0)
  })

  it('is read up to the bound, and the rest streams on, chunk by chunk', async () => {
    const chunks = Array.from({ length: 10 }, (_, i) => `${i}`.repeat(1000))
    const { request, pulled } = streamed(chunks)
    const read = await readLlmRequest(request, { maxBytes: 2500 })
    expect(read).toMatchObject({ how: 'too-large', tokens: { input: 750, output: 1000 } })
    // At most one chunk more than was read.
    expect(pulled()).toBeLessThanOrEqual(4)
    const reader = read.request.body!.getReader()
    for (const [i, chunk] of chunks.entries()) {
      expect(new TextDecoder().decode((await reader.read()).value)).toBe(chunk)
      expect(pulled()).toBeLessThanOrEqual(Math.max(4, i + 2))
    }
    expect((await reader.read()).done).toBe(true)
  })

  it('can be exactly as large as the bound', async () => {
    const body = JSON.stringify({ max_tokens: 5, text: 'x'.repeat(100) })
    expect(await readLlmRequest(streamed([body]).request, { maxBytes: body.length })).toMatchObject({
      how: 'read',
    })
    expect(await readLlmRequest(streamed([body]).request, { maxBytes: body.length - 1 })).toMatchObject({
      how: 'too-large',
    })
  })

  it('is cancelled at the client if the origin does not read its rest', async () => {
    const { request, cancelled } = streamed(['aaaa', 'bbbb', 'cccc'])
    const read = await readLlmRequest(request, { maxBytes: 5 })
    await read.request.body!.cancel('enough')
    expect(cancelled()).toContain('enough')
  })

  it('is not waited for longer than 10 s, and then goes on', async () => {
    let send = (_: string) => {}
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        send = text => controller.enqueue(new TextEncoder().encode(text))
      },
    })
    const request = new Request(URL, { method: 'POST', body, duplex: 'half' } as RequestInit)
    send('{"messages"')
    const timer: Timer = (ms, run) => {
      expect(ms).toBe(10_000)
      setImmediate(run)
      return () => {}
    }
    const read = await readLlmRequest(request, { timer })
    expect(read).toMatchObject({ how: 'too-slow', tokens: { input: 3, output: 1000 } })
    const reader = read.request.body!.getReader()
    for (const text of ['{"messages"', ':[]}']) {
      expect(new TextDecoder().decode((await reader.read()).value)).toBe(text)
      send(':[]}')
    }
  })

  it('is not read further after 1000 chunks, because each of them holds 4 kB in workerd', async () => {
    const { request } = streamed(Array.from({ length: 1500 }, () => 'x'))
    const read = await readLlmRequest(request)
    expect(read).toMatchObject({ how: 'too-slow', tokens: { input: 250 } })
    expect((await read.request.text()).length).toBe(1500)
  })

  it('holds at most 32 MB of all bodies of the isolate', async () => {
    const stuck = Array.from({ length: 200 }, () => {
      const { request } = streamed(['x'.repeat(250_000)])
      const body = request.body!.pipeThrough(new TransformStream({ flush: () => new Promise(() => {}) }))
      return new Request(URL, { method: 'POST', body, duplex: 'half' } as RequestInit)
    })
    const cancels: (() => void)[] = []
    const timer: Timer = (_, run) => {
      cancels.push(run)
      return () => {}
    }
    const reads = stuck.map(request => readLlmRequest(request, { timer }))
    await new Promise(resolve => setImmediate(resolve))
    for (const end of cancels) end()
    const hows = (await Promise.all(reads)).map(({ how }) => how)
    expect(hows.filter(how => how === 'too-slow').length).toBe(64)
    expect(hows.filter(how => how === 'too-large').length).toBe(136)
    expect(await readLlmRequest(requestOf({ max_tokens: 5 }))).toMatchObject({ how: 'read' })
  })

  it('can belong to a GET', async () => {
    // Requests of Node cannot be like this.
    const { request } = streamed(['{"max_tokens":5}'])
    const get = Object.defineProperty(request, 'method', { value: 'GET' })
    const read = await readLlmRequest(get)
    expect(read).toMatchObject({ how: 'read', tokens: { output: 5 } })
    expect(await read.request.text()).toBe('{"max_tokens":5}')
  })

  it('fails on its way to the origin if the client breaks it off', async () => {
    const { request } = streamed(['{"messages"'], { error: new Error('gone') })
    const read = await readLlmRequest(request)
    expect(read).toMatchObject({ how: 'broken', tokens: { input: 3, output: 1000 } })
    await expect(read.request.text()).rejects.toThrow('gone')
  })

  it('is left alone if something else has read it', async () => {
    const request = requestOf({ max_tokens: 5 })
    await request.text()
    const read = await readLlmRequest(request)
    expect(read).toMatchObject({ how: 'failed', hidesUsage: false })
    expect(read.request).toBe(request)
  })

  it('asks for usage if the config wants that, and has its new length', async () => {
    const body = { messages: [{ role: 'user', content: 'é' }], stream: true }
    const text = JSON.stringify(body)
    const { request, hidesUsage, tokens } = await readLlmRequest(requestOf(text), { includeUsage: true })
    const edited = new Uint8Array(await request.arrayBuffer())
    expect(JSON.parse(new TextDecoder().decode(edited))).toEqual({
      ...body,
      stream_options: { include_usage: true },
    })
    expect(request.headers.get('content-length')).toBe(String(edited.length))
    expect([hidesUsage, tokens.input]).toEqual([true, Math.ceil((text.length + 1) / 4)])
  })

  it.each([
    ['has a Content-Encoding that is not true', '', { 'content-encoding': 'gzip' }],
    ['has long options', `,"stream_options":{"include_usage":false,"x":"${'x'.repeat(70_000)}"}`, {}],
    [
      'has short options, then long ones',
      `,"stream_options":null,"stream_options":{"include_usage":false,"x":"${'x'.repeat(70_000)}"}`,
      {},
    ],
    [
      'writes the key in escapes',
      `,"${[...'stream_options'].map(char => `\\u00${char.charCodeAt(0).toString(16)}`).join('')}":{}`,
      {},
    ],
  ])('asks for usage, even if the client tries to avoid it: %s', async (_, options, headers) => {
    const text = `{"messages":[],"stream":true${options}}`
    const { request, hidesUsage } = await readLlmRequest(requestOf(text, headers as Record<string, string>), {
      includeUsage: true,
    })
    expect(hidesUsage).toBe(true)
    expect(await request.json()).toMatchObject({ stream_options: { include_usage: true } })
  })

  it('is not edited above the bound, if it is compressed, or if it asks already', async () => {
    const body = { messages: [], stream: true }
    for (const [request, settings] of [
      [requestOf(body), { maxBytes: 10 }],
      [streamed([JSON.stringify(body)]).request, { maxBytes: 10 }],
      [requestOf('\u001f\u008b, compressed', { 'content-encoding': 'gzip' }), {}],
      [requestOf({ ...body, stream_options: { include_usage: true } }), {}],
    ] as const) {
      const text = await request.clone().text()
      const read = await readLlmRequest(request, { includeUsage: true, ...settings })
      expect([read.hidesUsage, await read.request.text()]).toEqual([false, text])
    }
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
