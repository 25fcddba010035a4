/** The bridge compares its REST token in constant time. This is the only secret that it compares. */

import { timingSafeEqual } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, expect, it, vi } from 'vitest'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { RedisServer } from '../../src/node/rest-bridge/redis-server.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'

const compare = vi.fn(timingSafeEqual)
beforeEach(() => void compare.mockClear())

const TOKEN = 'a token for tests'

let redis: TestRedis
let bridge: Bridge
/** The clock of /health (ms). */
let now = 0
beforeAll(async () => {
  redis = await startRedis()
  bridge = await startBridge({
    redisUrl: redis.url,
    token: TOKEN,
    port: 0,
    isEqual: compare,
    deadlineMs: PATIENT_MS,
    now: () => now,
  })
})
afterAll(async () => {
  await bridge?.close()
  await redis?.close()
})

it.each([
  ['that is correct', TOKEN, 200],
  ['that differs at its end', `${TOKEN.slice(0, -1)}S`, 401],
  ['that differs at its beginning', `A${TOKEN.slice(1)}`, 401],
  ['that is shorter', TOKEN.slice(0, -1), 401],
  ['that is longer', `${TOKEN}x`, 401],
  ['of one character', 'x', 401],
  ['of 10 kB', 'x'.repeat(10_000), 401],
  ['of non-ASCII bytes', '\u00ff'.repeat(32), 401],
  ['that is sent twice', `${TOKEN}, Bearer ${TOKEN}`, 401],
])(
  'a token %s is compared in constant time, as many bytes as the valid one has',
  async (_, token, status) => {
    const init = { method: 'POST', body: '["PING"]' }
    const inHeader = await fetch(bridge.url, { ...init, headers: { authorization: `Bearer ${token}` } })
    const inQuery = await fetch(`${bridge.url}/ping?_token=${encodeURIComponent(token)}`)
    expect([inHeader.status, inQuery.status]).toEqual([status, status])
    const lengths = compare.mock.calls.map(([a, b]) => [a.byteLength, b.byteLength])
    expect(lengths).toEqual([
      [TOKEN.length, TOKEN.length],
      [TOKEN.length, TOKEN.length],
    ])
  },
)

it.each(['%00', '%00%00', encodeURIComponent('é')])('the token followed by %s is not valid', async end => {
  const url = `${bridge.url}/ping?_token=${encodeURIComponent(TOKEN)}`
  expect((await fetch(url)).status).toBe(200)
  expect((await fetch(url + end)).status).toBe(401)
})

it.each([
  ['POST', '/health'],
  ['PUT', '/health'],
  ['GET', '/health/'],
  ['GET', '/health/x'],
  ['GET', '/Health'],
  ['GET', '//health'],
  ['GET', '/%68ealth/../get/x'],
])('a token is optional only for GET and HEAD of /health, and required for %s %s', async (method, path) => {
  expect((await fetch(bridge.url + path, { method })).status).toBe(401)
})

it('the bridge checks Redis at most once per second, however many health requests arrive', async () => {
  const outage = vi.spyOn(RedisServer.prototype, 'outage')
  const checksUntil = async (at: number) => {
    now = at
    const replies = await Promise.all(Array.from({ length: 50 }, () => fetch(`${bridge.url}/health`)))
    expect(new Set(replies.map(({ status }) => status))).toEqual(new Set([200]))
    return outage.mock.calls.length
  }
  expect([await checksUntil(60_000), await checksUntil(61_000), await checksUntil(61_001)]).toEqual([1, 1, 2])
  expect(compare).not.toHaveBeenCalled()
})

it('white space around the token of the bridge is not part of it', async () => {
  const own = await startBridge({ redisUrl: redis.url, token: `\t${TOKEN} \n`, port: 0 })
  const headers = { authorization: `Bearer ${TOKEN}` }
  expect((await fetch(own.url, { method: 'POST', headers, body: '["PING"]' })).status).toBe(200)
  await own.close()
  const blank = startBridge({ redisUrl: redis.url, token: ' \n', port: 0 })
  await expect(blank).rejects.toThrow('The bridge needs a token.')
})
