/** Overrides of limits by name (`overridable`): operators give single identities other numbers, and each call applies them in its one trip. */
import { beforeEach, expect, it } from 'vitest'
import { administer } from '../../src/ops/admin/index.ts'
import { withInput } from '../../src/ops/overrides.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import type { Limiter, RefundableDecision } from '../../src/set-ups/limits/limiter-shape.ts'
import { useAdmin } from '../support/admin.ts'
import { configOf } from '../support/engines.ts'
import { describeOnRedis } from '../support/redis.ts'

const by = ['tenant']
const INPUT = {
  rules: [],
  units: { tokens: { estimate: 10 } },
  limits: {
    tenant: [{ name: 'quota', by, algorithm: 'gcra', limit: 10, period: '30d', overridable: true }],
    window: [
      { name: 'all', algorithm: 'fixed-window', limit: 1000, period: '300d', overridable: true },
      { name: 'day', by, algorithm: 'fixed-window', limit: 10, period: '300d', overridable: true },
      { name: 'own', by, algorithm: 'fixed-window', limit: 500, period: '300d' },
    ],
    queue: [
      { name: 'line', by, algorithm: 'leaky-bucket', limit: 10, period: '1h', queue: 5, overridable: true },
    ],
    llm: [
      { name: 'budget', by, unit: 'tokens', algorithm: 'gcra', limit: 100, period: '30d', overridable: true },
    ],
    call: [{ name: 'quota', by, algorithm: 'gcra', numbers: 'call', max: { limit: 10, period: '1s' } }],
  },
} as const
const input = INPUT as unknown as Parameters<typeof withInput>[1]
const config = withInput(configOf(input as never), input)
const ACME = { tenant: 'acme' }

describeOnRedis('an override of a limit by name', start => {
  const used = useAdmin(start)
  let limiter: Limiter
  let calls: { keys: readonly string[] }[]
  const admin = () => administer({ store: used.store, config, by: 'ops' }).limits
  beforeEach(() => {
    calls = []
    const { decisions } = used.store
    const store: typeof decisions = {
      ...decisions,
      run: async (some, listener) => {
        calls.push(...(some as unknown as typeof calls))
        return await decisions.run(some, listener)
      },
    }
    limiter = createLimiterOnStore(config, store)
  })
  const left = async (limit = 'tenant', tenant = 'acme') =>
    (await limiter.peek(limit, { tenant })).rules.map(({ limit, remaining }) => [limit, remaining])
  const copyOf = (decision: RefundableDecision): RefundableDecision => JSON.parse(JSON.stringify(decision))

  it('applies to its identity alone, from the next call on, in the one trip of each call', async () => {
    await admin().setOverride('tenant', ACME, 'quota', { limit: 300 })
    calls = []
    const decision = await limiter.limit('tenant', ACME, { cost: 200 })
    expect(decision).toMatchObject({ allowed: true, rules: [{ limit: 300, remaining: 100 }] })
    expect(await left()).toEqual([[300, 100]])
    expect(await limiter.acquire('tenant', ACME, { cost: 100 })).toMatchObject({ allowed: true })
    expect(await limiter.limit('tenant', ACME)).toMatchObject({ allowed: false })
    expect(await limiter.refund(copyOf(decision), { cost: 50 })).toMatchObject({
      allowed: true,
      rules: [{ remaining: 50 }],
    })
    await limiter.reset('tenant', ACME)
    expect(await left()).toEqual([[300, 300]])
    expect(calls).toHaveLength(7)
    expect(await left('tenant', 'globex')).toEqual([[10, 10]])
    await admin().removeOverride('tenant', ACME, 'quota')
    expect(await left()).toEqual([[10, 10]])
  })

  it('keeps the counts of a window, and applies to each rule by the identity that it counts by', async () => {
    await limiter.limit('window', ACME, { cost: 5 })
    await admin().setOverride('window', ACME, 'day', { limit: 20 })
    await admin().setOverride('window', {}, 'all', { limit: 50 })
    expect(await left('window')).toEqual([
      [50, 45],
      [20, 15],
      [500, 495],
    ])
    expect(await left('window', 'globex')).toEqual([
      [50, 45],
      [10, 10],
      [500, 500],
    ])
  })

  it('can turn a rule off or make it a shadow, and ends by the clock of the store', async () => {
    const set = await admin().setOverride('tenant', ACME, 'quota', { mode: 'shadow' })
    // `limit` is a number, and not the name of the limit.
    expect(set).toEqual(expect.not.objectContaining({ limit: expect.anything() }))
    expect(await limiter.limit('tenant', ACME, { cost: 11 })).toMatchObject({
      allowed: true,
      rules: [{ mode: 'shadow', allowed: false }],
    })
    await admin().setOverride('tenant', ACME, 'quota', { mode: 'off' })
    expect(await limiter.limit('tenant', ACME, { cost: 11 })).toMatchObject({ allowed: true, rules: [] })
    const key = 'sluice:{l:tenant}:state:tenant=acme:overrides'
    const text = await used.text('GET', key)
    await used.send('SET', key, text.replace(/override=(\w+),,/, 'override=$1,1000000,'))
    expect(await limiter.limit('tenant', ACME, { cost: 11 })).toMatchObject({ allowed: false })
  })

  it('gives units of a rate back only to the record that has spent them', async () => {
    const before = await limiter.limit('tenant', ACME, { cost: 5 })
    await admin().setOverride('tenant', ACME, 'quota', { limit: 300 })
    const under = await limiter.limit('tenant', ACME, { cost: 200 })
    await limiter.refund(copyOf(before))
    expect(await left()).toEqual([[300, 100]])
    await admin().removeOverride('tenant', ACME, 'quota')
    await limiter.refund(copyOf(under))
    expect(await left()).toEqual([[10, 5]])
  })

  it('applies to what is reserved and settled, by any process', async () => {
    await admin().setOverride('llm', ACME, 'budget', { limit: 1000 })
    const call = await limiter.reserve('llm', ACME, { amounts: { tokens: 400 } })
    expect(call).toMatchObject({ allowed: true, rules: [{ limit: 1000, remaining: 600 }] })
    const settled = await limiter.settle(copyOf(call), { tokens: 100 })
    expect(settled).toMatchObject({ applied: true, rules: [{ remaining: 900 }] })
    const other = await limiter.reserve('llm', ACME, { amounts: { tokens: 400 } })
    await admin().setOverride('llm', ACME, 'budget', { limit: 2000 })
    // The record under the new numbers has not spent them.
    expect(await limiter.settle(copyOf(other), { tokens: 100 })).toMatchObject({ applied: true })
    expect(await left('llm')).toEqual([[2000, 2000]])
  })

  it('applies to a queue: its length, the longest wait and the places that are given up', async () => {
    await admin().setOverride('queue', ACME, 'line', { limit: 3600, queue: 100 })
    for (let i = 0; i < 20; i++)
      expect(await limiter.limit('queue', ACME)).toMatchObject({ allowed: true, delayMs: expect.any(Number) })
    expect((await limiter.peek('queue', ACME)).delayMs).toBeGreaterThan(15_000)
    // A turn comes in about 20 s, so a call that waits 1 s at most joins no queue.
    const late = await limiter.acquire('queue', ACME, { timeoutMs: 1000 })
    expect(late.allowed).toBe(false)
    const places = async () => (await limiter.peek('queue', ACME)).rules[0]!.remaining
    const before = await places()
    const abort = new AbortController()
    const waiting = limiter.acquire('queue', ACME, { signal: abort.signal })
    setTimeout(() => abort.abort(), 50)
    await expect(waiting).rejects.toThrow()
    await expect.poll(places).toBeGreaterThanOrEqual(before)
  })

  it('leaves limits as they were that have no such rule', async () => {
    await limiter.limit('call', ACME, { numbers: { quota: { limit: 5, period: '1s' } } })
    await limiter.limit('window', ACME)
    expect(calls.map(({ keys }) => keys)).toEqual([
      ['sluice:{l:call}:state:tenant=acme'],
      [
        'sluice:{l:window}:state:overrides',
        'sluice:{l:window}:state:tenant=acme:overrides',
        'sluice:{l:window}:state',
        'sluice:{l:window}:state:tenant=acme',
      ],
    ])
  })

  it('is listed until it is removed, and leaves nothing behind', async () => {
    await admin().setOverride('tenant', ACME, 'quota', { limit: 300, until: '1h' })
    await admin().setOverride('tenant', { tenant: 'a b,c=d' }, 'quota', { mode: 'off' })
    await admin().setOverride('window', {}, 'all', { limit: 50 })
    expect(await admin().overrides('tenant')).toMatchObject({
      limit: 'tenant',
      overrides: [
        { identity: { tenant: 'a b,c=d' }, rule: 'quota', mode: 'off', until: null, by: 'ops' },
        { identity: ACME, limit: 300, burst: 300, status: 'applies', until: expect.any(String) },
      ],
    })
    expect(await admin().overrides('window')).toMatchObject({ overrides: [{ identity: {}, limit: 50 }] })
    expect(await admin().removeOverride('tenant', ACME, 'quota')).toEqual({
      ...{ limit: 'tenant', identity: ACME, overrides: [] },
    })
    await admin().removeOverride('tenant', { tenant: 'a b,c=d' }, 'quota')
    expect((await admin().overrides('tenant')).overrides).toEqual([])
    expect(await used.text('KEYS', '*l:tenant}*')).toBe('')
  })

  it('leaves an entry in the audit trail', async () => {
    await admin().setOverride('tenant', ACME, 'quota', { limit: 300, by: 'ada' })
    const entries = await used.text('XRANGE', 'sluice:{audit}', '-', '+')
    expect(entries).toMatch(/ada.*overrides\.set.*tenant\/tenant=acme.*"override quota":\{"limit":300/)
  })

  it.each([
    ['call', ACME, 'quota', { limit: 3 }, "each call gives its numbers (numbers: 'call')"],
    ['window', ACME, 'own', { limit: 3 }, 'Write overridable: true in the config, and deploy it.'],
    ['tenant', ACME, 'quoat', { limit: 3 }, "Did you mean 'quota'?"],
    ['nothing', ACME, 'quota', { limit: 3 }, "The config has no limit 'nothing'."],
    ['tenant', {}, 'quota', { limit: 3 }, "The limit 'tenant' counts by tenant: tenant is missing"],
    ['window', ACME, 'all', { limit: 3 }, 'tenant is not a part of its identity'],
    ['tenant', ACME, 'quota', {}, 'No change is given.'],
    ['tenant', ACME, 'quota', { queue: 3 }, 'queue has no effect'],
    ['tenant', ACME, 'quota', { limit: 1e10 }, 'cannot have these numbers'],
    ['tenant', ACME, 'quota', { burst: 1e9 }, 'days to come back'],
  ])('of %s for %j, rule %s with %j is refused: %s', async (limit, identity, rule, settings, message) => {
    const set = admin().setOverride(limit, identity as never, rule, settings)
    await expect(set).rejects.toThrow(message)
    expect(await used.text('KEYS', '*overrid*')).toBe('')
  })
})
