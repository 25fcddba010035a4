/** Pauses of limits by name: what several processes on one store decide while one is paused. */
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { mintServiceToken } from '../../src/credentials/service-token.ts'
import { GatewayError } from '../../src/errors.ts'
import { adminStoreOn } from '../../src/ops/admin-store.ts'
import { readAudit } from '../../src/ops/audit.ts'
import { ON_CLUSTER } from '../../src/ops/on-cluster.ts'
import { listScript } from '../../src/script/pause.ts'
import type { LimitDecision, Limiter } from '../../src/set-ups/limits/limiter.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { sha1 } from '../../src/sha1.ts'
import { statsKey } from '../../src/store/keys.ts'
import type { Store } from '../../src/store/store.ts'
import { randomCases } from '../selection.ts'
import { configOf, describeOnRedisEngine, type RedisEngine } from '../support/engines.ts'
import { forEvery } from '../support/property.ts'
import { storedSums } from '../support/stored-counts.ts'
import { storeOf } from '../support/stores.ts'
import { NOON } from '../support/traffic.ts'

const LIMITS: ConfigInput['limits'] = {
  zendesk: [
    { name: 'second', algorithm: 'sliding-log', limit: 1000, period: '1s' },
    { name: 'day', by: ['account'], algorithm: 'fixed-window', limit: 5000, period: 'day' },
  ],
  exports: [{ name: 'at-once', by: ['account'], algorithm: 'concurrency', limit: 5 }],
  leased: [
    {
      name: 'window',
      by: ['account'],
      algorithm: 'fixed-window',
      limit: 10_000,
      period: 'day',
      lease: { for: '10s' },
    },
  ],
  llm: [
    { name: 'tokens', by: ['account'], algorithm: 'fixed-window', limit: 90, period: 'day', unit: 'tokens' },
  ],
}
const RULE: RuleInput = { name: 'any', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }
const ACCOUNT = { account: '42' }
const SECOND = 1e6

/** Processes on one store, whose clock only the test and `acquire` move. */
function fleetOn(redis: RedisEngine, input: Partial<ConfigInput> = {}, isCluster = false) {
  let now = NOON
  let isDown = false
  const bare = storeOf(redis, { isCluster })
  const fail = () =>
    Promise.reject(new GatewayError('ERR_STORE_UNREACHABLE', 'for the test', { fate: 'not-sent' }))
  const store: Store = {
    ...bare,
    run: calls => (isDown ? fail() : bare.run(calls)),
    ping: () => (isDown ? fail() : Promise.resolve()),
  }
  const config = configOf({ rules: [RULE], units: { tokens: {} }, limits: LIMITS, stats: {}, ...input })
  const clock = {
    now: () => now,
    sleep: async (ms: number) => {
      now += ms * 1e3
    },
    timer: () => () => {},
  }
  return {
    start: (): Limiter => createLimiterOnStore(config, store, { clock, variables: { HOSTNAME: 'worker-1' } }),
    pass(time: number) {
      now += time
    },
    now: () => now,
    fail(down = true) {
      isDown = down
    },
    calls: () => bare.requests.reduce((sum, calls) => sum + calls, 0),
    config,
    store,
  }
}

const paused = (forMs: number, at = NOON) => ({
  allowed: false,
  retryAfterMs: forMs,
  pausedUntil: at / 1e3 + forMs,
})

describeOnRedisEngine('a pause of a limit by name', fresh => {
  it('refuses all calls of the identity in every process, with the exact end, and no others', async () => {
    const { start, pass, calls } = fleetOn(await fresh())
    const [one, other] = [start(), start()]
    await one.limit('zendesk', ACCOUNT)
    const pause = await one.pause('zendesk', ACCOUNT, { forMs: 30_000 })
    expect(pause).toEqual({
      limit: 'zendesk',
      identity: ACCOUNT,
      retryAfterMs: 30_000,
      pausedUntil: NOON / 1e3 + 30_000,
    })
    const before = calls()
    expect(await one.limit('zendesk', ACCOUNT)).toMatchObject({ ...paused(30_000), at: 0 })
    expect(calls()).toBe(before)
    expect(await other.limit('zendesk', ACCOUNT)).toMatchObject({ ...paused(30_000), at: NOON })
    expect(await other.peek('zendesk', ACCOUNT)).toMatchObject(paused(30_000))
    expect(await other.limit('zendesk', { account: '43' })).toMatchObject({ allowed: true })
    pass(29_999_000)
    expect(await one.limit('zendesk', ACCOUNT)).toMatchObject({ allowed: false, retryAfterMs: 1 })
    expect(await other.limit('zendesk', ACCOUNT)).toMatchObject({ allowed: false, retryAfterMs: 1 })
    pass(1000)
    // Refused calls have spent nothing.
    for (const limiter of [one, other]) expect((await limiter.limit('zendesk', ACCOUNT)).allowed).toBe(true)
    expect((await other.peek('zendesk', ACCOUNT)).rules[1]).toMatchObject({ remaining: 4997 })
  })

  it('is never shortened by another pause, lasts through a reset, and ends with resume', async () => {
    const { start, pass } = fleetOn(await fresh())
    const [one, other] = [start(), start()]
    await one.limit('zendesk', ACCOUNT)
    await one.pause('zendesk', ACCOUNT, { forMs: 60_000 })
    expect(await other.pause('zendesk', ACCOUNT, { forMs: 10 })).toMatchObject({ retryAfterMs: 60_000 })
    expect(await one.pause('zendesk', ACCOUNT, { forMs: 10 })).toMatchObject({ retryAfterMs: 60_000 })
    expect(await one.reset('zendesk', ACCOUNT)).toMatchObject({ allowed: true })
    expect(await one.limit('zendesk', ACCOUNT)).toMatchObject(paused(60_000))
    expect(await other.resume('zendesk', ACCOUNT)).toEqual({
      limit: 'zendesk',
      identity: ACCOUNT,
      retryAfterMs: 0,
    })
    expect((await other.limit('zendesk', ACCOUNT)).allowed).toBe(true)
    // This process asks the store again within a second.
    expect((await one.limit('zendesk', ACCOUNT)).allowed).toBe(false)
    pass(SECOND)
    expect((await one.limit('zendesk', ACCOUNT)).allowed).toBe(true)
  })

  it('belongs to the narrowest rule that the identity names', async () => {
    const { start } = fleetOn(await fresh())
    const [one, other] = [start(), start()]
    await one.pause('zendesk', {}, { forMs: 1000 })
    for (const account of ['42', '43'])
      expect(await other.limit('zendesk', { account })).toMatchObject(paused(1000))
    await expect(one.pause('exports', {}, { forMs: 1 })).rejects.toThrow('account is missing')
    await expect(one.pause('zendesk', { user: 'a' }, { forMs: 1 })).rejects.toThrow(
      "The limit 'zendesk' counts by account: account is missing, and user is not a part of its identity.",
    )
  })

  it('lasts a day at most, and begins only with a valid Retry-After', async () => {
    const { start, calls } = fleetOn(await fresh())
    const limiter = start()
    const nothing = { limit: 'zendesk', identity: ACCOUNT, retryAfterMs: 0 }
    for (const retryAfter of ['soon', '0', new Response(null, { status: 429 })])
      expect(await limiter.pause('zendesk', ACCOUNT, { retryAfter })).toEqual(nothing)
    expect(calls()).toBe(0)
    const ofOtherLibrary = { headers: { get: (name: string) => (name === 'retry-after' ? 5 : null) } }
    expect(await limiter.pause('zendesk', ACCOUNT, { retryAfter: ofOtherLibrary as never })).toMatchObject({
      retryAfterMs: 5000,
    })
    const headers = new Headers({ 'retry-after': '7' })
    expect(await limiter.pause('zendesk', ACCOUNT, { retryAfter: headers })).toMatchObject({
      retryAfterMs: 7000,
    })
    const forMs = 1e9
    expect(await limiter.pause('zendesk', ACCOUNT, { forMs })).toMatchObject({ retryAfterMs: 86_400_000 })
    await expect(limiter.pause('zendesk', ACCOUNT, {} as never)).rejects.toThrow('pause needs one of these')
    await expect(limiter.pause('zendesk', ACCOUNT, { forMs: 0 })).rejects.toThrow('forMs is 0')
    await expect(limiter.pause('zendesk', ACCOUNT, { retryAfter: 7 as never })).rejects.toThrow(
      'retryAfter is 7',
    )
  })

  it.each([
    ['1h', 3_600_000],
    ['7d', 604_800_000],
  ] as const)('lasts no longer than longestPause (%s)', async (longestPause, longestMs) => {
    const { start, pass } = fleetOn(await fresh(), { longestPause })
    const retryAfter = String(30 * 86_400)
    expect(await start().pause('zendesk', ACCOUNT, { retryAfter })).toMatchObject({ retryAfterMs: longestMs })
    pass(longestMs * 1e3 - 1)
    expect(await start().limit('zendesk', ACCOUNT)).toMatchObject({ allowed: false, retryAfterMs: 1 })
    pass(1)
    expect(await start().limit('zendesk', ACCOUNT)).toMatchObject({ allowed: true })
  })

  it('refuses units in flight and leased units too', async () => {
    const { start, pass } = fleetOn(await fresh())
    const [one, other] = [start(), start()]
    const units = await other.limit('exports', ACCOUNT)
    await one.pause('exports', ACCOUNT, { forMs: 5000 })
    expect(await other.limit('exports', ACCOUNT)).toMatchObject(paused(5000))
    units.release()
    for (let i = 0; i < 100; i++) await one.limit('leased', ACCOUNT)
    const leased = await one.limit('leased', ACCOUNT)
    await one.pause('leased', ACCOUNT, { forMs: 5000 })
    expect(leased.allowed).toBe(true)
    expect((await one.limit('leased', ACCOUNT)).allowed).toBe(false)
    pass(1.5 * SECOND)
    expect(await one.limit('leased', ACCOUNT)).toMatchObject({ allowed: false, retryAfterMs: 3500 })
    pass(3.5 * SECOND)
    expect((await one.limit('leased', ACCOUNT)).allowed).toBe(true)
  })

  it('does not keep reserved units from being settled, or spent ones from being given back', async () => {
    const { start, pass } = fleetOn(await fresh())
    const limiter = start()
    const reserved = await limiter.reserve('llm', ACCOUNT, { amounts: { tokens: 50 } })
    const spent = await limiter.limit('zendesk', ACCOUNT)
    for (const name of ['llm', 'zendesk']) await limiter.pause(name, ACCOUNT, { forMs: 5000 })
    expect(await limiter.reserve('llm', ACCOUNT, { amounts: { tokens: 1 } })).toMatchObject(paused(5000))
    expect(await reserved.settle({ tokens: 10 })).toMatchObject({ applied: true })
    expect(await limiter.refund(spent)).toMatchObject({ allowed: true })
    pass(1.5 * SECOND)
    const peeked = await limiter.peek('llm', ACCOUNT)
    expect(peeked).toMatchObject({ allowed: false, retryAfterMs: 3500, rules: [{ remaining: 80 }] })
  })

  it('holds in this process while the store does not answer', async () => {
    const { start, pass, fail } = fleetOn(await fresh())
    const [one, other] = [start(), start()]
    await one.pause('zendesk', ACCOUNT, { forMs: 60_000 })
    fail()
    pass(2 * SECOND)
    expect(await one.limit('zendesk', ACCOUNT)).toMatchObject({
      allowed: false,
      retryAfterMs: 58_000,
      degraded: 'store-unreachable',
    })
    // The other process knows nothing of it.
    expect(await other.limit('zendesk', ACCOUNT)).toMatchObject({
      allowed: true,
      degraded: 'store-unreachable',
    })
    // A pause that the store has not confirmed holds until its end, in this process alone.
    const unconfirmed = await other.pause('zendesk', ACCOUNT, { forMs: 10_000 })
    expect(unconfirmed).toMatchObject({ retryAfterMs: 10_000 })
    expect(unconfirmed.degraded).toBeDefined()
    fail(false)
    await other.peek('exports', ACCOUNT)
    pass(5 * SECOND)
    expect(await other.limit('zendesk', ACCOUNT)).toMatchObject({ allowed: false })
    await other.resume('zendesk', ACCOUNT)
    expect(await other.limit('zendesk', ACCOUNT)).toMatchObject({ allowed: true })
  })

  it('of many identities holds too, for up to 10,000 of them', async () => {
    const { start, fail } = fleetOn(await fresh(), { stats: { keep: false } })
    const limiter = start()
    fail()
    const accounts = Array.from({ length: 10_001 }, (_, i) => ({ account: `${i}` }))
    for (const account of accounts) await limiter.pause('exports', account, { forMs: 60_000 })
    const decided = await Promise.all(accounts.map(account => limiter.limit('exports', account)))
    expect(decided.map(({ pausedUntil }) => pausedUntil).filter(Boolean)).toHaveLength(10_000)
    expect(decided[0]!.pausedUntil).toBeUndefined()
  })

  it('makes acquire wait for its end, or give up at once if that is too late', async () => {
    const { start, now, calls } = fleetOn(await fresh(), { stats: { keep: false } })
    const [one, other] = [start(), start()]
    await one.pause('zendesk', ACCOUNT, { forMs: 30_000 })
    const before = calls()
    expect(await other.acquire('zendesk', ACCOUNT, { timeoutMs: 29_000 })).toMatchObject(paused(30_000))
    expect(now()).toBe(NOON)
    expect(await other.acquire('zendesk', ACCOUNT, { timeoutMs: 31_000 })).toMatchObject({ allowed: true })
    expect(now() - NOON).toBeGreaterThanOrEqual(30 * SECOND)
    expect(now() - NOON).toBeLessThan(30.1 * SECOND)
    // One refusal, which both calls share, and one admission.
    expect(calls() - before).toBe(2)
  })

  it('of many calls that wait for its end, only some ask the store at once', async () => {
    const { start, calls } = fleetOn(await fresh())
    const [one, other] = [start(), start()]
    await one.pause('exports', ACCOUNT, { forMs: 5000 })
    const before = calls()
    const waiting = Array.from({ length: 5 }, () => other.acquire('exports', ACCOUNT))
    expect((await Promise.all(waiting)).every(({ allowed }) => allowed)).toBe(true)
    expect(calls() - before).toBeLessThanOrEqual(7)
  })

  it('has its entry of the audit trail in the slot of the limit, on a cluster', async () => {
    const redis = await fresh()
    const { start } = fleetOn(redis, { environment: 'live' }, true)
    const [one, other] = [start(), start()]
    await one.pause('zendesk', ACCOUNT, { forMs: 30_000 })
    expect(await other.limit('zendesk', ACCOUNT)).toMatchObject(paused(30_000))
    const listed = await redis.send(['ZRANGE', 'sluice:{audits}', '0', '-1'])
    expect(String(listed)).toBe('sluice:live:{l:zendesk}:audit')
    expect(await redis.send(['XLEN', 'sluice:{l:zendesk}:audit'])).toBe(1)
  })

  it('leaves no API key or service token in the audit trail', async () => {
    const redis = await fresh()
    const limiter = fleetOn(redis).start()
    for (const account of [mintApiKey('acme'), mintServiceToken(undefined)]) {
      await limiter.pause('zendesk', { account }, { forMs: 30_000 })
      await limiter.resume('zendesk', { account })
    }
    const entries = (await redis.send(['XRANGE', 'sluice:{audit}', '-', '+'])) as unknown[]
    expect(entries).toHaveLength(4)
    for (const entry of entries) expect(String(entry)).toContain(',zendesk/account=…,')
    expect(String(entries)).not.toMatch(/sl[kt]_/)
  })

  it('is counted with a cause, and is in the audit trail', async () => {
    const redis = await fresh()
    const { start, store, config, now } = fleetOn(redis)
    const limiter = start()
    await limiter.pause('zendesk', ACCOUNT, { forMs: 30_000 })
    // Longer by less than a second: no entry of its own.
    await limiter.pause('zendesk', ACCOUNT, { forMs: 30_500 })
    await limiter.limit('zendesk', ACCOUNT)
    await limiter.resume('zendesk', ACCOUNT)
    await limiter.resume('zendesk', ACCOUNT)
    await limiter.close()
    const sums = storedSums(await redis.send(['HGETALL', statsKey(new Date(now() / 1e3))]))
    expect(Object.entries(sums).filter(([field]) => field.includes('paused'))).toHaveLength(1)
    const connection = {
      decisions: store,
      nextStepFor: () => '',
      run: async (...command: (string | number)[]) => await runOn(redis, command),
      runEach: async () => [],
    }
    const admin = adminStoreOn(
      connection as never,
      { environment: config.environment },
      {} as never,
      ON_CLUSTER,
    )
    const { entries } = await readAudit(admin, { limit: 10 }, now() / 1e3)
    expect(entries.map(({ action, target, actor, after }) => ({ action, target, actor, after }))).toEqual([
      {
        action: 'limits.resume',
        target: 'zendesk/account=42',
        actor: { kind: 'process', name: 'worker-1' },
        after: {},
      },
      {
        ...{ action: 'limits.pause', target: 'zendesk/account=42' },
        ...{ actor: { kind: 'process', name: 'worker-1' }, after: { forMs: 30_000 } },
      },
    ])
  })
})

it('lists streams of the audit trail by a script whose digests are right', () => {
  for (const { source, sha1: digest } of [listScript().plain, listScript().keyLocking])
    expect(digest).toBe(sha1(source))
})

/** As text, as the REST protocol replies. */
async function runOn(redis: RedisEngine, command: readonly (string | number)[]): Promise<unknown> {
  const text = (reply: unknown): unknown =>
    Buffer.isBuffer(reply) ? reply.toString() : Array.isArray(reply) ? reply.map(text) : reply
  return text(await redis.send(command.map(String) as never))
}

const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ verb: fc.constantFrom('limit' as const, 'peek' as const) }) },
  {
    weight: 2,
    arbitrary: fc.record({ verb: fc.constant('pause' as const), forMs: fc.constantFrom(1, 500, 2500, 9000) }),
  },
  { weight: 1, arbitrary: fc.record({ verb: fc.constantFrom('resume' as const, 'reset' as const) }) },
)
const scenario = fc.array(
  fc.record({
    step,
    process: fc.nat(2),
    name: fc.constantFrom('zendesk', 'exports'),
    account: fc.constantFrom('a', 'b'),
    isForAll: fc.boolean(),
    /** ms */
    wait: fc.constantFrom(0, 0, 1, 400, 1000, 3000),
  }),
  { minLength: 10, maxLength: 60 },
)

describeOnRedisEngine('random pauses', (fresh, kind) => {
  it('admit no call inside a pause, and are never shortened', { timeout: 120_000 }, async () => {
    const redis = await fresh()
    const totals = { inPause: 0, admitted: 0 }
    await forEvery(scenario, randomCases(240, kind), async steps => {
      await redis.send(['FLUSHALL'])
      const { start, pass, now } = fleetOn(redis, { refusals: { rememberFor: 0 } })
      const fleet = [start(), start(), start()]
      /** When each pause ends (µs). */
      const ends = new Map<string, number>()
      /** When another process has changed a pause last, for each process. */
      const changedAt = fleet.map(() => Number.NEGATIVE_INFINITY)
      const noteChange = (by: number) => {
        for (const other of changedAt.keys()) if (other !== by) changedAt[other] = now()
      }
      for (const { step, process, name, account, isForAll, wait } of steps) {
        pass(wait * 1e3)
        const limiter = fleet[process]!
        const identity =
          isForAll &&
          name === 'zendesk' &&
          step.verb !== 'limit' &&
          step.verb !== 'peek' &&
          step.verb !== 'reset'
            ? {}
            : { account }
        const id = `${name} ${'account' in identity ? account : ''}`
        const endOf = (id: string) => Math.max(ends.get(id) ?? 0, now())
        if (step.verb === 'pause') {
          const end = Math.max(endOf(id), now() + step.forMs * 1e3)
          ends.set(id, end)
          noteChange(process)
          const result = await limiter.pause(name, identity, { forMs: step.forMs })
          expect(result.pausedUntil).toBe(end / 1e3)
        } else if (step.verb === 'resume') {
          await limiter.resume(name, identity)
          ends.delete(id)
          noteChange(process)
        } else if (step.verb === 'reset') await limiter.reset(name, identity)
        else {
          const end = Math.max(endOf(id), name === 'zendesk' ? endOf('zendesk ') : 0)
          const isUpToDate = changedAt[process]! < now() - SECOND
          const decision: LimitDecision = await limiter[step.verb](name, identity)
          decision.release()
          if (end > now()) {
            totals.inPause += 1
            expect(decision).toMatchObject({ allowed: false })
            // For a second, a process repeats what it knows of a pause.
            if (isUpToDate)
              expect(decision).toMatchObject({ retryAfterMs: (end - now()) / 1e3, pausedUntil: end / 1e3 })
          } else if (isUpToDate) {
            totals.admitted += 1
            expect(decision).toMatchObject({ allowed: true })
          }
        }
      }
    })
    expect(totals.inPause).toBeGreaterThan(20)
    expect(totals.admitted).toBeGreaterThan(20)
  })
})
