/** The gateway and limits by name on the store over a direct connection. `TEST_STORE=direct` runs the suites of the gateway on it. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import { connectRedisStore, type RedisStore } from '../../src/node/redis-store/redis-store.ts'
import { adminStoreOn } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { peekLimit } from '../../src/ops/limits.ts'
import { ON_CLUSTER } from '../../src/ops/on-cluster.ts'
import { gatewayRuleSet, limitRuleSet } from '../../src/script/compiled.ts'
import { compileScripts } from '../../src/script/scripts.ts'
import { createApp } from '../../src/set-ups/gateway/app.ts'
import { METRICS_PARTS } from '../../src/set-ups/gateway/metrics.ts'
import { ALL_PARTS } from '../../src/set-ups/http/all-parts.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { startOrigin, type TestOrigin } from '../support/origin.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { describeOnRedis, type TestRedis } from '../support/redis.ts'

const LONG = { period: '300d' } as const

describeOnRedis('on a store over a direct connection', start => {
  let redis: TestRedis
  let origin: TestOrigin
  let opened: RedisStore
  beforeAll(async () => {
    redis = await start()
    origin = await startOrigin()
    opened = await connectRedisStore({ url: redis.url, deadlineMs: PATIENT_MS })
  })
  afterAll(async () => {
    await opened?.close()
    await origin?.close()
    await redis?.close()
  })
  const admin = () =>
    adminStoreOn(opened.admin, {}, { ofGateway: gatewayRuleSet, ofLimit: limitRuleSet }, ON_CLUSTER)

  it('the gateway limits a consumer, whose key was created over the same connection', async () => {
    const config = checkedConfig({
      origin: origin.url,
      log: { perSecond: 0 },
      store: { deadline: '20s' },
      plans: ['free'],
      rules: [
        { name: 'window', by: 'consumer', algorithm: 'fixed-window', limit: 2, ...LONG },
        { name: 'held', by: 'consumer', algorithm: 'concurrency', limit: 3 },
      ],
    })
    const app = createApp(
      config,
      opened.store,
      { ...ALL_PARTS, ...METRICS_PARTS, scriptsOf: compileScripts },
      { reporting: { timer: () => () => {} } },
    )
    const { key } = await createKey(admin(), { consumer: 'acme', plan: 'free' })
    const statusWith = async (bearer: string) =>
      (await app.request('http://gateway.test/', { headers: { authorization: `Bearer ${bearer}` } })).status
    expect([await statusWith(key), await statusWith(key), await statusWith(key)]).toEqual([200, 200, 429])
    expect(await statusWith(`${key.slice(0, -1)}_`)).toBe(401)
  })

  describe('limits by name', () => {
    it('decide, refund and peek', async () => {
      const config = checkedConfig({
        store: { deadline: '20s' },
        limits: {
          calls: [
            { name: 'window', by: ['account'], algorithm: 'fixed-window', limit: 3, ...LONG },
            { name: 'bucket', by: ['account'], algorithm: 'token-bucket', limit: 2, ...LONG },
          ],
        },
        rules: [],
      })
      const limiter = createLimiterOnStore(config, opened.store)
      const account = { account: 'é 42' }
      const decisions = []
      for (let n = 0; n < 3; n++) decisions.push(await limiter.limit('calls', account))
      expect(decisions.map(({ allowed, degraded }) => [allowed, degraded])).toEqual([
        ...[
          [true, undefined],
          [true, undefined],
        ],
        [false, undefined],
      ])
      const seen = await peekLimit(admin(), config, 'calls', account)
      expect(JSON.stringify(seen)).toContain('window')
      await limiter.close?.()
    })
  })
})
