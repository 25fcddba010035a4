/** The time of the machine jumps, because it was set by hand or by NTP. Durations are measured by the monotonic clock, so nothing changes. */
import { describe, expect, it, vi } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import type { Parts } from '../../src/set-ups/http/parts.ts'
import { createLimiter } from '../../src/set-ups/limits/create-limiter.ts'
import type { EndedRequest } from '../../src/shedding/adaptive-limit.ts'
import { type App, TOKEN, useGateway } from '../support/gateway.ts'
import { PATIENT } from '../support/patience.ts'
import { hasRedisServer } from '../support/servers.ts'

const HOUR_MS = 3_600_000
const AT_ONCE: RuleInput = { name: 'at-once', by: 'address', algorithm: 'concurrency', limit: 1 }
/** Each request reserves one of ten. A reply that is not a refusal gives it back. */
const REFUSALS: RuleInput = {
  ...{ name: 'refusals', by: 'address', algorithm: 'fixed-window', limit: 10, period: '1d' },
  ...{ countIf: { status: [401, 403] }, onStoreFailure: 'open' },
}
const ANONYMOUS = { credentials: { accept: ['anonymous' as const] } }
const address = '192.0.2.1'

// The time of an embedded Redis would jump too.
describe.skipIf(!hasRedisServer)("a jump of the machine's time", () => {
  const gateway = useGateway('redis-server')

  function jumpingClock() {
    let jumped = 0
    return {
      clock: { now: () => 1_700_000_000_000 + jumped, elapsed: () => 1000 },
      jump: (ms: number) => {
        jumped += ms
      },
    }
  }

  it.each([HOUR_MS, -HOUR_MS])('of %i ms frees no unit of a request in flight', async ms => {
    const { clock, jump } = jumpingClock()
    const app = gateway.app({ rules: [AT_ONCE], ...ANONYMOUS }, { clock, timer: () => () => {} })
    const held = await app('/', { address })
    expect(held.status).toBe(200)
    jump(ms)
    expect((await app('/', { address })).status).toBe(429)
    await held.text()
  })

  it.each([HOUR_MS, -HOUR_MS])('of %i ms frees no unit of a limit by name', async ms => {
    const env = { UPSTASH_REDIS_REST_URL: gateway.store.url, UPSTASH_REDIS_REST_TOKEN: TOKEN }
    const rule = { name: 'at-once', by: ['user'], algorithm: 'concurrency' as const, limit: 1 }
    const limiter = createLimiter({ store: { deadline: '20s' }, limits: { exports: [rule] } }, { env })
    const held = await limiter.limit('exports', { user: '42' })
    expect(held.allowed).toBe(true)
    const realNow = Date.now
    vi.spyOn(Date, 'now').mockImplementation(() => realNow() + ms)
    expect((await limiter.limit('exports', { user: '42' })).allowed).toBe(false)
    held.release()
  })

  describe.each([HOUR_MS, -HOUR_MS])('of %i ms', ms => {
    /** Waits until no earlier request has units reserved. The trips of these requests bring the settlements to the store. */
    const expectSettled = async (app: App) =>
      await vi.waitFor(async () => {
        const reply = await app('/', { address })
        await reply.text()
        expect(reply.headers.get('RateLimit')).toContain('"refusals";r=9;')
      }, PATIENT)

    it('loses no settlement of a request that is under way', async () => {
      const { clock, jump } = jumpingClock()
      const app = gateway.app({ rules: [REFUSALS], ...ANONYMOUS }, { clock, timer: () => () => {} })
      const reply = await app('/', { address })
      jump(ms)
      await reply.text()
      await expectSettled(app)
    })

    it('leaves nothing reserved by a decision whose reply was lost', async () => {
      const { clock, jump } = jumpingClock()
      const app = gateway.app({ rules: [REFUSALS], ...ANONYMOUS }, { clock, timer: () => () => {} })
      gateway.store.fault = (_, response, passOn) => passOn(() => response.destroy())
      const reply = await app('/', { address })
      expect(reply.status).toBe(200)
      gateway.store.fault = undefined
      jump(ms)
      await reply.text()
      await expectSettled(app)
    })
  })

  it.each([HOUR_MS, -HOUR_MS])('of %i ms loses no settlement of a limit by name', async ms => {
    const env = { UPSTASH_REDIS_REST_URL: gateway.store.url, UPSTASH_REDIS_REST_TOKEN: TOKEN }
    const rule = { name: 'day', unit: 'tokens', by: ['user'], limit: 100 }
    const limits = { llm: [{ ...rule, algorithm: 'fixed-window' as const, period: '1d' as const }] }
    const units = { tokens: { estimate: 20 } }
    const limiter = createLimiter({ store: { deadline: '20s' }, units, limits }, { env })
    const call = await limiter.reserve('llm', { user: '42' })
    gateway.store.fault = (_, response) => response.destroy()
    expect(await call.settle({ tokens: 7 })).toMatchObject({ degraded: 'store-unreachable' })
    const realNow = Date.now
    vi.spyOn(Date, 'now').mockImplementation(() => realNow() + ms)
    gateway.store.fault = undefined
    await vi.waitFor(async () => {
      const { rules } = await limiter.peek('llm', { user: '42' })
      expect(rules).toMatchObject([{ remaining: 93 }])
    }, PATIENT)
  })

  it('does not change how long the origin took, nor when an isolate reports its signals', async () => {
    const { clock, jump } = jumpingClock()
    const measured: EndedRequest[] = []
    let signalTime = Number.NaN
    const parts: Partial<Parts> = {
      createAdaptiveLimit: (_, { now }) => {
        signalTime = now()
        return {
          limit: () => 20,
          observe: each => void measured.push(each),
          observeRefusal: () => {},
          board: { load: () => undefined },
        }
      },
    }
    const rules: RuleInput[] = [
      { name: 'origin', by: 'global', algorithm: 'concurrency', limit: 100, adaptive: {} },
    ]
    // Each reading of the time is an hour later.
    const now = () => {
      jump(HOUR_MS)
      return clock.now()
    }
    const app = gateway.app(
      { rules, ...ANONYMOUS },
      { clock: { ...clock, now }, timer: () => () => {}, parts },
    )
    await (await app('/')).text()
    expect(measured).toEqual([{ hasFailed: false, latencyMs: 0, inFlight: 1 }])
    expect(signalTime).toBe(clock.elapsed())
  })
})
