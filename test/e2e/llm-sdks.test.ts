/**
 * The SDKs of OpenAI, Anthropic and Google through examples/llm, on a Worker in workerd and on `serve`, with a FastAPI service as the API:
 * the charge is the account of the API. A client gets its refusals while it still sends.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { createRequire } from 'node:module'
import { connect } from 'node:net'
import { join } from 'node:path'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { PYTHON, withoutFastapi, withoutTypescriptClient } from '../support/api-clients.ts'
import { freePort } from '../support/free-port.ts'
import { type LlmBed, sdksOf, startLlmBed } from '../support/llm-bed.ts'
import { ROOT } from '../support/pages.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { hasRedisServer } from '../support/servers.ts'

const PATIENTLY = { timeout: PATIENT_MS, interval: 50 }
const ORDER = { model: 'words', messages: [{ role: 'user' as const, content: 'Words.' }], max_tokens: 500 }
/** Of a team. */
const REQUESTS = 4
const UPLOADS = 10
/** More than connections buffer. */
const UPLOAD_BYTES = 1_000_000
const WITHOUT_FASTAPI = withoutFastapi()
const WITHOUT_GOOGLE = withoutTypescriptClient()

/** What is used here of the SDK of Google, which is installed in test/clients. */
interface GoogleSdk {
  GoogleGenAI: new (options: {
    apiKey: string
    httpOptions: { baseUrl: string; headers: Record<string, string> }
  }) => {
    models: Record<
      'generateContent' | 'generateContentStream',
      (order: { model: string; contents: string }) => Promise<unknown>
    >
  }
}

type Usage = 'openai' | 'anthropic' | 'gemini'
type Call = (url: string, key: string) => Promise<unknown>

async function readAll(stream: unknown): Promise<void> {
  for await (const _ of stream as AsyncIterable<unknown>);
}

const openaiOf = (url: string, key: string) => sdksOf(url, key).openai
function googleOf(baseUrl: string, key: string) {
  const require = createRequire(join(ROOT, 'test/clients/package.json'))
  const { GoogleGenAI } = require('@google/genai') as GoogleSdk
  const httpOptions = { baseUrl, headers: { 'X-API-Key': key } }
  return new GoogleGenAI({ apiKey: 'key-of-google', httpOptions }).models
}
const GOOGLE_ORDER = { model: 'words', contents: 'Words.' }

/** A stream without `alt=sse` is a list. */
const listOfGoogle = async (url: string, key: string) => {
  const response = await fetch(`${url}/v1beta/models/words:streamGenerateContent`, {
    ...{ method: 'POST', headers: { 'x-api-key': key, 'content-type': 'application/json' } },
    body: JSON.stringify({ contents: [{ parts: [{ text: 'Words.' }] }] }),
  })
  expect(await response.json()).toHaveLength(40)
}

const post = (url: string, key: string, body: string) =>
  fetch(`${url}/v1/chat/completions`, {
    ...{ method: 'POST', body },
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
  })

const CALLS: readonly [name: string, usage: Usage, Call][] = [
  ['a chat of OpenAI', 'openai', (url, key) => openaiOf(url, key).chat.completions.create(ORDER)],
  [
    'a chat of OpenAI that streams',
    'openai',
    async (url, key) => readAll(await openaiOf(url, key).chat.completions.create({ ...ORDER, stream: true })),
  ],
  [
    'a completion of OpenAI that streams',
    'openai',
    async (url, key) =>
      readAll(
        await openaiOf(url, key).completions.create({ model: 'words', prompt: 'Words.', stream: true }),
      ),
  ],
  [
    'a response of OpenAI that streams',
    'openai',
    async (url, key) =>
      readAll(await openaiOf(url, key).responses.create({ model: 'words', input: 'Words.', stream: true })),
  ],
  [
    'stream: 1',
    'openai',
    async (url, key) => (await post(url, key, JSON.stringify({ ...ORDER, stream: 1 }))).text(),
  ],
  [
    'stream: "true"',
    'openai',
    async (url, key) => (await post(url, key, JSON.stringify({ ...ORDER, stream: 'true' }))).text(),
  ],
  ['a message of Anthropic', 'anthropic', (url, key) => sdksOf(url, key).anthropic.messages.create(ORDER)],
  [
    'a message of Anthropic that streams',
    'anthropic',
    (url, key) => sdksOf(url, key).anthropic.messages.stream(ORDER).finalMessage(),
  ],
  ['content of Gemini', 'gemini', (url, key) => googleOf(url, key).generateContent(GOOGLE_ORDER)],
  [
    'content of Gemini that streams',
    'gemini',
    async (url, key) => readAll(await googleOf(url, key).generateContentStream(GOOGLE_ORDER)),
  ],
  ['content of Gemini that streams as a list', 'gemini', listOfGoogle],
]

const missing = hasRedisServer ? WITHOUT_FASTAPI : ' (no redis-server is installed)'

describe.skipIf(missing !== '')(`the SDKs through examples/llm${missing}`, () => {
  let bed: LlmBed
  let api: ChildProcess
  let originUrl: string
  const urls = {} as Record<'workerd' | 'serve', Record<Usage, string>>
  beforeAll(async () => {
    const port = await freePort()
    originUrl = `http://127.0.0.1:${port}`
    const args = ['-m', 'uvicorn', 'llm_origin:app', '--port', String(port), '--log-level', 'warning']
    const cwd = join(ROOT, 'test/support/python')
    api = spawn(PYTHON, args, {
      cwd,
      stdio: 'inherit',
      env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' },
    })
    bed = await startLlmBed()
    for (const usage of ['openai', 'anthropic', 'gemini'] as const) {
      const variant = { usage, originUrl, requests: REQUESTS, refusesFiles: true }
      urls.workerd = { ...urls.workerd, [usage]: (await bed.start(variant)).url }
      urls.serve = { ...urls.serve, [usage]: (await bed.serve(1, variant)).url }
    }
    await vi.waitUntil(async () => (await accountOf('unknown').catch(() => undefined)) === 0, PATIENTLY)
  })
  afterAll(async () => {
    await bed?.close()
    api?.kill('SIGKILL')
  })

  const accountOf = async (team: string) => (await fetch(`${originUrl}/account/${team}`)).json()

  let teams = 0
  async function newTeam() {
    teams += 1
    const name = `team-${teams}`
    return { name, key: await bed.key(name), books: () => bed.books(name) }
  }

  describe.each(['workerd', 'serve'] as const)('on %s', setUp => {
    it.for(CALLS)('%s costs what the API has counted', async ([, usage, call], { skip }) => {
      skip(usage === 'gemini' && WITHOUT_GOOGLE !== '', WITHOUT_GOOGLE)
      const { name, key, books } = await newTeam()
      await call(urls[setUp][usage], key)
      await expect.poll(books, PATIENTLY).toEqual({ used: 3040, reserved: [] })
      expect(await accountOf(name)).toBe(3040)
    })

    it('a background response costs what it has used, however often it is polled', async () => {
      const { name, key, books } = await newTeam()
      const { responses } = openaiOf(urls[setUp].openai, key)
      const { id } = await responses.create({ model: 'words', input: 'Words.', background: true })
      const polled = [await responses.retrieve(id), await responses.retrieve(id)]
      expect(polled.map(({ status }) => status)).toEqual(['in_progress', 'completed'])
      await expect.poll(books, PATIENTLY).toEqual({ used: 3040, reserved: [] })
      await responses.retrieve(id)
      expect([await books(), await accountOf(name)]).toEqual([{ used: 3040, reserved: [] }, 3040])
    })

    it('a chat that is read again costs nothing', async () => {
      const { key, books } = await newTeam()
      const chat = await openaiOf(urls[setUp].openai, key).chat.completions.retrieve('c')
      expect(chat.usage!.total_tokens).toBe(3040)
      expect(await books()).toEqual({ used: 0, reserved: [] })
    })

    it("the gateway's own errors are those of the SDKs", async () => {
      const url = urls[setUp].openai
      const wrong = await openaiOf(url, 'wrong')
        .models.list()
        .catch(error => error)
      expect(wrong).toBeInstanceOf(OpenAI.AuthenticationError)
      expect(wrong).toMatchObject({ code: 'invalid_api_key', message: expect.stringMatching(/^401 [A-Z]/) })
      const { key, books } = await newTeam()
      const notJson = await post(url, key, '{"messages":[],"top_p":NaN}')
      expect([notJson.status, await notJson.json()]).toMatchObject([
        400,
        { error: { type: 'invalid_request_error', message: expect.stringContaining('is not JSON at byte') } },
      ])
      const anthropic = await sdksOf(urls[setUp].anthropic, 'wrong')
        .anthropic.models.list()
        .catch(error => error)
      expect(anthropic).toMatchObject({ status: 401, error: { type: 'error' } })
      expect(await books()).toEqual({ used: 0, reserved: [] })
    })

    it.each([
      ['its beginning is not JSON', 'application/json', '{"messages":NaN,"x":"', 0, 400],
      ['it is no JSON', 'application/octet-stream', 'file', 0, 415],
      ['its caller has made all of its requests', 'application/json', '{"messages":[],"x":"', REQUESTS, 429],
    ])(
      'a client that sends its whole body before it reads is told that %s',
      async (_, type, start, before, status) => {
        const url = urls[setUp].openai
        const { key } = await newTeam()
        for (let i = 0; i < before; i++) await openaiOf(url, key).chat.completions.create(ORDER)
        const body = `${start}${'x'.repeat(UPLOAD_BYTES)}"}`
        const replies = await Promise.all(Array.from({ length: UPLOADS }, () => upload(url, key, type, body)))
        expect(replies.map(reply => reply.slice(0, 12))).toEqual(Array(UPLOADS).fill(`HTTP/1.1 ${status}`))
      },
    )
  })
})

/** Sends a body, and reads the reply after that, if there is one. */
function upload(url: string, key: string, type: string, body: string): Promise<string> {
  const { hostname, port } = new URL(url)
  const head = [
    'POST /v1/chat/completions HTTP/1.1',
    ...['Host: a.test', `Authorization: Bearer ${key}`, `Content-Type: ${type}`],
    `Content-Length: ${body.length}`,
  ]
  return new Promise(resolve => {
    let reply = ''
    const socket = connect(Number(port), hostname, () => {
      socket.pause()
      socket.write(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.resume())
    })
    socket.on('data', part => {
      reply += part
      if (reply.includes('"error":')) socket.destroy()
    })
    socket.on('error', () => {}).once('close', () => resolve(reply))
  })
}
