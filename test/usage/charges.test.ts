/**
 * A caller never lowers its own charge: each format of model APIs, asked for in each way, in each set-up, with each end. The charge is the
 * usage that the origin reports wherever it arrives, otherwise the larger of the estimate and what was counted.
 */
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { Hono } from 'hono'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { startGuardian } from '../../src/node/start/guardian.ts'
import { startWorker } from '../../src/node/start/worker.ts'
import { createGuard } from '../../src/set-ups/guard/guard.ts'
import { sluice } from '../../src/set-ups/hono/middleware.ts'
import { TOKEN, useGateway } from '../support/gateway.ts'
import { booksOf, tokensOf } from '../support/llm-bed.ts'
import { type LlmPlan, startLlmOrigin } from '../support/llm-origin.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { quickTime } from '../support/quick-time.ts'
import { startServer } from '../support/serve.ts'

/** Less than each plan lets the model say, so that counted events can be more than the estimate. */
const DEFAULT_OUTPUT = 5
const MAX_BYTES = 2000
/** Many requests are looked at, each by several commands. */
const PATIENTLY = { timeout: PATIENT_MS, interval: 50 }
const DAY: RuleInput = {
  ...{ name: 'tokens', unit: 'tokens', by: 'consumer', limit: 1_000_000, period: '300d' },
  algorithm: 'fixed-window',
}

interface Format {
  path: string
  actual: NonNullable<NonNullable<ConfigInput['units']>[string]['actual']>
  body(content: unknown): object
  /** The content with a picture of 512 × 512, and what that costs. Absent: the API takes none. */
  picture?: { content(base64: string): unknown; tokens: number }
  /** Events of a stream are only counted by the usage that they report. */
  countsNoEvents?: true
  /** The first event of a stream reports the prompt. */
  reportsInput?: true
}

const OPENAI = { usage: 'openai', includeUsage: true } as const
const GEMINI: Omit<Format, 'path'> = {
  actual: { usage: 'gemini' },
  body: parts => ({ contents: [{ role: 'user', parts: Array.isArray(parts) ? parts : [{ text: parts }] }] }),
  picture: { content: data => [{ inlineData: { mimeType: 'image/png', data } }], tokens: 2240 },
}
const dataUrl = (base64: string) => `data:image/png;base64,${base64}`

const FORMATS: Record<string, Format> = {
  'chat completions': {
    path: '/v1/chat/completions',
    actual: OPENAI,
    body: content => ({ messages: [{ role: 'user', content }] }),
    picture: {
      content: data => [{ type: 'image_url', image_url: { url: dataUrl(data) } }],
      tokens: Math.ceil(2.46 * 16 * 16),
    },
  },
  completions: { path: '/v1/completions', actual: OPENAI, body: prompt => ({ prompt }) },
  responses: {
    path: '/v1/responses',
    actual: OPENAI,
    body: content => ({ input: [{ role: 'user', content }] }),
    picture: {
      content: data => [{ type: 'input_image', image_url: dataUrl(data) }],
      tokens: Math.ceil(2.46 * 16 * 16),
    },
  },
  'messages of Anthropic': {
    path: '/v1/messages',
    actual: { usage: 'anthropic' },
    body: content => ({ messages: [{ role: 'user', content }] }),
    picture: {
      content: data => [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data } }],
      tokens: 19 * 19,
    },
    reportsInput: true,
  },
  'generateContent of Gemini': { path: '/v1beta/models/words:generateContent', ...GEMINI },
  'streamGenerateContent of Gemini': {
    path: '/v1beta/models/words:streamGenerateContent?alt=sse',
    ...GEMINI,
    reportsInput: true,
  },
  'streamGenerateContent of Gemini, as a list': {
    path: '/v1beta/models/words:streamGenerateContent?alt=json',
    ...GEMINI,
    ...{ reportsInput: true, countsNoEvents: true },
  },
}

/** The head of a PNG of 512 × 512, and noise. */
const PICTURE = Buffer.concat([
  Buffer.from('89504e470d0a1a0a0000000d494844520000020000000200', 'hex'),
  Buffer.alloc(4500, 'noise'),
]).toString('base64')

interface Asked {
  body: Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>
  headers?: Record<string, string>
  estimate: number
  /** The status with which it is refused. */
  refused?: number
}

/** A body that arrives in chunks of 7 bytes. */
function inTinyChunks(bytes: Uint8Array): ReadableStream<Uint8Array> {
  let at = 0
  return new ReadableStream({
    pull(controller) {
      if (at < bytes.length) controller.enqueue(bytes.slice(at, at + 7))
      else controller.close()
      at += 7
    },
  })
}

/** The ways to ask. Undefined: this format does not have it. */
const ASKS: Record<string, (format: Format) => Asked | undefined> = {
  plainly: format => asked(format, {}),
  'with stream: true': format => asked(format, { stream: true }),
  'with stream: 1': format => asked(format, { stream: 1 }),
  'with stream: "true"': format => asked(format, { stream: 'true' }),
  'in tiny chunks': format => chunked(asked(format, { stream: true })),
  'with a body above maxBytes': format => asked(format, { stream: true }, 'x'.repeat(3 * MAX_BYTES)),
  'with a body above maxBytes, in tiny chunks': format =>
    chunked(asked(format, { stream: true }, 'x'.repeat(3 * MAX_BYTES))),
  'with a picture': format => {
    const { picture } = format
    if (!picture) return undefined
    const { body } = asked(format, { stream: true }, picture.content(PICTURE))
    const text = body.length - PICTURE.length - (format.actual === OPENAI ? dataUrl('').length : 0)
    return { body, estimate: Math.ceil(text / 4) + picture.tokens + DEFAULT_OUTPUT }
  },
  'with NaN': format => {
    const text = JSON.stringify({ ...format.body('Words.'), stream: true }).replace(/\}$/, ',"top_p":NaN}')
    return { body: new TextEncoder().encode(text), estimate: 0, refused: 400 }
  },
  'in UTF-16': format => ({ ...utf16(format), refused: 400 }),
  'in UTF-16, as text': format => ({
    ...utf16(format),
    ...{ headers: { 'content-type': 'text/plain' }, refused: 415 },
  }),
  'in gzip': format => ({
    body: Uint8Array.from(gzipSync(JSON.stringify({ ...format.body('Words.'), stream: true }))),
    headers: { 'content-encoding': 'gzip' },
    ...{ estimate: 0, refused: 400 },
  }),
}

function asked(
  format: Format,
  more: object,
  content: unknown = 'Say some words.',
): Asked & { body: Uint8Array } {
  const body = new TextEncoder().encode(JSON.stringify({ ...format.body(content), ...more }))
  return { body, estimate: Math.ceil(body.length / 4) + DEFAULT_OUTPUT }
}

const chunked = ({ body, ...rest }: Asked & { body: Uint8Array }): Asked => ({
  ...rest,
  body: inTinyChunks(body),
})

const utf16 = (format: Format) => ({
  body: Uint8Array.from(Buffer.from(`\ufeff${JSON.stringify(format.body('Words.'))}`, 'utf16le')),
  estimate: 0,
})

/** Events that count as output and have no word: the first one and the last two of a chat. */
const UNSPOKEN = 3

const PLAN: LlmPlan = { input: 4000, output: 60 }

interface End {
  plan: LlmPlan
  /** `counted`: the estimate, or what was counted if that is more. */
  costs: 'reported' | 'nothing' | 'estimate' | 'counted'
  /** The client leaves in the middle. */
  leaves?: true
  config?: Partial<ConfigInput>
  /** It needs an origin: user's code has none. */
  isOfGateway?: true
}

const ENDS: Record<string, End> = {
  'the origin reports more than the estimate': { plan: PLAN, costs: 'reported' },
  'the origin reports less': { plan: { input: 1, output: 1 }, costs: 'reported' },
  'the origin reports no usage': { plan: { ...PLAN, usage: 'none' }, costs: 'counted' },
  'the origin reports usage that is no number': { plan: { ...PLAN, usage: 'text' }, costs: 'counted' },
  'the origin breaks off': { plan: { ...PLAN, failAt: 57 }, costs: 'counted' },
  'the origin breaks off at once': { plan: { ...PLAN, failAt: 0 }, costs: 'counted' },
  'the client leaves': { plan: { ...PLAN, gateAt: 30 }, leaves: true, costs: 'reported' },
  "the client leaves, with onClientGone: 'abort'": {
    plan: { ...PLAN, gateAt: 30 },
    ...{ leaves: true, costs: 'counted', config: { onClientGone: 'abort' } },
  },
  'the origin is too slow': {
    plan: { ...PLAN, delayMs: 1500 },
    ...{ costs: 'estimate', config: { originDeadline: '1s' }, isOfGateway: true },
  },
  'the origin is busy': { plan: { status: 503 }, costs: 'nothing' },
  'the origin refuses': { plan: { status: 400 }, costs: 'nothing' },
  'the origin fails with JSON': { plan: { status: 500 }, costs: 'nothing' },
  'the origin fails without JSON': { plan: { status: 500, errorText: 'Oh no.' }, costs: 'estimate' },
}

type Send = (path: string, init: RequestInit) => Promise<Response>

describe('the charge of a request to a model', () => {
  const gateway = useGateway()
  let origin: Awaited<ReturnType<typeof startLlmOrigin>>
  const guardian = startGuardian()
  const folder = mkdtempSync(join(tmpdir(), 'sluice-charges-'))
  const stops: (() => Promise<unknown>)[] = []
  beforeAll(async () => {
    guardian.guard({ directory: folder })
    origin = await startLlmOrigin()
  })
  afterAll(async () => {
    await Promise.all(stops.map(stop => stop()))
    await origin?.close()
    await guardian.dismiss()
  })

  const env = () => ({ UPSTASH_REDIS_REST_URL: gateway.store.url, UPSTASH_REDIS_REST_TOKEN: TOKEN })

  /** User's code calls the model in this process. */
  const SET_UPS: Record<
    string,
    { start(config: ConfigInput): Promise<Send>; isUserCode?: true; isProcess?: true }
  > = {
    'the gateway': { start: async config => gateway.app({ ...config, origin: origin.url }, quickTime()) },
    'a guard': {
      isUserCode: true,
      async start(config) {
        const guarded = createGuard(config, { env: env() }, quickTime())
        return (path, init) =>
          guarded(new Request(`http://a.test${path}`, init), [], (_, copy) => origin.fetch(copy))
      },
    },
    'a Hono app': {
      isUserCode: true,
      async start(config) {
        const app = new Hono()
        app.use(sluice(config, { env: env() }, quickTime()))
        app.all('*', c => origin.fetch(c.req.raw))
        return async (path, init) => await app.request(path, init)
      },
    },
    serve: {
      isProcess: true,
      async start(config) {
        const variables = { REDIS_URL: gateway.redis.url, ORIGIN_URL: origin.url }
        const server = await startServer(variables, ['--workers', '1'], fileWith(config))
        stops.push(async () => {
          server.kill('SIGKILL')
          await server.exited
        })
        return (path, init) => fetch(server.url + path, init)
      },
    },
    'the Worker in workerd': {
      isProcess: true,
      async start(config) {
        const worker = await startWorker({
          ...{ guardian, directory: mkdtempSync(join(folder, 'worker-')), configFile: fileWith(config) },
          bindings: { ...env(), ORIGIN_URL: origin.url },
          ...{ host: '127.0.0.1', port: 0, watch: false, onMessage() {} },
        })
        stops.push(() => worker.close())
        return (path, init) => fetch(worker.url + path, init)
      },
    },
  }

  let files = 0
  function fileWith(config: ConfigInput): string {
    const file = join(folder, `sluice-${++files}.config.ts`)
    writeFileSync(file, `export default ${JSON.stringify({ ...config, origin: origin.url })}`)
    return file
  }

  const started = new Map<string, Promise<Send>>()
  /** Starts a set-up once for each config. */
  function startOnce(setUp: string, config: ConfigInput): Promise<Send> {
    const name = JSON.stringify([setUp, config])
    const send = started.get(name) ?? SET_UPS[setUp]!.start(config)
    started.set(name, send)
    return send
  }

  const configOf = ({ actual }: Format, more: Partial<ConfigInput> = {}): ConfigInput => ({
    store: { deadline: '20s' },
    log: { perSecond: 0 },
    units: { tokens: { estimate: { defaultOutput: DEFAULT_OUTPUT, maxBytes: MAX_BYTES }, actual } },
    rules: [DAY],
    ...more,
  })

  let cases = 0

  /** Sends one request, and returns what is wrong with its charge. */
  async function wrongIn(send: Send, format: Format, { body, headers, estimate, refused }: Asked, end: End) {
    cases += 1
    const name = `case-${cases}`
    const client = new AbortController()
    const plan = { ...end.plan, ...(end.plan.gateAt && { gate: name }) }
    const response = await send(format.path, {
      ...{ method: 'POST', body, signal: client.signal, duplex: 'half' },
      headers: {
        authorization: `Bearer ${await gateway.key(name)}`,
        // Or else the local Worker compresses JSON, and holds it back.
        'accept-encoding': 'identity',
        ...{ 'content-type': 'application/json', 'x-case': name, 'x-llm': JSON.stringify(plan) },
        ...headers,
      },
    } as RequestInit).catch(() => undefined)
    if (end.leaves && !refused) await readUntil(response!, 'word20 ')
    else await response?.text().catch(() => {})
    client.abort()
    origin.open(name)
    const call = origin.calls.findLast(({ headers }) => headers['x-case'] === name)
    const config = checkedConfig(configOf(format))
    const used = await vi.waitFor(async () => {
      const { used, reserved } = await booksOf(gateway.admin, config, name)
      if (reserved.length > 0) throw new Error(`${name} is not settled.`)
      return used
    }, PATIENTLY)
    const sums = (): readonly [least: number, most: number] => {
      if (refused || end.costs === 'nothing') return [0, 0]
      // The origin may not have got the request.
      if (end.costs === 'estimate' || !call) return [estimate, estimate]
      const streams = isStreamed(format, call.body)
      const { usage, failAt = 0 } = end.plan
      const total = tokensOf([call])
      if (end.costs === 'reported' || (failAt > 1 && !streams)) return [total, total]
      if (end.leaves) return [estimate, Math.max(estimate, total + UNSPOKEN)]
      const arrived =
        !streams || call.tokens.output === 0 ? 0 : format.reportsInput && !usage ? total : call.tokens.output
      const counted = format.countsNoEvents && usage ? 0 : arrived
      return [Math.max(estimate, counted), Math.max(estimate, counted + UNSPOKEN)]
    }
    const [least, most] = sums()
    const isSent = refused ? response?.status === refused && !call : call !== undefined || end.isOfGateway
    const isRight = isSent && used >= least && used <= most
    return isRight ? undefined : { status: response?.status, used, least, most, estimate }
  }

  const isStreamed = ({ path }: Format, { stream }: Record<string, unknown>) =>
    path.includes(':stream') || (Boolean(stream) && !path.includes(':generate'))

  async function readUntil(response: Response, word: string): Promise<void> {
    const reader = response.body!.getReader()
    const decoder = new TextDecoder()
    let text = ''
    while (!text.includes(word)) {
      const { done, value } = await reader.read()
      if (done) return
      text += decoder.decode(value, { stream: true })
    }
    await reader.cancel().catch(() => {})
  }

  const table = Object.keys(SET_UPS).flatMap(setUp =>
    Object.keys(FORMATS).map(format => [setUp, format] as const),
  )

  it.each(table)('%s, %s', async (setUp, name) => {
    for (const level of ['warn', 'error'] as const) vi.spyOn(console, level).mockImplementation(() => {})
    const format = FORMATS[name]!
    const { isUserCode, isProcess } = SET_UPS[setUp]!
    const wrong: unknown[] = []
    const ends = Object.entries(ENDS).filter(
      ([, { config, isOfGateway }]) =>
        !(isUserCode && isOfGateway) && !(isProcess && config && format.actual !== OPENAI),
    )
    await Promise.all(
      ends.map(async ([endName, end], i) => {
        const send = await startOnce(setUp, configOf(format, isUserCode ? {} : end.config))
        await Promise.all(
          Object.entries(ASKS).map(async ([askName, ask]) => {
            const asked = ask(format)
            if (!asked || (asked.refused && i > 0)) return
            const found = await wrongIn(send, format, asked, end)
            if (found) wrong.push(`${askName}, ${endName}: ${JSON.stringify(found)}`)
          }),
        )
      }),
    )
    expect(wrong).toEqual([])
  })
})
