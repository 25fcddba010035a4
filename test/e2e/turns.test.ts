/**
 * Requests that wait for their turn at the store, in workerd: with the compatibility date of wrangler.toml, and with that of an older
 * project that uses a guard. With the older date, workerd ends a request that waits for a promise of another request.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { type CountingProxy, startCountingProxy } from '../support/counting-proxy.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'
import { startTestWorker, type TestWorker } from '../support/workerd.ts'

const TOKEN = 'a token for tests'
const AT_ONCE = 60

describe.each([
  ['of wrangler.toml', undefined],
  ['2024-09-01', '2024-09-01'],
])('with the compatibility date %s', (_, date) => {
  let redis: TestRedis
  let bridge: Bridge
  let store: CountingProxy
  let worker: TestWorker
  beforeAll(async () => {
    redis = await startRedis()
    bridge = await startBridge({ redisUrl: redis.url, token: TOKEN, port: 0, deadlineMs: PATIENT_MS })
    store = await startCountingProxy(bridge.url)
    const bindings = { UPSTASH_REDIS_REST_URL: store.url, UPSTASH_REDIS_REST_TOKEN: TOKEN }
    worker = await startTestWorker('crowded-worker.ts', bindings, date)
  })
  afterAll(async () => {
    for (const part of [worker, store, bridge, redis]) await part?.close()
  })

  it('the store decides all concurrent requests, many of them in one HTTP request', async () => {
    expect((await fetch(worker.url)).status).toBe(200)
    store.count()
    // The reply to the first HTTP request is delayed until the other requests wait.
    let begin = () => {}
    const all = new Promise<void>(resolve => {
      begin = resolve
    })
    store.fault = (_request, _response, passOn) => void all.then(() => passOn())
    const replies = Array.from({ length: AT_ONCE }, () => fetch(worker.url))
    await expect.poll(() => store.count(), { timeout: PATIENT_MS }).toBe(1)
    begin()
    store.fault = undefined
    const seen = await Promise.all(
      replies.map(async reply => [(await reply).status, (await reply).headers.get('sluice-degraded')]),
    )
    expect(seen).toEqual(Array(AT_ONCE).fill([200, null]))
    expect(store.count()).toBeLessThan(AT_ONCE)
  })
})
