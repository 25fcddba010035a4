/** The bridge's token is its only comparison of secrets: keys are looked up by digest, JWTs verified by the platform. */

import { timingSafeEqual } from 'node:crypto'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'

const compare = vi.fn(timingSafeEqual)

const TOKEN = 'a token for tests'

let redis: TestRedis
let bridge: Bridge
beforeAll(async () => {
  redis = await startRedis('embedded')
  bridge = await startBridge({
    redisUrl: redis.url,
    token: TOKEN,
    port: 0,
    isEqualDigest: compare,
    deadlineMs: PATIENT_MS,
  })
})
afterAll(async () => {
  await bridge?.close()
  await redis?.close()
})

it.each([
  ['that is right', TOKEN, 200],
  ['that differs at its end', `${TOKEN.slice(0, -1)}S`, 401],
  ['that differs at its beginning', `A${TOKEN.slice(1)}`, 401],
  ['that is shorter', TOKEN.slice(0, -1), 401],
  ['that is longer', `${TOKEN}x`, 401],
  ['of one character', 'x', 401],
  ['of 10 kB', 'x'.repeat(10_000), 401],
  ['of bytes', '\u00ff'.repeat(32), 401],
  ['twice', `${TOKEN}, Bearer ${TOKEN}`, 401],
])('a token %s is compared in constant time, as digests of one length', async (_, token, status) => {
  compare.mockClear()
  const init = { method: 'POST', body: '["PING"]' }
  const inHeader = await fetch(bridge.url, { ...init, headers: { authorization: `Bearer ${token}` } })
  const inQuery = await fetch(`${bridge.url}/ping?_token=${encodeURIComponent(token)}`)
  expect([inHeader.status, inQuery.status]).toEqual([status, status])
  const lengths = compare.mock.calls.map(([a, b]) => [a.byteLength, b.byteLength])
  expect(lengths).toEqual([
    [32, 32],
    [32, 32],
  ])
})
