/** Commands through @upstash/redis: each is sent once and as it is, the answers are not read as JSON, and any other answer has a clear error. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { inspect } from 'node:util'
import { Redis } from '@upstash/redis'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { type RestCommand, RestError, upstashClient } from '../../src/store/upstash-client.ts'
import { startCountingProxy } from '../support/counting-proxy.ts'
import { listen } from '../support/listen.ts'
import { PATIENT, PATIENT_MS } from '../support/patience.ts'
import { describeOnRedis, type TestRedis } from '../support/redis.ts'

const signal = AbortSignal.timeout(PATIENT_MS)

const clientFor = (url: string) =>
  new Redis({
    ...{ url, token: 't', enableAutoPipelining: false, enableTelemetry: false, responseEncoding: false },
    ...{ readYourWrites: false, automaticDeserialization: false, retry: { retries: 0 } },
  })

/** A server that records requests, and answers each with this status and text. */
async function startRecorder() {
  const requests: object[] = []
  const recorder = { url: '', requests, status: 200, text: '{"result":1}', close: async () => {} }
  const server = createServer(async (request: IncomingMessage, response) => {
    const { authorization, 'content-type': type } = request.headers
    const chunks = await request.toArray()
    const body = JSON.parse(
      Buffer.concat(chunks).toString().replace('evalsha', 'EVALSHA').replace('get', 'GET'),
    )
    requests.push({ method: request.method, path: request.url, authorization, type, body })
    response.writeHead(recorder.status).end(recorder.text)
  })
  await listen(server, 0)
  recorder.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  recorder.close = () => new Promise(resolve => server.close(() => resolve()))
  return recorder
}

describe('the request', () => {
  let recorder: Awaited<ReturnType<typeof startRecorder>>
  beforeAll(async () => {
    recorder = await startRecorder()
  })
  afterAll(() => recorder?.close())

  it.each(['', '/', '/prefix', '/prefix/'])('is that of @upstash/redis, at the URL …%s', async path => {
    const url = `${recorder.url}${path}`
    const client = clientFor(url)
    recorder.requests.length = 0
    recorder.text = '{"result":1}'
    await client.evalsha('sha', ['k'], ['a', '1'])
    await upstashClient({ url, token: 't' })([['EVALSHA', 'sha', 1, 'k', 'a', '1']], signal)
    recorder.text = '[{"result":1},{"result":2}]'
    await client.pipeline().evalsha('sha', ['k'], []).get('g').exec()
    await upstashClient({ url, token: 't' })(
      [
        ['EVALSHA', 'sha', 1, 'k'],
        ['GET', 'g'],
      ],
      signal,
    )
    const [single, ourSingle, pipeline, ourPipeline] = recorder.requests
    expect(ourSingle).toEqual(single)
    expect(ourPipeline).toEqual(pipeline)
    expect(single).toMatchObject({ method: 'POST', authorization: 'Bearer t' })
  })
})

describeOnRedis('the answers', start => {
  let redis: TestRedis
  let bridge: Awaited<ReturnType<typeof startBridge>>
  beforeAll(async () => {
    redis = await start()
    bridge = await startBridge({ redisUrl: redis.url, token: 't', port: 0, deadlineMs: PATIENT_MS })
  })
  afterAll(async () => {
    await bridge?.close()
    await redis?.close()
  })

  const VALUES = ['{1,2,3}', "{1,'a ü',{2},false}", "'plain'", "''", 'false', "redis.status_reply('FINE')"]

  it.each(VALUES)('are those of @upstash/redis: return %s', async value => {
    const send = upstashClient({ url: bridge.url, token: 't' })
    const source = `return ${value}`
    const expected = (await clientFor(bridge.url).eval(source, ['k'], ['a'])) as unknown
    const command: RestCommand = ['EVAL', source, 1, 'k', 'a']
    expect(await send([command], signal)).toEqual([{ result: expected }])
    expect(await send([command, ['GET', '{k}none'], command], signal)).toEqual([
      ...[{ result: expected }, { result: null }, { result: expected }],
    ])
  })

  it('of a pipeline include the error of each command', async () => {
    const send = upstashClient({ url: bridge.url, token: 't' })
    const commands: RestCommand[] = [
      ['EVALSHA', '0'.repeat(40), 0],
      ['EVAL', 'return 1', 0],
    ]
    const answers = await send(commands, signal)
    expect(answers).toEqual([{ error: expect.stringMatching(/^NOSCRIPT/) }, { result: 1 }])
    await expect(send(commands.slice(0, 1), signal)).rejects.toThrow(RestError)
  })

  it('to a wrong token are an error without the command', async () => {
    const answer = upstashClient({ url: bridge.url, token: 'wrong' })([['PING']], signal)
    await expect(answer).rejects.toThrow(/^WRONGPASS(?!.*PING)/)
  })
})

describe('an answer that is not one of the protocol', () => {
  const INVALID = 'ERR_STORE_REPLY_INVALID'
  const answers: [status: number, text: string, count: number, code: string, fate: string][] = [
    ...[200, 400, 401, 403, 429, 500, 502].flatMap(status => [
      [status, '<html>', 1, 'ERR_STORE_UNREACHABLE', 'may-have-run'] as (typeof answers)[number],
      [status, '<html>', 2, 'ERR_STORE_UNREACHABLE', 'may-have-run'] as (typeof answers)[number],
    ]),
    [200, '', 1, 'ERR_STORE_UNREACHABLE', 'may-have-run'],
    [200, 'null', 1, INVALID, 'may-have-run'],
    [200, '[]', 1, INVALID, 'may-have-run'],
    [200, '{}', 1, INVALID, 'may-have-run'],
    [200, '{"error":7}', 1, INVALID, 'may-have-run'],
    [200, '{"result":1,"error":7}', 1, INVALID, 'may-have-run'],
    [200, '{"error":null}', 1, INVALID, 'may-have-run'],
    [200, '{"result":1}', 2, INVALID, 'may-have-run'],
    [200, '[{"result":1}]', 2, INVALID, 'may-have-run'],
    [200, '[{"result":1},null]', 2, INVALID, 'may-have-run'],
    [200, '[{"result":1},{"result":1},{"result":1}]', 2, INVALID, 'may-have-run'],
    [502, '{"error":"bad gateway"}', 2, 'ERR_STORE_UNREACHABLE', 'may-have-run'],
    [502, '{"error":"bad gateway"}', 1, 'ERR_STORE_UNREACHABLE', 'may-have-run'],
    [504, '{"message":"timeout"}', 1, 'ERR_STORE_UNREACHABLE', 'may-have-run'],
    [403, 'null', 1, 'ERR_STORE_UNREACHABLE', 'may-have-run'],
    [429, '{"error":"slow down"}', 2, 'ERR_STORE_UNREACHABLE', 'may-have-run'],
    [500, '{"error":"ERR internal error"}', 1, 'ERR_STORE_UNREACHABLE', 'may-have-run'],
    [400, '{"error":"ERR max requests limit exceeded"}', 2, 'ERR_STORE_QUOTA', 'answered'],
    [401, '{"error":"Unauthorized"}', 2, 'ERR_STORE_REFUSED', 'answered'],
    [400, '{"error":"ERR syntax"}', 2, 'ERR_STORE_REFUSED', 'answered'],
  ]

  it.each(answers)('%i %s, to %i calls: %s, %s', async (status, text, count, code, fate) => {
    const proxy = await startCountingProxy('http://127.0.0.1:9')
    proxy.fault = (_, response) => void response.writeHead(status).end(text)
    const store = upstashStore({ url: proxy.url, token: 't', deadlineMs: PATIENT_MS, keyLocking: true })
    const calls = Array.from({ length: count }, () => ({ command: 'GET', key: 'sluice:{a}' }) as const)
    const error = await store.run(calls).catch(error => error)
    expect(error).toMatchObject({ code, fate })
    // The client quotes the commands.
    expect(inspect(error)).not.toContain('sluice:')
    expect(proxy.count()).toBe(1)
    await proxy.close()
  })
})

it('requests have no headers of telemetry and encoding, and those of decisions none of earlier writes', async () => {
  const sent: string[][] = []
  const proxy = await startCountingProxy('http://127.0.0.1:9')
  proxy.fault = ({ headers }, response) => {
    sent.push(Object.keys(headers).filter(name => name.startsWith('upstash')))
    response.setHeader('upstash-sync-token', 'x').end('{"result":1}')
  }
  const at = { url: proxy.url, token: 't' }
  for (const send of [upstashClient(at), upstashClient(at, { readYourWrites: true })])
    for (let i = 0; i < 2; i++) await send([['PING']], signal)
  expect(sent).toEqual([[], [], ['upstash-sync-token'], ['upstash-sync-token']])
  await proxy.close()
})

it('each of many calls at once ends by its own signal', async () => {
  const waiting = new Map<string, ServerResponse>()
  const proxy = await startCountingProxy('http://127.0.0.1:9')
  proxy.fault = async (request, response) => {
    waiting.set(JSON.parse(String(Buffer.concat(await request.toArray())))[1], response)
  }
  const send = upstashClient({ url: proxy.url, token: 't' })
  const calls = Array.from({ length: 40 }, (_, i) => {
    const controller = new AbortController()
    const answer = send([['GET', String(i)]], controller.signal).catch(error => error)
    return { i, answer, abort: () => controller.abort(new Error(`signal ${i}`)) }
  })
  await expect.poll(() => waiting.size, PATIENT).toBe(40)
  for (const { i, abort } of calls) if (i % 2) abort()
  await expect.poll(() => proxy.abandoned(), PATIENT).toBe(20)
  for (const [i, response] of waiting) response.end(JSON.stringify({ result: i }))
  for (const { i, answer } of calls)
    expect(await answer).toEqual(i % 2 ? new Error(`signal ${i}`) : [{ result: String(i) }])
  await proxy.close()
})

it.each([
  [401, '{"error":"Unauthorized"}', 'The store answered Unauthorized. Check UPSTASH_REDIS_REST_TOKEN.'],
  [401, '{"error":"WRONGPASS no"}', 'The store answered WRONGPASS. Check UPSTASH_REDIS_REST_TOKEN.'],
  [502, '{"error":"no"}', 'The store could not be reached (the answer is not one of Redis).'],
  [502, '<html>', 'The store could not be reached (the answer is not one of Redis).'],
])('the message about an answer with status %i, %s is: %s', async (status, text, message) => {
  const proxy = await startCountingProxy('http://127.0.0.1:9')
  proxy.fault = (_, response) => void response.writeHead(status).end(text)
  const store = upstashStore({ url: proxy.url, token: 't', deadlineMs: PATIENT_MS, keyLocking: true })
  await expect(store.ping()).rejects.toThrow(message)
  await proxy.close()
})

it.each([307, 308])('a redirection (%i) to another origin is followed without the token', async status => {
  const tokens: unknown[] = []
  const elsewhere = await startCountingProxy('http://127.0.0.1:9')
  elsewhere.fault = ({ headers }, response) => {
    tokens.push(headers.authorization)
    response.end('{"result":"from elsewhere"}')
  }
  const proxy = await startCountingProxy('http://127.0.0.1:9')
  proxy.fault = (_, response) => void response.writeHead(status, { location: elsewhere.url }).end()
  const store = upstashStore({ url: proxy.url, token: 't', deadlineMs: PATIENT_MS, keyLocking: true })
  await store.run([{ command: 'GET', key: 'sluice:{a}' }])
  expect(tokens).toEqual([undefined])
  await Promise.all([proxy.close(), elsewhere.close()])
})

it.each([
  ['{"result":1,"error":null}', [1]],
  ['[{"result":1,"error":null},{"result":null,"error":null}]', [1, null]],
])('a result beside an error that is null is a result: %s', async (text, results) => {
  const proxy = await startCountingProxy('http://127.0.0.1:9')
  proxy.fault = (_, response) => void response.end(text)
  const store = upstashStore({ url: proxy.url, token: 't', deadlineMs: PATIENT_MS, keyLocking: true })
  expect(await store.run(results.map(() => ({ command: 'GET', key: 'sluice:{a}' })))).toEqual(results)
  await proxy.close()
})

it.each(['/prefix/?', '/prefix/#', '/prefix//'])('the URL …%s has the path of the prefix', async path => {
  const recorder = await startRecorder()
  recorder.text = '[{"result":1},{"result":2}]'
  const send = upstashClient({ url: `${recorder.url}${path}`, token: 't' })
  await send([['PING'], ['PING']], signal)
  expect(recorder.requests).toMatchObject([{ path: '/prefix/pipeline' }])
  await recorder.close()
})

describe('an invalid setting is refused without being quoted', () => {
  const URLS = ['', 'store.example', 'redis://store.example', 'https://u:secret@store.example']
  it.each([...URLS, 'https://store.example/?_token=secret', 'https://store.example/#secret'])('%s', url => {
    const made = () => upstashClient({ url, token: 't' })
    expect(made).toThrow('The URL of the store is not valid. Use the http or https URL of its REST API.')
    expect(made).not.toThrow('secret')
  })

  it('a token with a line break', () => {
    const made = () => upstashClient({ url: 'https://store.example', token: 'secret\ntoken' })
    expect(made).toThrow(
      'The token of the store has a character that is not allowed in a header, such as a line break. Copy it again.',
    )
    expect(made).not.toThrow('secret')
  })
})
