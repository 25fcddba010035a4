/** In a flood, calls wait for the store in lines, one for each caller. A client gets no further line by making up keys or values of headers. */
import { afterAll, beforeAll, expect, it } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { connectRedisStore, type RedisStore } from '../../src/node/redis-store/redis-store.ts'
import { createApp } from '../../src/set-ups/gateway/app.ts'
import { METRICS_PARTS } from '../../src/set-ups/gateway/metrics.ts'
import { ALL_PARTS } from '../../src/set-ups/http/all-parts.ts'
import type { Store } from '../../src/store/store.ts'
import { useGateway } from '../support/gateway.ts'
import { PATIENT_MS } from '../support/patience.ts'

const gateway = useGateway()
let redis: RedisStore
beforeAll(async () => {
  redis = await connectRedisStore({ url: gateway.redis.url, deadlineMs: PATIENT_MS })
})
afterAll(() => redis?.close())

const MADE_UP = 800
const PLACES = 2
/** A batch has 50 calls. */
const BATCHES = MADE_UP / 50

const floods = {
  'keys of a consumer': () => ({ authorization: `Bearer ${mintApiKey('acme')}` }),
  'keys of many consumers': (i: number) => ({ authorization: `Bearer ${mintApiKey(`made-up-${i}`)}` }),
  'opaque keys': (i: number) => ({ 'x-api-key': `a-made-up-key-${i}` }),
  'values of a header': (i: number) => ({ 'x-user': `made-up-${i}` }),
}

it.each(Object.entries(floods))(
  'made-up %s of one address do not keep a caller with a valid key waiting',
  async (_, headersOf) => {
    let isHeld = false
    const held: (() => void)[] = []
    /** How many trips had left when a call left that names the innocent caller. */
    const leftIn: number[] = []
    let trips = 0
    const store: Store = {
      ...redis.store,
      async run(calls) {
        trips += 1
        if (calls.some(call => 'keys' in call && call.keys.some(key => key.includes('{c:innocent}'))))
          leftIn.push(trips)
        if (isHeld) await new Promise<void>(resolve => held.push(resolve))
        return await redis.store.run(calls)
      },
    }
    const config = checkedConfig({
      ...{ origin: gateway.origin.url, log: { perSecond: 0 }, stats: { keep: false } },
      store: { maxInFlight: PLACES, deadline: '20s', breaker: false },
      credentials: { opaqueKeys: {}, accept: ['api-key', 'opaque-key', 'anonymous'] },
      rules: [
        { name: 'own', by: 'consumer', algorithm: 'fixed-window', limit: 1000, period: '300d' },
        { name: 'user', by: 'header:x-user', algorithm: 'fixed-window', limit: 1000, period: '300d' },
      ],
    })
    const app = createApp(config, store, { ...ALL_PARTS, ...METRICS_PARTS })
    const ask = async (address: string, headers: Record<string, string>) =>
      await app.request('http://gateway.test/', { headers: { 'cf-connecting-ip': address, ...headers } })
    const innocent = { authorization: `Bearer ${await gateway.key('innocent')}` }
    expect((await ask('192.0.2.1', innocent)).status).toBe(200)

    isHeld = true
    const flood = Array.from({ length: MADE_UP }, (_, i) => ask('198.51.100.7', headersOf(i)))
    await expect.poll(() => held.length, { timeout: PATIENT_MS }).toBe(PLACES)
    // Until each of them waits.
    await new Promise(resolve => setImmediate(resolve))
    leftIn.length = 0
    trips = 0
    const asked = Array.from({ length: 3 }, () => ask('192.0.2.1', innocent))
    let isOver = false
    const all = Promise.all([...asked, ...flood]).finally(() => {
      isOver = true
    })
    while (!isOver) {
      held.shift()?.()
      await new Promise(resolve => setTimeout(resolve, 1))
    }
    const replies = (await all).slice(0, 3)
    expect(replies.map(({ status, headers }) => [status, headers.get('sluice-degraded')])).toEqual(
      replies.map(() => [200, null]),
    )
    expect(trips).toBeGreaterThan(BATCHES / 2)
    expect(Math.max(...leftIn)).toBeLessThan(BATCHES / 4)
  },
)
