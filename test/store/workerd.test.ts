/** @upstash/redis in workerd: each request once, the deadline also while a body is read, and redirections without the token. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { type CountingProxy, startCountingProxy } from '../support/counting-proxy.ts'
import { PATIENT, PATIENT_MS } from '../support/patience.ts'
import { startTestWorker, type TestWorker } from '../support/workerd.ts'

let proxy: CountingProxy
let elsewhere: CountingProxy
let worker: TestWorker
beforeAll(async () => {
  proxy = await startCountingProxy('http://127.0.0.1:9')
  elsewhere = await startCountingProxy('http://127.0.0.1:9')
  worker = await startTestWorker('store-worker.ts', { STORE: proxy.url })
})
afterAll(async () => {
  await worker?.close()
  await Promise.all([proxy, elsewhere].map(each => each?.close()))
})
beforeEach(() => void proxy.count())

const outcomes = async (calls: number, deadlineMs = PATIENT_MS) =>
  await (await fetch(`${worker.url}/${calls}?deadline=${deadlineMs}`)).json()

const TIMEOUT = {
  ...{ code: 'ERR_STORE_TIMEOUT', fate: 'may-have-run' },
  message: 'The store did not answer within the deadline.',
}
const UNREACHABLE = { code: 'ERR_STORE_UNREACHABLE', fate: 'may-have-run' }
const headers = { 'content-length': 100 }
const part = '{"result":'

it.each<[string, (request: IncomingMessage, response: ServerResponse) => void, number, object]>([
  ['is reset', ({ socket }) => void socket.resetAndDestroy(), PATIENT_MS, UNREACHABLE],
  ['is closed', ({ socket }) => void socket.end(), PATIENT_MS, UNREACHABLE],
  ['has no answer', () => {}, 300, TIMEOUT],
  [
    'has headers, and then nothing',
    (_, response) => response.writeHead(200, headers).flushHeaders(),
    300,
    TIMEOUT,
  ],
  [
    'has half a body, and then nothing',
    (_, response) => void response.writeHead(200, headers).write(part),
    300,
    TIMEOUT,
  ],
  [
    'has half a body, and is then reset',
    ({ socket }, response) =>
      void response.writeHead(200, headers).write(part, () => socket.resetAndDestroy()),
    PATIENT_MS,
    UNREACHABLE,
  ],
])('a request that %s is sent once', async (_, fault, deadlineMs, expected) => {
  proxy.fault = fault
  const abandoned = proxy.abandoned()
  expect(await outcomes(1, deadlineMs)).toMatchObject([expected])
  // The deadline closes the request, and does not only stop waiting for it.
  await expect.poll(() => proxy.abandoned(), PATIENT).toBe(abandoned + 1)
  expect(proxy.count()).toBe(1)
})

it('each of many calls at once has a deadline of its own', async () => {
  let n = 0
  proxy.fault = (_, response) => {
    n += 1
    if (n % 2) response.end(`{"result":${n}}`)
  }
  const results = (await outcomes(10, 1000)) as unknown[]
  expect(results.filter(result => typeof result === 'number')).toHaveLength(5)
  expect(results.filter(result => typeof result !== 'number')).toEqual(Array(5).fill(TIMEOUT))
  expect(proxy.count()).toBe(10)
})

it.each([302, 307, 308])(
  'a redirection (%i) to another origin is followed without the token',
  async status => {
    const tokens: unknown[] = []
    elsewhere.fault = ({ headers }, response) => {
      tokens.push(headers.authorization)
      response.end('{"result":"from elsewhere"}')
    }
    proxy.fault = (_, response) => void response.writeHead(status, { location: elsewhere.url }).end()
    await outcomes(1)
    expect(tokens).toEqual([undefined])
  },
)
