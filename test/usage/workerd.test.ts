/** Requests to language models through workerd: of the official SDKs, and of clients that leave. */

import { createServer, request as httpRequest, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gzipSync } from 'node:zlib'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { listen } from '../support/listen.ts'
import { type LlmPlan, startLlmOrigin } from '../support/llm-origin.ts'
import { PATIENT_MS } from '../support/patience.ts'
import type { UsageCase } from '../support/usage-worker.ts'
import { startTestWorker, type TestWorker } from '../support/workerd.ts'

let origin: Awaited<ReturnType<typeof startLlmOrigin>>
let worker: TestWorker

beforeAll(async () => {
  origin = await startLlmOrigin()
  worker = await startTestWorker('usage-worker.ts', { ORIGIN_URL: origin.url })
})
afterAll(async () => {
  await worker?.close()
  await origin?.close()
})

let cases = 0
const newName = () => `case-${++cases}`

async function caseOf(name: string): Promise<UsageCase | undefined> {
  const all = (await (await fetch(`${worker.url}/reports`)).json()) as Record<string, UsageCase>
  return all[name]
}

async function reportOf(name: string) {
  await vi.waitUntil(async () => ((await caseOf(name))?.reports.length ?? 0) > 0, { timeout: PATIENT_MS })
  return (await caseOf(name))!.reports[0]!
}

const callOf = (name: string) => origin.calls.find(({ headers }) => headers['x-case'] === name)

const headersOf = (name: string, plan: LlmPlan, settings: object = {}) => ({
  ...{ 'x-case': name, 'x-llm': JSON.stringify(plan), 'x-settings': JSON.stringify(settings) },
})

const clients = (name: string, plan: LlmPlan, settings: object = {}) => {
  const options = { apiKey: 'none', defaultHeaders: headersOf(name, plan, settings), maxRetries: 0 }
  return {
    openai: new OpenAI({ ...options, baseURL: `${worker.url}/v1` }),
    anthropic: new Anthropic({ ...options, baseURL: worker.url }),
  }
}

const MESSAGES = [{ role: 'user' as const, content: 'Say some words, please.' }]

describe('the SDK of OpenAI', () => {
  it.each([false, true])('gets its completion, and the report has its usage, gzip: %s', async gzip => {
    const name = newName()
    const { openai } = clients(name, { output: 12, cached: 5, gzip })
    const reply = await openai.chat.completions.create({ model: 'words', messages: MESSAGES, max_tokens: 50 })
    expect(reply.choices[0]!.message.content).toMatch(/^word0 .*word11 $/)
    const report = await reportOf(name)
    expect(report).toMatchObject({ ending: 'complete', problems: [], tokens: callOf(name)!.tokens })
    expect(report.amounts.tokens).toBe(reply.usage!.total_tokens)
    const { estimate } = (await caseOf(name))!
    expect([estimate.output, Math.abs(estimate.input - report.tokens!.input)]).toEqual([50, 0])
  })

  it.each([true, false])('streams a completion whose usage it gets only if it asks: %s', async asks => {
    const name = newName()
    const { openai } = clients(name, { output: 12 }, { includeUsage: true })
    const stream = await openai.chat.completions.create({
      ...{ model: 'words', messages: MESSAGES, stream: true },
      ...(asks && { stream_options: { include_usage: true } }),
    })
    const chunks = []
    for await (const chunk of stream) chunks.push(chunk)
    expect(chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join('')).toMatch(/^word0 .*word11 $/)
    expect(chunks.filter(({ choices }) => choices.length === 0)).toHaveLength(asks ? 1 : 0)
    const call = callOf(name)!
    expect(call.body.stream_options).toEqual({ include_usage: true })
    expect(call.headers['accept-encoding']).toBe(asks ? 'gzip' : 'identity')
    expect(await reportOf(name)).toMatchObject({ problems: [], isPartial: false, tokens: call.tokens })
  })

  it('streams a response, and gets embeddings', async () => {
    const [first, second] = [newName(), newName()]
    const stream = await clients(first, { output: 9 }).openai.responses.create({
      ...{ model: 'words', input: 'Words, please.', stream: true, max_output_tokens: 100 },
    })
    const events = []
    for await (const { type } of stream) events.push(type)
    expect(events).toHaveLength(11)
    expect((await reportOf(first)).tokens).toEqual(callOf(first)!.tokens)
    await clients(second, {}).openai.embeddings.create({ model: 'words', input: 'a' })
    expect((await reportOf(second)).tokens).toEqual(callOf(second)!.tokens)
  })
})

describe('the SDK of Anthropic', () => {
  it.each([
    [false, false],
    [false, true],
    [true, false],
    [true, true],
  ])('gets its message, and the report has its usage, streaming: %s, gzip: %s', async (streams, gzip) => {
    const name = newName()
    const { anthropic } = clients(name, { output: 12, cached: 3, cacheWrite: 4, gzip })
    const order = { model: 'words', messages: MESSAGES, max_tokens: 8 }
    const message = streams
      ? await anthropic.messages.stream(order).finalMessage()
      : await anthropic.messages.create(order)
    expect(message.content).toMatchObject([{ type: 'text', text: expect.stringMatching(/^word0 .*word7 $/) }])
    const report = await reportOf(name)
    expect(report).toMatchObject({ ending: 'complete', isPartial: false, problems: [] })
    expect(report.tokens).toEqual(callOf(name)!.tokens)
    expect((await caseOf(name))!.estimate.output).toBe(8)
  })
})

/** Sends a request, and resolves when the first bytes of its reply have arrived. */
async function begin(name: string, path: string, plan: LlmPlan, settings: object = {}) {
  const client = httpRequest(worker.url + path, {
    method: 'POST',
    agent: false,
    headers: headersOf(name, plan, settings),
  })
  client.on('error', () => {})
  client.end(JSON.stringify({ messages: [], stream: true }))
  const response = await new Promise<IncomingMessage>(resolve => client.once('response', resolve))
  response.on('error', () => {})
  await new Promise(resolve => response.once('data', resolve))
  return client
}

describe('a client that leaves', () => {
  // While the origin says nothing, workerd detects only a reset. Then the signal of the request fires, and no stream is cancelled.
  it.each([
    ['closes its connection while the origin sends', 'close', { pauseMs: 5, output: 100_000 }],
    ['resets its connection while the origin sends', 'reset', { pauseMs: 5, output: 100_000 }],
    ['resets its connection while the origin is silent', 'reset', { pauseMs: 50_000, output: 3 }],
    [
      'resets its connection while the origin sends gzip',
      'reset',
      { pauseMs: 5, output: 100_000, gzip: true },
    ],
  ] as const)('is reported once, with what was seen, if it %s', async (_, how, plan) => {
    const name = newName()
    const client = await begin(name, '/v1/messages', { ...plan, input: 40 })
    if (how === 'reset') client.socket!.resetAndDestroy()
    else client.destroy()
    const report = await reportOf(name)
    expect(report).toMatchObject({
      ending: 'cancelled',
      isPartial: true,
      problems: [],
      tokens: { input: 40 },
    })
    const { tokens } = callOf(name)!
    // The first event has reported one.
    expect(report.tokens!.output).toBeLessThanOrEqual(tokens.output + 2)
  })

  it('is reported once, without amounts, if nothing was seen', async () => {
    const name = newName()
    const client = await begin(name, '/v1/chat/completions', { pauseMs: 5, output: 100_000 })
    client.socket!.resetAndDestroy()
    expect(await reportOf(name)).toMatchObject({ ending: 'cancelled', isPartial: true, amounts: {} })
    await vi.waitUntil(async () => (await caseOf(name))!.isSignalAborted, { timeout: PATIENT_MS })
  })
})

describe('a reply that is read on after its client has left', () => {
  async function leave(name: string, plan: LlmPlan, settings: object) {
    const client = await begin(name, '/v1/messages', plan, settings)
    client.socket!.resetAndDestroy()
  }

  it('costs what the origin has counted', async () => {
    const name = newName()
    await leave(name, { pauseMs: 5, output: 60, input: 40 }, { readOnMs: 25_000 })
    const report = await reportOf(name)
    expect(report).toMatchObject({ ending: 'cancelled', isPartial: false, tokens: { input: 40, output: 60 } })
    expect(callOf(name)!.isWhole).toBe(true)
  })

  it('costs what was seen when its time is over', async () => {
    const name = newName()
    await leave(name, { pauseMs: 5, output: 100_000, input: 40 }, { readOnMs: 100 })
    const report = await reportOf(name)
    expect(report).toMatchObject({ ending: 'cancelled', isPartial: true, tokens: { input: 40 } })
    expect(callOf(name)!.isWhole).toBe(false)
  })
})

describe('an origin that fails', () => {
  it.each([
    [0, false, {}],
    [8, false, { tokens: 46 }],
    [8, true, { tokens: 46 }],
  ])('before event %i costs what was seen, gzip: %s', async (failAt, gzip, amounts) => {
    const name = newName()
    const body = JSON.stringify({ messages: [], stream: true })
    const headers = headersOf(name, { input: 40, failAt, gzip })
    const reply = await fetch(`${worker.url}/v1/messages`, { method: 'POST', body, headers })
    await expect(reply.text()).rejects.toThrow()
    expect(await reportOf(name)).toMatchObject({ ending: 'failed', isPartial: true, amounts })
  })
})

describe('an origin whose reply gets a thousand times as large', () => {
  const zipped = gzipSync(`{"data":[${'1,'.repeat(50_000_000)}1],"usage":{"prompt_tokens":7}}`)
  const server = createServer((_, response) =>
    response.writeHead(200, { 'content-encoding': 'gzip', 'content-length': zipped.length }).end(zipped),
  )
  let own: TestWorker
  beforeAll(async () => {
    await listen(server, 0)
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    own = await startTestWorker('usage-worker.ts', { ORIGIN_URL: url })
  })
  afterAll(async () => {
    await own?.close()
    server.close()
  })

  it('is passed on, and not read', async () => {
    const headers = { ...headersOf('bomb', {}), 'accept-encoding': 'gzip' }
    const client = httpRequest(`${own.url}/v1/embeddings`, { method: 'POST', headers }).end('{}')
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      client.once('response', resolve).once('error', reject)
    })
    const received: Buffer[] = []
    for await (const chunk of response) received.push(chunk as Buffer)
    expect(Buffer.concat(received).equals(zipped)).toBe(true)
    const reports = async () => {
      const all = (await (await fetch(`${own.url}/reports`)).json()) as Record<string, UsageCase>
      return all.bomb!.reports
    }
    await vi.waitUntil(async () => (await reports()).length > 0, { timeout: PATIENT_MS })
    expect(await reports()).toMatchObject([{ ending: 'complete', problems: [{ reason: 'unreadable' }] }])
  })
})

describe('the body of a request', () => {
  it.each([
    ['in chunks', 'read', 1000, undefined],
    ['with its length', 'read', 1000, 1000],
    ['in chunks', 'passing', 3_000_000, undefined],
    ['with its length', 'passing', 3_000_000, 3_000_000],
  ] as const)('%s reaches the origin unchanged: %s, %i bytes', async (_, how, bytes, length) => {
    const name = newName()
    const start = '{"max_tokens":5,"messages":["'
    const text = `${start}${'0123456789'.repeat(bytes / 10).slice(start.length + 3)}"]}`
    const client = httpRequest(`${worker.url}/v1/messages`, {
      method: 'POST',
      headers: { ...headersOf(name, {}), ...(length && { 'content-length': text.length }) },
    })
    for (let at = 0; at < text.length; at += 50_000) client.write(text.slice(at, at + 50_000))
    client.end()
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      client.once('response', resolve).once('error', reject)
    })
    response.resume()
    expect(response.statusCode).toBe(200)
    const call = callOf(name)!
    expect(JSON.stringify(call.body) === text).toBe(true)
    expect((await caseOf(name))!.how).toBe(how)
    const { 'content-length': sentLength, 'transfer-encoding': encoding } = call.headers
    if (length || how === 'read') expect([sentLength, encoding]).toEqual([String(text.length), undefined])
    else expect(encoding).toBe('chunked')
  })
})

describe('a large body that has to ask for its usage', () => {
  it.each([undefined, 1])('gets %s Content-Length, and is asked for it', async withLength => {
    const name = newName()
    const text = JSON.stringify({
      stream: true,
      messages: [{ role: 'user', content: 'x'.repeat(3_000_000) }],
    })
    const client = httpRequest(`${worker.url}/v1/chat/completions`, {
      method: 'POST',
      headers: {
        ...headersOf(name, {}, { includeUsage: true }),
        'content-type': 'application/json',
        ...(withLength && { 'content-length': text.length }),
      },
    })
    for (let at = 0; at < text.length; at += 50_000) client.write(text.slice(at, at + 50_000))
    client.end()
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      client.once('response', resolve).once('error', reject)
    })
    response.resume()
    expect(response.statusCode).toBe(200)
    const { body, headers } = callOf(name)!
    expect(body).toEqual({ ...JSON.parse(text), stream_options: { include_usage: true } })
    expect(headers['content-length']).toBe(withLength && String(text.length + 64))
  })
})

describe('a body in chunks that its client breaks off', () => {
  it.each([
    ['after 256 kB', 300_000],
    ['after 3 MB', 3_000_000],
  ])('reaches the origin as a broken request: %s', async (_, bytes) => {
    const endings: string[] = []
    let received = 0
    const server = createServer((request, response) => {
      request.on('data', (chunk: Uint8Array) => {
        received += chunk.byteLength
      })
      request.on('end', () => {
        endings.push('whole')
        response.end()
      })
      request.on('error', ({ message }) => endings.push(message))
    })
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as AddressInfo
    const uploads = await startTestWorker('usage-worker.ts', { ORIGIN_URL: `http://127.0.0.1:${port}` })
    try {
      const client = httpRequest(`${uploads.url}/v1/messages`, { method: 'POST', agent: false })
      client.on('error', () => {})
      for (let at = 0; at < bytes; at += 50_000) client.write('x'.repeat(50_000))
      await vi.waitUntil(() => received === bytes, { timeout: PATIENT_MS })
      client.destroy()
      await vi.waitUntil(() => endings.length > 0, { timeout: PATIENT_MS })
      expect(endings).toEqual(['aborted'])
    } finally {
      await uploads.close()
      server.closeAllConnections()
      server.close()
    }
  })
})

it('no request was reported twice', async () => {
  const all = (await (await fetch(`${worker.url}/reports`)).json()) as Record<string, UsageCase>
  expect(Object.keys(all).length).toBe(cases)
  for (const { reports } of Object.values(all)) expect(reports).toHaveLength(1)
})
