/** The units that are left: they are peeked without spending, and reset. */
import { beforeAll, expect, it } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import type { Config } from '../../src/config/compile.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { rulesByMore } from '../../src/ops/caller-identity.ts'
import { blockConsumer, setPlan } from '../../src/ops/consumers.ts'
import { createKey } from '../../src/ops/keys.ts'
import {
  peekCaller,
  peekLimit,
  type RuleStanding,
  resetCaller,
  resetLimit,
  rulesByOtherIdentities,
} from '../../src/ops/limits.ts'
import { compileOverride, setOverride } from '../../src/ops/overrides.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { configOf } from '../support/engines.ts'
import { type App, useGateway } from '../support/gateway.ts'
import { describeOnRedis } from '../support/redis.ts'

const RULES: RuleInput[] = [
  {
    name: 'steady',
    by: 'consumer',
    algorithm: 'gcra',
    limit: 3,
    period: '30d',
    plans: { pro: { limit: 6 } },
  },
  { name: 'window', by: 'consumer', algorithm: 'fixed-window', limit: 4, period: '300d', cost: 2 },
  { name: 'log', by: 'consumer', algorithm: 'sliding-log', limit: 5, period: '30d' },
  { name: 'tried', by: 'consumer', algorithm: 'sliding-window', limit: 1, period: '30d', mode: 'shadow' },
  { name: 'address', by: 'address', algorithm: 'token-bucket', limit: 9, period: '30d' },
  { name: 'guesses', by: 'address', on: 'auth-failure', algorithm: 'fixed-window', limit: 2, period: '300d' },
  { name: 'route', by: ['consumer', 'route'], algorithm: 'gcra', limit: 9, period: '1s' },
  { name: 'key', by: 'credential', algorithm: 'gcra', limit: 9, period: '1s' },
]
const INPUT = {
  plans: ['free', 'pro'],
  rules: RULES,
  limits: {
    zendesk: [
      { name: 'second', algorithm: 'leaky-bucket' as const, limit: 1, period: '1d' as const, queue: 2 },
      { name: 'day', by: ['account'], algorithm: 'fixed-window' as const, limit: 2, period: '300d' as const },
    ],
  },
}

const BY_PARTS: RuleInput[] = (
  [
    ['tenant', ['consumer', 'header:x-tenant']],
    ['by-key', ['credential']],
    ['of-route', ['route', 'consumer']],
    ['at-address', ['consumer', 'address']],
    ['hosts', ['host', 'method']],
    ['countries', ['country']],
  ] as const
).map(
  ([name, by]) => ({ name, by: [...by], algorithm: 'fixed-window', limit: 9, period: '300d' }) as RuleInput,
)

describeOnRedis('rules by several parts', (_, kind) => {
  const gateway = useGateway(kind)
  const INPUT = { rules: BY_PARTS, routes: [{ name: 'reports', match: { path: '/reports' } }] }

  it('are shown and reset under the keys that requests count', async () => {
    const config = configOf(INPUT)
    const app = gateway.app({ ...INPUT, refusals: { rememberFor: 0 } })
    const { key, id } = await createKey(gateway.admin, { consumer: 'acme' })
    const send = () => app('/reports', { key, address: '192.0.2.7', headers: { 'x-tenant': 'a b' } })
    const acme = { consumer: 'acme' }
    const left = async (identity: Record<string, string>) =>
      (await peekCaller(gateway.admin, config, identity)).standings.map(({ rule, remaining }) => [
        rule.name,
        remaining,
      ])
    for (let i = 0; i < 2; i++) expect((await send()).status).toBe(200)
    const identities: [string, Record<string, string>][] = [
      ['tenant', { ...acme, 'header:x-tenant': 'a b' }],
      ['by-key', { credential: id }],
      ['by-key', { ...acme, credential: key }],
      ['of-route', { ...acme, route: 'reports' }],
      ['at-address', { ...acme, address: '192.0.2.7' }],
      ['hosts', { method: 'GET', host: 'gateway.test' }],
      ['countries', { country: '' }],
    ]
    for (const [rule, identity] of identities) expect(await left(identity)).toEqual([[rule, 7]])
    expect(await left({ ...acme, 'header:x-tenant': 'b' })).toEqual([['tenant', 9]])
    for (const [rule, identity] of identities) {
      await resetCaller(gateway.admin, config, identity)
      expect(await left(identity)).toEqual([[rule, 9]])
    }
  })
})

describeOnRedis('limits', (_, kind) => {
  const gateway = useGateway(kind)
  let app: App
  let config: Config
  beforeAll(async () => {
    app = gateway.app({ ...INPUT, refusals: { rememberFor: 0 } })
    config = configOf(INPUT)
  })

  const address = '192.0.2.7'
  const short = ({ rule, mode, allowed, remaining, retryAfter }: RuleStanding) => [
    rule.name,
    mode,
    allowed,
    remaining,
    retryAfter > 0 ? 'later' : retryAfter,
  ]
  const consumerStands = async (plan?: string) =>
    (await peekCaller(gateway.admin, config, { consumer: 'acme' }, plan)).standings.map(short)

  it('of a consumer are shown as the gateway has counted them, and a peek spends nothing', async () => {
    const key = await gateway.key('acme')
    expect((await app('/', { key, address })).status).toBe(200)
    expect((await app('/', { key, address })).status).toBe(200)
    const stands = [
      ['steady', 'enforce', true, 1, 0],
      ['window', 'enforce', false, 0, 'later'],
      ['log', 'enforce', true, 3, 0],
      ['tried', 'shadow', false, 0, 'later'],
    ]
    for (let i = 0; i < 2; i++) expect(await consumerStands()).toEqual(stands)
    expect((await app('/', { key, address })).status).toBe(429)
    expect([...rulesByMore(config, ['consumer'])]).toEqual([
      ['route', ['route']],
      ['key', ['credential']],
    ])
    expect([...rulesByMore(config, ['address'])]).toEqual([])
    expect([...rulesByOtherIdentities(config)]).toEqual([['address', ['address', 'guesses']]])
  })

  it('are those of the requested plan, or else of the plan of the consumer', async () => {
    const remaining = async (plan?: string) => (await consumerStands(plan))[0]?.[3]
    expect([await remaining(), await remaining('pro')]).toEqual([3, 6])
    await setPlan(gateway.admin, 'acme', 'pro')
    expect([await remaining(), await remaining('free')]).toEqual([6, 3])
  })

  it('are shown with the other plans of the keys of the consumer', async () => {
    const consumer = 'keyed'
    for (const plan of ['pro', 'free', 'gone', undefined])
      await createKey(gateway.admin, { consumer, ...(plan && { plan }) })
    const plansOf = async (plan?: string) =>
      (await peekCaller(gateway.admin, config, { consumer }, plan)).plansOfKeys
    expect([await plansOf(), await plansOf('free')]).toEqual([['pro'], []])
    await setPlan(gateway.admin, consumer, 'pro')
    expect(await plansOf()).toEqual(['free'])
  })

  it('include the overrides of the consumer', async () => {
    const input = { ...INPUT, origin: 'route' }
    await setOverride(gateway.admin, 'acme', compileOverride(input, { rule: 'steady', limit: 1, burst: 1 }))
    await setOverride(gateway.admin, 'acme', compileOverride(input, { rule: 'window', mode: 'off' }))
    await setOverride(gateway.admin, 'acme', compileOverride(input, { rule: 'log', mode: 'shadow' }))
    const { standings, off } = await peekCaller(gateway.admin, config, { consumer: 'acme' })
    expect(standings.map(short)).toEqual([
      ['steady', 'enforce', true, 1, 0],
      ['log', 'shadow', true, 5, 0],
      ['tried', 'shadow', true, 1, 0],
    ])
    expect(standings[0]!.rule).toMatchObject({ limit: 1, on: 'request' })
    expect(off.map(({ name }) => name)).toEqual(['window'])
  })

  it('come with the names of all consumers if the store has no data of the requested consumer', async () => {
    await createKey(gateway.admin, { consumer: 'acme' })
    const others = async (consumer: string) =>
      (await peekCaller(gateway.admin, config, { consumer })).otherConsumers
    expect(await others('acmee')).toContain('acme')
    expect([await others('acme'), await others('jwt~someone')]).toEqual([undefined, undefined])
  })

  it('of a blocked consumer are not shown', async () => {
    await blockConsumer(gateway.admin, 'acme')
    const { blockedAt, standings } = await peekCaller(gateway.admin, config, { consumer: 'acme' })
    expect([blockedAt instanceof Date, standings]).toEqual([true, []])
    await resetCaller(gateway.admin, config, { consumer: 'acme' })
  })

  it('of a consumer are whole after a reset, with overrides and for all plans, and other limits are unchanged', async () => {
    const key = await gateway.key('acme', 'pro')
    await app('/', { key, address })
    const input = { ...INPUT, origin: 'route' }
    await setOverride(gateway.admin, 'acme', compileOverride(input, { rule: 'steady', limit: 2, burst: 2 }))
    await app('/', { key, address })
    await gateway.redis.connection.send(['DEL', 'sluice:{c:acme}:consumer'])
    await setPlan(gateway.admin, 'acme', 'pro')
    expect((await consumerStands()).map(stand => stand[3])).toEqual([5, 0, 3, 0])
    await resetCaller(gateway.admin, config, { consumer: 'acme' })
    expect((await consumerStands()).map(stand => stand[3])).toEqual([6, 4, 5, 1])
    await setOverride(gateway.admin, 'acme', compileOverride(input, { rule: 'steady', limit: 2, burst: 2 }))
    expect((await consumerStands())[0]?.[3]).toBe(1)
    await resetCaller(gateway.admin, config, { consumer: 'acme' })
    expect((await consumerStands())[0]?.[3]).toBe(2)
    const { standings } = await peekCaller(gateway.admin, config, { address })
    expect(standings[0]).toMatchObject({ remaining: 7 })
  })

  it('of an address are shown and reset, including those on guesses', async () => {
    const key = await gateway.key('acme')
    const guess = async () => (await app('/', { key: mintApiKey('acme'), address })).status
    expect([await guess(), await guess(), await guess()]).toEqual([401, 401, 429])
    const stands = async () => (await peekCaller(gateway.admin, config, { address })).standings
    expect((await stands()).map(short)).toEqual([
      ['address', 'enforce', true, 9, 0],
      ['guesses', 'enforce', false, 0, 'later'],
    ])
    expect((await stands())[1]!.rule.on).toBe('auth-failure')
    await resetCaller(gateway.admin, config, { address })
    expect((await stands()).map(short)).toEqual([
      ['address', 'enforce', true, 9, 0],
      ['guesses', 'enforce', true, 2, 0],
    ])
    expect((await app('/', { key, address })).status).toBe(200)
    for (const wrong of ['', 'example.com', '192.0.2.0/24', '1.2.3']) {
      await expect(peekCaller(gateway.admin, config, { address: wrong })).rejects.toMatchObject({
        kind: 'usage',
      })
    }
  })

  it('by name are shown with the time to wait, and reset together or by rule', async () => {
    const limiter = createLimiterOnStore(config, gateway.admin.decisions)
    const identity = { account: '42' }
    for (let i = 0; i < 2; i++) expect((await limiter.limit('zendesk', identity)).allowed).toBe(true)
    const stands = async () => (await peekLimit(gateway.admin, config, 'zendesk', identity)).map(short)
    expect(await stands()).toEqual([
      ['second', 'enforce', true, 1, 0],
      ['day', 'enforce', false, 0, 'later'],
    ])
    expect(await stands()).toEqual(await stands())
    await resetLimit(gateway.admin, config, 'zendesk', identity, 'day')
    expect((await stands()).map(stand => stand[3])).toEqual([1, 2])
    await resetLimit(gateway.admin, config, 'zendesk', identity)
    expect((await stands()).map(stand => stand[3])).toEqual([3, 2])
  })

  it.each([
    ['nothing', {}, undefined, 'not-found', /^The config has no limit 'nothing'\. Limits: zendesk/],
    ['zendesk', {}, undefined, 'usage', /counts by account: account is missing/],
    ['zendesk', { account: '1', user: '2' }, undefined, 'usage', /user is not a part of its identity/],
    ['zendesk', { account: '1' }, 'week', 'not-found', /has no rule 'week'\. Rules: second, day/],
  ])('by name with a mistake are reported: %s %j %s', async (name, identity, rule, kind, message) => {
    const error = { kind, message: expect.stringMatching(message) }
    await expect(resetLimit(gateway.admin, config, name, identity, rule)).rejects.toMatchObject(error)
    if (rule) return
    await expect(peekLimit(gateway.admin, config, name, identity)).rejects.toMatchObject(error)
  })
})
