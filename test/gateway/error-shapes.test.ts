/** The gateway's own replies, as the SDKs of OpenAI and Anthropic show them. */
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { describe, expect, it, vi } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { createErrorShapes } from '../../src/set-ups/http/error-shapes.ts'
import { type App, useGateway } from '../support/gateway.ts'
import { quickTime } from '../support/quick-time.ts'

const RULES: RuleInput[] = [
  { name: 'minute', by: 'consumer', algorithm: 'fixed-window', limit: 1, period: 'day' },
  { name: 'tokens', unit: 'tokens', by: 'consumer', algorithm: 'fixed-window', limit: 10_000, period: 'day' },
]

const configOf = (usage: 'openai' | 'anthropic' | 'gemini', errors?: 'problem'): ConfigInput => ({
  // Nothing listens there.
  origin: 'http://127.0.0.1:1',
  units: { tokens: { estimate: 5, actual: { usage, ...(errors && { errors }) } } },
  rules: RULES,
})

const fetchOf = (app: App) => (url: unknown, init?: RequestInit) => app(new URL(String(url)).pathname, init)

const MESSAGES = [{ role: 'user' as const, content: 'Hello' }]

function callOpenAI(app: App, key: string) {
  const settings = { apiKey: key, baseURL: 'http://gateway.example/v1', maxRetries: 0, fetch: fetchOf(app) }
  return new OpenAI(settings).chat.completions.create({ model: 'm', messages: MESSAGES })
}

function callAnthropic(app: App, key: string) {
  const settings = { apiKey: key, baseURL: 'http://gateway.example', maxRetries: 0, fetch: fetchOf(app) }
  return new Anthropic(settings).messages.create({ model: 'm', max_tokens: 5, messages: MESSAGES })
}

const errorOf = async (call: Promise<unknown>) =>
  await call.then(
    () => expect.fail('no error'),
    (error: { status: number; message: string; code?: string }) => error,
  )

const LIMIT = 'Limit reached: minute (1 per day). Nothing was charged. Try again in '

describe('a reply of the gateway to a request of a model', () => {
  const gateway = useGateway()

  it('is an error of OpenAI, with its sentence, type and code', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const app = gateway.app(configOf('openai'), quickTime())
    const key = await gateway.key('acme')
    expect(await errorOf(callOpenAI(app, key))).toMatchObject({
      ...{ status: 502, type: 'server_error' },
      message: '502 The service behind this gateway cannot be reached. Try again later.',
    })
    const refused = await errorOf(callOpenAI(app, key))
    expect(refused).toBeInstanceOf(OpenAI.RateLimitError)
    expect(refused).toMatchObject({
      ...{ status: 429, type: 'rate_limit_error', code: 'rate_limit_exceeded', param: null },
      message: expect.stringContaining(`429 ${LIMIT}`),
    })
    expect(await errorOf(callOpenAI(app, 'wrong'))).toMatchObject({
      ...{ status: 401, code: 'invalid_api_key' },
      message: expect.stringMatching(/^401 (Send|The credential)/),
    })
    log.mockRestore()
  })

  it('is an error of Anthropic, with its sentence and type', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const app = gateway.app(configOf('anthropic'), quickTime())
    const key = await gateway.key('acme')
    await errorOf(callAnthropic(app, key))
    const refused = await errorOf(callAnthropic(app, key))
    expect(refused).toBeInstanceOf(Anthropic.RateLimitError)
    expect(refused).toMatchObject({
      message: expect.stringContaining(LIMIT),
      error: { type: 'error', error: { type: 'rate_limit_error', 'violated-policies': ['minute'] } },
    })
    log.mockRestore()
  })

  it('is an error of Gemini, with its sentence and status', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const app = gateway.app(configOf('gemini'), quickTime())
    const key = await gateway.key('acme')
    await app('/', { key })
    expect(await (await app('/', { key })).json()).toEqual({
      error: {
        ...{ code: 429, status: 'RESOURCE_EXHAUSTED', message: expect.stringContaining(LIMIT) },
        'violated-policies': ['minute'],
      },
    })
    expect(await (await app('/', { key: 'wrong' })).json()).toMatchObject({
      error: { code: 401, status: 'UNAUTHENTICATED' },
    })
    log.mockRestore()
  })

  it("has the same status and headers as problem details, which errors: 'problem' brings back", async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const replies = []
    for (const errors of [undefined, 'problem'] as const) {
      const app = gateway.app(configOf('openai', errors), quickTime())
      const key = await gateway.key(errors ?? 'native')
      await app('/', { key })
      const { status, headers, ...reply } = await app('/', { key })
      const names = [...headers.keys()].filter(name => !['x-request-id', 'content-length'].includes(name))
      replies.push({ status, names, type: headers.get('content-type'), reply })
    }
    const [native, problem] = replies
    expect([native!.status, native!.names]).toEqual([problem!.status, problem!.names])
    expect([native!.type, problem!.type]).toEqual(['application/json', 'application/problem+json'])
    log.mockRestore()
  })

  it('is problem details if its rules count units of several formats, or none', () => {
    const unit = (errors?: 'openai' | 'anthropic') => ({
      ...{ includesUsage: false, errors },
      settlement: { ttlMs: 1, onUnsettled: 'keep' as const, aboveLimit: 'clamp' as const },
    })
    const shapeOf = createErrorShapes(
      new Map([
        ['a', unit('openai')],
        ['b', unit('anthropic')],
        ['c', unit()],
      ]),
    )
    const of = (...names: string[]) => shapeOf(names.map(unit => ({ unit })) as never) !== undefined
    expect([of('a'), of('a', 'c'), of('b'), of('a', 'b'), of('c'), of()]).toEqual([
      true,
      true,
      true,
      false,
      false,
      false,
    ])
  })
})
