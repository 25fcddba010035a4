/** The time of the machine jumps, because it was set by hand or by NTP. Durations are measured by the monotonic clock, so nothing changes. */
import { describe, expect, it, vi } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import type { Parts } from '../../src/set-ups/http/parts.ts'
import { createLimiter } from '../../src/set-ups/limits/create-limiter.ts'
import type { EndedRequest } from '../../src/shedding/adaptive-limit.ts'
import { TOKEN, useGateway } from '../support/gateway.ts'
import { hasRedisServer } from '../support/servers.ts'

const HOUR_MS = 3_600_000
const AT_ONCE: RuleInput = { name: 'at-once', by: 'address', algorithm: 'concurrency', limit: 1 }
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
    const app = gateway.app(
      { rules: [AT_ONCE], credentials: { accept: ['anonymous'] } },
      { clock, timer: () => () => {} },
    )
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
      { rules, credentials: { accept: ['anonymous'] } },
      { clock: { ...clock, now }, timer: () => () => {}, parts },
    )
    await (await app('/')).text()
    expect(measured).toEqual([{ hasFailed: false, latencyMs: 0, inFlight: 1 }])
    expect(signalTime).toBe(clock.elapsed())
  })
})
