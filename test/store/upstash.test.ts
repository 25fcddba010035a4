/** The store over HTTP, on every kind of Redis: decisions and plain commands in one HTTP request. */

import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { createScript } from '../../src/script/create-script.ts'
import { RESET } from '../../src/script/reset.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { type CountingProxy, startCountingProxy } from '../support/counting-proxy.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { describeOnRedis, type TestRedis } from '../support/redis.ts'

/** A reset of no rule, which returns the time of its argument. */
const SCRIPT = { script: RESET, keys: ['sluice:{k:x}'], args: ['0', '17'] }

it('rejects an invalid URL without quoting it, because it may contain a password', () => {
  const url = 'https://$u:secret-token@host.example'
  const made = () => upstashStore({ url, token: 't', deadlineMs: 5000, keyLocking: true })
  expect(made).toThrow('The URL of the store is not valid. Use the http or https URL of its REST API.')
  expect(made).not.toThrow('secret-token')
})

describeOnRedis('the store', start => {
  let redis: TestRedis
  let bridge: Awaited<ReturnType<typeof startBridge>>
  let proxy: CountingProxy
  beforeAll(async () => {
    redis = await start()
    bridge = await startBridge({ redisUrl: redis.url, token: 't', port: 0, deadlineMs: PATIENT_MS })
    proxy = await startCountingProxy(bridge.url)
  })
  afterAll(async () => {
    await proxy?.close()
    await bridge?.close()
    await redis?.close()
  })
  const store = (environment?: string) =>
    upstashStore({ url: proxy.url, token: 't', deadlineMs: 5000, keyLocking: true, environment })

  it('runs plain commands together with decisions in one HTTP request, in its environment', async () => {
    await redis.connection.send(['SET', 'sluice:test:{a}', 'text'])
    const calls = [
      { command: 'GET', key: 'sluice:{a}' },
      SCRIPT,
      { command: 'GET', key: 'sluice:{none}' },
    ] as const
    await store('test').run(calls)
    proxy.count()
    expect(await store('test').run(calls)).toEqual(['text', [17], null])
    expect(proxy.count()).toBe(1)
  })

  it('sends only the decision again if Redis has lost the script', async () => {
    await redis.connection.send(['SCRIPT', 'FLUSH'])
    const requests: string[] = []
    proxy.watch = ({ request }) => requests.push(request)
    expect(await store().run([{ command: 'GET', key: 'sluice:{none}' }, SCRIPT])).toEqual([null, [17]])
    expect(requests.map(text => /^\[+"(\w+)/.exec(text)?.[1])).toEqual(['GET', 'EVAL'])
  })

  it('sends a lost script only once, whatever the number of its calls', async () => {
    const requests: string[] = []
    proxy.watch = ({ request }) => requests.push(request)
    const replies = [...new Array(49).fill([17]), ['y']]
    const other = { ...SCRIPT, script: createScript("return {'y'}") }
    const calls = [...new Array(49).fill(SCRIPT), other]
    await redis.connection.send(['SCRIPT', 'FLUSH'])
    expect(await store().run(calls)).toEqual(replies)
    const names = (JSON.parse(requests[1]!) as string[][]).map(([name]) => name)
    expect(names).toEqual(['EVAL', ...new Array(48).fill('EVALSHA'), 'EVAL'])
    // Each node of a cluster has its own scripts.
    await redis.connection.send(['SCRIPT', 'FLUSH'])
    const options = { url: proxy.url, token: 't', deadlineMs: 5000, keyLocking: true, cluster: true }
    expect(await upstashStore(options).run(calls)).toEqual(replies)
    expect(new Set((JSON.parse(requests[3]!) as string[][]).map(([name]) => name))).toEqual(new Set(['EVAL']))
    proxy.watch = undefined
  })
})

it('a call that the platform does not allow was not sent, and is no failure of the store', async () => {
  const fetch = vi
    .spyOn(globalThis, 'fetch')
    .mockRejectedValue(new Error('Too many subrequests by single Worker invocation.'))
  const store = upstashStore({ url: 'http://127.0.0.1:9', token: 't', deadlineMs: 5000, keyLocking: true })
  await expect(store.run([SCRIPT])).rejects.toMatchObject({
    code: 'ERR_STORE_CALLS_EXHAUSTED',
    fate: 'not-sent',
  })
  fetch.mockRestore()
})

describe('an error of Upstash', () => {
  it.each([
    'ERR max daily request limit exceeded. Limit: 10000, Usage: 10000. See https://upstash.com/docs for details',
    'ERR max requests limit exceeded. Limit: 500000, Usage: 500000.',
    'Too Many Requests',
  ])('about a used-up or throttled plan is distinguished from an outage: %s', async error => {
    const proxy = await startCountingProxy('http://127.0.0.1:9')
    proxy.fault = (_, response) => void response.writeHead(429).end(JSON.stringify({ error }))
    const store = upstashStore({ url: proxy.url, token: 't', deadlineMs: 5000, keyLocking: true })
    await expect(store.run([SCRIPT])).rejects.toMatchObject({ code: 'ERR_STORE_QUOTA' })
    await proxy.close()
  })

  it('about a request that is too large does not count as a used-up plan', async () => {
    const proxy = await startCountingProxy('http://127.0.0.1:9')
    const error = 'ERR max request size exceeded. Limit: 10485760 bytes'
    proxy.fault = (_, response) => void response.writeHead(400).end(JSON.stringify({ error }))
    const store = upstashStore({ url: proxy.url, token: 't', deadlineMs: 5000, keyLocking: true })
    await expect(store.run([SCRIPT])).rejects.toMatchObject({ code: 'ERR_STORE_REFUSED' })
    await proxy.close()
  })
})

describe('the error of a store that does not decide names the cause', () => {
  const failureOf = (url: string) =>
    upstashStore({ url, token: 't', deadlineMs: PATIENT_MS, keyLocking: true })
      .run([SCRIPT])
      .catch(error => `${error.code}: ${error.message}`)

  it.each([
    ['ECONNREFUSED', 'http://127.0.0.1:1'],
    ['ENOTFOUND', 'http://store.invalid'],
  ])('%s', async (code, url) => {
    const cause = Object.assign(new Error(`${code} ${url}`), { code })
    const fetch = vi
      .spyOn(globalThis, 'fetch')
      .mockRejectedValue(Object.assign(new TypeError('fetch failed'), { cause }))
    expect(await failureOf(url)).toBe(`ERR_STORE_UNREACHABLE: The store could not be reached (${code}).`)
    fetch.mockRestore()
  })

  it('a failure without a code', async () => {
    const fetch = vi.spyOn(globalThis, 'fetch').mockRejectedValue(new Error('Network connection lost.'))
    expect(await failureOf('http://127.0.0.1:1')).toBe(
      'ERR_STORE_UNREACHABLE: The store could not be reached.',
    )
    fetch.mockRestore()
  })

  it.each([
    [
      401,
      'WRONGPASS invalid or missing auth token',
      'REFUSED: The store answered WRONGPASS. Check UPSTASH_REDIS_REST_TOKEN.',
    ],
    [400, 'READONLY You cannot write against a read only replica.', 'REFUSED: The store answered READONLY.'],
    [503, 'ERR Redis cannot be reached', 'UNREACHABLE: The bridge cannot reach its Redis.'],
  ])('%i %s', async (status, error, expected) => {
    const proxy = await startCountingProxy('http://127.0.0.1:9')
    proxy.fault = (_, response) => void response.writeHead(status).end(JSON.stringify({ error }))
    expect(await failureOf(proxy.url)).toBe(`ERR_STORE_${expected}`)
    await proxy.close()
  })
})
