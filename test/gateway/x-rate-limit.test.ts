/** X-RateLimit-Limit, -Remaining and -Reset: one limit of the reply, in the unit of the config. */
import { describe, expect, it } from 'vitest'
import type { ConfigInput, HeadersInput, RuleInput } from '../../src/config/check/schema.ts'
import { useGateway } from '../support/gateway.ts'

const gateway = useGateway()

const ADDRESS = '192.0.2.1'
const HOUR: RuleInput = { name: 'hour', by: 'address', algorithm: 'fixed-window', limit: 3, period: '1h' }
const DAY: RuleInput = { ...HOUR, name: 'day', limit: 100, period: '1d' }

const app = (
  xRateLimit: HeadersInput['xRateLimit'],
  rules: RuleInput[] = [DAY, HOUR],
  config: Partial<ConfigInput> = {},
  clock = Date.now,
) =>
  gateway.app(
    { rules, headers: { xRateLimit }, credentials: { accept: ['anonymous'] }, ...config },
    { clock: { now: clock } },
  )

const shown = ({ headers }: Response) =>
  ['limit', 'remaining', 'reset'].map(name => {
    const value = headers.get(`x-ratelimit-${name}`)
    return value === null ? null : Number(value)
  })

/** The `t` of a rule in the header RateLimit. */
const secondsOf = ({ headers }: Response, rule: string) =>
  Number(new RegExp(`"${rule}";r=\\d+;t=(\\d+)`).exec(headers.get('ratelimit') ?? '')?.[1])

describe('X-RateLimit', () => {
  it('is not sent by default', async () => {
    const response = await app(undefined)('/', { address: ADDRESS })
    expect(shown(response)).toEqual([null, null, null])
    expect(response.headers.get('access-control-expose-headers') ?? '').not.toContain('X-RateLimit')
  })

  it('shows the limit with the least left, and its reset in seconds from now', async () => {
    const ask = app('delta-seconds')
    const response = await ask('/', { address: ADDRESS })
    expect(shown(response)).toEqual([3, 2, secondsOf(response, 'hour')])
  })

  it('shows the limit that refuses, with the time of Retry-After', async () => {
    const once: RuleInput = { ...HOUR, name: 'once', limit: 1 }
    const ask = app('delta-seconds', [{ ...HOUR, limit: 1, period: '1m' }, once, DAY])
    await ask('/', { address: ADDRESS })
    const refused = await ask('/', { address: ADDRESS })
    expect(refused.status).toBe(429)
    const seconds = Number(refused.headers.get('retry-after'))
    expect([shown(refused), secondsOf(refused, 'once')]).toEqual([[1, 0, seconds], seconds])
  })

  it('can show the reset as a time, which is never too early', async () => {
    const now = 1_800_000_000_999
    const response = await app('unix-seconds', undefined, {}, () => now)('/', { address: ADDRESS })
    const [, , reset] = shown(response)
    const seconds = secondsOf(response, 'hour')
    expect(reset! - Math.floor(now / 1e3)).toBeGreaterThanOrEqual(seconds)
    expect(reset! - Math.floor(now / 1e3)).toBeLessThanOrEqual(seconds + 1)
  })

  it('counts down from the burst', async () => {
    const burst: RuleInput = {
      name: 'b',
      by: 'address',
      algorithm: 'token-bucket',
      limit: 60,
      period: '1m',
      burst: 5,
    }
    expect(shown(await app('delta-seconds', [burst])('/', { address: ADDRESS }))).toEqual([5, 4, 1])
  })

  it('shows the period of the limit for a request that no limit can admit', async () => {
    const dear: RuleInput = { ...HOUR, cost: 1, name: 'dear' }
    const routes = [{ name: 'dear', match: { path: '/dear' }, cost: 3 }]
    const ask = app('delta-seconds', [dear], { routes, hooks: { cost: () => 4 } })
    const response = await ask('/dear', { address: ADDRESS })
    expect([response.status, response.headers.get('retry-after'), shown(response)]).toEqual([
      429,
      null,
      [3, 3, 3600],
    ])
  })

  it('leaves out shadow rules', async () => {
    const rules: RuleInput[] = [{ ...HOUR, limit: 1, mode: 'shadow', name: 'shadow' }, DAY]
    const response = await app('delta-seconds', rules)('/', { address: ADDRESS })
    expect(shown(response).slice(0, 2)).toEqual([100, 99])
  })

  it("is not sent if no limit applies, and replaces the origin's headers", async () => {
    const ask = app('delta-seconds', [{ ...HOUR, match: { path: '/x-*' } }])
    expect(shown(await ask('/', { address: ADDRESS }))).toEqual([null, null, null])
    expect(shown(await ask('/x-limited', { address: ADDRESS })).slice(0, 2)).toEqual([3, 2])
  })

  it('can be read by scripts of web pages, like the other headers', async () => {
    const cors = { origins: '*' as const }
    const ask = app('delta-seconds', undefined, { cors })
    const { headers } = await ask('/', { address: ADDRESS, headers: { origin: 'https://app.example.com' } })
    expect(headers.get('access-control-expose-headers')).toBe(
      'RateLimit, RateLimit-Policy, Retry-After, Sluice-Degraded, X-Request-Id, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset',
    )
  })
})
