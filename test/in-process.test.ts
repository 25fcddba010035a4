/** Requests that tests answer in one process, compared with the same requests over HTTP. */
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type RestCommand, upstashClient } from '../src/store/upstash-client.ts'
import { type CountedBridge, startCountedBridge } from './support/counted-bridge.ts'
import { stopServingInProcess } from './support/in-process.ts'
import { startOrigin } from './support/origin.ts'
import { startRedis, type TestRedis } from './support/redis.ts'

const TOKEN = 'a token for tests'

let redis: TestRedis
let bridge: CountedBridge
beforeAll(async () => {
  redis = await startRedis()
  bridge = await startCountedBridge(redis.url, TOKEN)
})
afterAll(async () => {
  await bridge?.close()
  await redis?.close()
})

it.each<[string, string, RequestInit]>([
  ['GET', '/path?query=1', {}],
  ['HEAD', '/', { method: 'HEAD' }],
  ...['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'].map((method): [string, string, RequestInit] => [
    method,
    '/',
    { method },
  ]),
  ['own headers', '/', { headers: { accept: 'text/html', 'user-agent': 'curl', 'x-own': 'yes' } }],
  ['no cache', '/', { cache: 'no-store' }],
  ['headers of the reply', '/?utilization=0.5&age=7', {}],
])('the origin receives and replies the same: %s', async (_, path, init) => {
  const origin = await startOrigin()
  const ask = async () => {
    // As the gateway does.
    const response = await fetch(origin.url + path, { ...init, headers: new Headers(init.headers) })
    const hopByHop = ['connection', 'keep-alive', 'transfer-encoding', 'content-length']
    const headers = [...response.headers.keys()].filter(name => !hopByHop.includes(name))
    const text = await response.text()
    return [response.status, headers, text && { ...JSON.parse(text), at: 0 }]
  }
  const inProcess = await ask()
  stopServingInProcess(origin.url)
  expect(await ask()).toEqual(inProcess)
  const [one, other] = origin.received.map(received => ({ ...received, at: 0 }))
  expect(one).toEqual(other)
  await origin.close()
})

it('the bridge answers the same', async () => {
  const requests: [commands: RestCommand[], isTransaction?: boolean][] = [
    [[['SET', 'key', 'välue']]],
    [[['GET', 'key']]],
    [[['GET', 'none']]],
    [[['LPUSH', 'key', 1]]],
    [[['EVALSHA', '0'.repeat(40), 0]]],
    [[['SCRIPT', 'LOAD', 'return {1, "a", false}']]],
    [
      [
        ['EVAL', 'return {1, "a", false}', 0],
        ['LPUSH', 'key', 1],
      ],
    ],
    [
      [
        ['SET', 'key', 1],
        ['GET', 'key'],
      ],
      true,
    ],
  ]
  const { url } = bridge.proxy
  const send = upstashClient({ url, token: TOKEN })
  const answers = async () => {
    const all: unknown[] = []
    for (const [commands, isTransaction] of requests) {
      const answer = await send(commands, AbortSignal.timeout(60_000), isTransaction).catch(
        ({ message }) => ({ message }),
      )
      all.push(answer)
    }
    return [all, bridge.proxy.count()]
  }
  const inProcess = await answers()
  stopServingInProcess(url)
  expect(await answers()).toEqual(inProcess)
})
