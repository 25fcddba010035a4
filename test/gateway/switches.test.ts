/**
 * Live switches through the whole app. A switch that turns a rule down (off, shadow, a smaller share) already applies to the
 * request that reads it. One that turns a rule up applies from the isolate's next request on. The tests pass in the clock of the isolates,
 * so no test waits for a copy to become stale.
 */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { blockConsumer } from '../../src/ops/consumers.ts'
import { compileOverride, setOverride } from '../../src/ops/overrides.ts'
import { killLimits, resetRule, restoreLimits, switchRule } from '../../src/ops/switches.ts'
import { formatSwitches, type RuleSwitch } from '../../src/switches/switches.ts'
import { describeOnCluster } from '../support/cluster.ts'
import { type App, useGateway, useGatewayOn } from '../support/gateway.ts'
import { describeOnRedis } from '../support/redis.ts'

const window = { algorithm: 'fixed-window', limit: 2, period: '300d' } as const
const RULES: RuleInput[] = [
  { name: 'two', by: 'consumer', ...window },
  { name: 'many', by: 'consumer', ...window, limit: 100 },
  { name: 'tried', by: 'consumer', ...window, limit: 1, mode: 'shadow' },
  { name: 'none', by: 'consumer', ...window, limit: 1, mode: 'off', plans: { pro: { limit: 3 } } },
  { name: 'guesses', by: 'address', on: 'auth-failure', ...window },
]
const CONFIG: Partial<ConfigInput> & Pick<ConfigInput, 'rules'> = {
  plans: ['free', 'pro'],
  rules: RULES,
  routes: [{ name: 'open', match: { path: '/open' }, accept: ['api-key', 'anonymous'] }],
}

describeOnRedis('switches', (_, kind) => {
  const gateway = useGateway(kind)
  let now: number
  let app: App
  let key: string
  beforeEach(async () => {
    now = Date.now()
    app = isolate()
    key = await gateway.key('acme')
  })
  afterEach(() => {
    vi.restoreAllMocks()
  })

  const isolate = () => gateway.app(CONFIG, { clock: { now: () => now } })
  const by = () => ({ at: new Date(), by: 'ops' })
  const set = (rule: string, change: Pick<RuleSwitch, 'mode' | 'share' | 'until'>) =>
    switchRule(gateway.admin, rule, { ...by(), ...change })
  const later = () => {
    now += 1000
  }
  /** Sends requests, and returns their statuses. */
  const ask = async (times = 1, each = app) => {
    const statuses: number[] = []
    for (let i = 0; i < times; i++) statuses.push((await each('/', { key })).status)
    return statuses
  }
  const namesIn = (response: Response) =>
    [...(response.headers.get('ratelimit-policy') ?? '').matchAll(/"(\w+)"/g)].map(([, name]) => name)

  it('can turn on a rule that is off in the config, for every plan', async () => {
    expect(namesIn(await app('/', { key }))).toEqual(['two', 'many'])
    await set('none', { mode: 'enforce' })
    later()
    // The request that reads the switch was evaluated without it.
    expect(namesIn(await app('/', { key }))).toEqual(['two', 'many'])
    const response = await app('/', { key: await gateway.key('other', 'pro') })
    expect(namesIn(response)).toEqual(['two', 'many', 'none'])
    expect(response.headers.get('ratelimit-policy')).toContain('"none";q=3')
    expect(namesIn(await app('/', { key: await gateway.key('third') }))).toEqual(['two', 'many', 'none'])
    await resetRule(gateway.admin, 'none')
    later()
    expect(namesIn(await app('/', { key: await gateway.key('fourth') }))).toEqual(['two', 'many'])
  })

  it.each<[Pick<RuleSwitch, 'mode' | 'share'>, string[]]>([
    [{ mode: 'off' }, ['many']],
    [{ mode: 'shadow' }, ['many']],
    [{ share: 0 }, ['many']],
  ])('that turn a rule down apply to the refused request that reads them: %j', async (change, left) => {
    expect(await ask(3)).toEqual([200, 200, 429])
    await set('two', change)
    // An isolate whose copy is less than a second old does not read the switches.
    expect(await ask()).toEqual([429])
    later()
    gateway.store.count()
    const response = await app('/', { key })
    expect([response.status, namesIn(response)]).toEqual([200, left])
    expect(response.headers.has('sluice-degraded')).toBe(false)
    // It makes no extra request, and nothing was spent, because the request was refused.
    expect(gateway.store.count()).toBe(1)
    expect(response.headers.get('ratelimit')).toContain('"many";r=98')
    expect((await app('/', { key })).headers.get('ratelimit')).toContain('"many";r=97')
  })

  it('that turn a rule down apply at once in an isolate that has never read them, also to concurrent requests', async () => {
    await ask(2)
    await set('two', { mode: 'off' })
    const fresh = isolate()
    const replies = await Promise.all(Array.from({ length: 8 }, () => fresh('/', { key })))
    expect(replies.map(({ status }) => status)).toEqual(Array(8).fill(200))
  })

  it('that turn a rule into a shadow also apply if an override of the consumer enforces it, and other rules still count', async () => {
    const override = compileOverride(CONFIG, { rule: 'two', mode: 'enforce' })
    await setOverride(gateway.admin, 'acme', override)
    await set('two', { mode: 'shadow' })
    expect(await ask(4)).toEqual([200, 200, 200, 200])
    // The first request was evaluated before the switch was known.
    expect((await app('/', { key })).headers.get('ratelimit')).toContain('"many";r=95')
  })

  it('that turn a rule up apply from the next request on', async () => {
    await set('two', { mode: 'off' })
    // The first request is counted: it was evaluated before this isolate knew the switch.
    expect(await ask(4)).toEqual([200, 200, 200, 200])
    await resetRule(gateway.admin, 'two')
    later()
    // The first request reads the switches and uses the old copy; the next ones are counted.
    expect(await ask(4)).toEqual([200, 200, 429, 429])
  })

  it('enforce a shadow rule, for the share that they set', async () => {
    await set('two', { mode: 'off' })
    await set('tried', { mode: 'enforce', share: 0 })
    expect(await ask(3)).toEqual([200, 200, 200])
    await set('tried', { mode: 'enforce', share: 1 })
    later()
    expect(await ask(2)).toEqual([200, 429])
    await set('tried', { share: 0 })
    later()
    expect(await ask(2)).toEqual([200, 200])
  })

  it('expire by the clock of the isolate', async () => {
    await set('two', { mode: 'off', until: new Date(now + 500) })
    // The first request is counted: it was evaluated before the switch was known.
    expect(await ask(3)).toEqual([200, 200, 200])
    now += 500
    expect(await ask(2)).toEqual([200, 429])
  })

  it('stay as last known until they are read again after an outage', async () => {
    await ask(2)
    await set('two', { mode: 'off' })
    later()
    expect(await ask(2)).toEqual([200, 200])
    await restoreAfterOutage()
    // Still off, although the copy is old: this request has not read the switches yet.
    expect(await ask()).toEqual([200])

    async function restoreAfterOutage() {
      gateway.store.fault = (_, response) => void response.destroy()
      for (let i = 0; i < 3; i++) {
        later()
        expect((await app('/', { key })).headers.get('sluice-degraded')).toBe('store-unreachable')
      }
      gateway.store.fault = undefined
    }
  })

  it('that cannot be parsed, or are missing, have no effect', async () => {
    const { connection } = gateway.redis
    for (const [i, command] of [
      ['SET', 'sluice:{switches}', '{"kill":true,"rules":{"two":"off"}}'],
      ['SET', 'sluice:{switches}', '\0<html>'],
      ['DEL', 'sluice:{switches}'],
      ['LPUSH', 'sluice:{switches}', 'x'],
    ].entries()) {
      await connection.send(command)
      later()
      const response = await app('/', { key: await gateway.key(`other${i}`) })
      expect([response.status, namesIn(response)]).toEqual([200, ['two', 'many']])
    }
    await ask(2)
    expect(await ask()).toEqual([429])
  })

  it('belong to an environment', async () => {
    const kill = formatSwitches({ kill: by(), rules: new Map() })
    await gateway.redis.connection.send(['SET', 'sluice:staging:{switches}', kill])
    const staging = gateway.app({ ...CONFIG, environment: 'staging' }, { clock: { now: () => now } })
    const markOf = async (each: App) => (await each('/open')).headers.get('sluice-degraded')
    await expect.poll(() => markOf(staging), { interval: 10, timeout: 30_000 }).toBe('kill-switch')
    await app('/', { key })
    expect(await markOf(app)).toBe(null)
  })

  describe('with the kill switch', () => {
    const kill = (until?: Date) => killLimits(gateway.admin, { ...by(), ...(until && { until }) })

    it('admit every request, marked, with its caller, and count nothing', async () => {
      app = gateway.app({ ...CONFIG, log: { perSecond: 1000 } }, { clock: { now: () => now } })
      const spies = [vi.spyOn(console, 'log'), vi.spyOn(console, 'info'), vi.spyOn(console, 'warn')]
      for (const spy of spies) spy.mockImplementation(() => {})
      expect(await ask(3)).toEqual([200, 200, 429])
      const before = spies.flatMap(({ mock }) => mock.calls)
      expect(before).not.toEqual([])
      await kill()
      later()
      for (let i = 0; i < 4; i++) {
        const { status, headers } = await app('/', { key })
        expect([status, headers.get('sluice-degraded')]).toEqual([200, 'kill-switch'])
        expect([headers.has('ratelimit'), headers.has('retry-after')]).toEqual([false, false])
        expect(gateway.origin.received.at(-1)!.headers).toMatchObject({
          'sluice-degraded': 'kill-switch',
          'x-consumer-id': 'acme',
          'x-consumer-plan': 'free',
        })
      }
      // Requests are not logged one by one.
      expect(spies.flatMap(({ mock }) => mock.calls)).toEqual(before)
      await restoreLimits(gateway.admin)
      later()
      // The first request reads the switches, and is marked by the old copy: no rule has counted it.
      const last = await app('/', { key })
      expect([last.status, last.headers.get('sluice-degraded')]).toEqual([200, 'kill-switch'])
      expect(await ask()).toEqual([429])
    })

    it('still refuse invalid and missing credentials, and blocked consumers', async () => {
      await kill()
      for (let i = 0; i < 2; i++) {
        expect((await app('/', { key: mintApiKey('acme') })).status).toBe(401)
        expect((await app('/', { key: 'slk_acme_garbage' })).status).toBe(401)
        expect((await app('/')).status).toBe(401)
      }
      await blockConsumer(gateway.admin, 'acme')
      expect(await ask()).toEqual([403])
    })

    it('do not reveal to a caller with too many guesses that one was right', async () => {
      for (const bad of [1, 2]) {
        expect((await app('/', { key: mintApiKey(`nobody${bad}`) })).status).toBe(401)
      }
      await kill()
      later()
      // Evaluated before the switch was known: the valid key is refused like the invalid ones.
      const [good, bad] = [isolate(), isolate()]
      expect((await good('/', { key })).status).toBe(429)
      expect((await bad('/', { key: mintApiKey('nobody') })).status).toBe(429)
      // The kill switch also turns off the limit for guesses: from the next request on, each one gets its real reply.
      expect((await good('/', { key })).status).toBe(200)
      expect((await bad('/', { key: mintApiKey('nobody') })).status).toBe(401)
    })

    it('stop applying, also to callers whose requests make no trip', async () => {
      await kill()
      const marked = async () => (await app('/open')).headers.get('sluice-degraded')
      gateway.store.count()
      // No rule counts an anonymous caller, so its requests make no trip, and the switches are read separately.
      expect(await marked()).toBe(null)
      await expect.poll(marked, { interval: 10, timeout: 30_000 }).toBe('kill-switch')
      expect(gateway.store.count()).toBe(1)
      await restoreLimits(gateway.admin)
      later()
      expect(await marked()).toBe('kill-switch')
      await expect.poll(marked, { interval: 10, timeout: 30_000 }).toBe(null)
      expect(gateway.store.count()).toBe(1)
    })

    it('are read once a second while the store does not answer', async () => {
      gateway.store.fault = (_, response) => void response.destroy()
      gateway.store.count()
      for (let i = 0; i < 5; i++) expect((await app('/open')).status).toBe(200)
      later()
      expect((await app('/open')).status).toBe(200)
      await expect.poll(() => gateway.store.count(), { interval: 10, timeout: 30_000 }).toBeGreaterThan(0)
      expect(gateway.store.count()).toBeLessThanOrEqual(2)
    })

    it('stay active while the store is down, and expire by the clock', async () => {
      await kill(new Date(now + 5000))
      await app('/', { key })
      gateway.store.fault = (_, response) => void response.destroy()
      later()
      expect((await app('/open')).headers.get('sluice-degraded')).toBe('kill-switch')
      now += 4000
      expect((await app('/open')).headers.get('sluice-degraded')).toBe(null)
    })
  })
})

describeOnCluster('switches', start => {
  const gateway = useGatewayOn(start, true)

  it('are read with decisions over several slots, and apply to them', async () => {
    let now = Date.now()
    const rules: RuleInput[] = [
      { name: 'two', by: 'consumer', ...window },
      { name: 'many', by: 'address', ...window, limit: 100 },
    ]
    const app = gateway.app({ rules, store: { cluster: true } }, { clock: { now: () => now } })
    const caller = { key: await gateway.key('acme'), address: '192.0.2.1' }
    const ask = async () => (await app('/', caller)).status
    expect([await ask(), await ask(), await ask()]).toEqual([200, 200, 429])
    await switchRule(gateway.admin, 'two', { at: new Date(), by: 'ops', mode: 'off' })
    now += 1000
    gateway.store.count()
    // The units spent in the slot of the address were given back with a second request, as after a refusal.
    const relaxed = await app('/', caller)
    expect([relaxed.status, gateway.store.count()]).toEqual([200, 2])
    expect(relaxed.headers.get('ratelimit')).toContain('"many";r=98')
    expect([await ask(), gateway.store.count()]).toEqual([200, 1])
  })
})
