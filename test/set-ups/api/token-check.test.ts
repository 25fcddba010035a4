/** Service tokens for the HTTP API: which are admitted, in how many trips, and what a refused one costs. */
import { beforeEach, describe, expect, it } from 'vitest'
import type { ConfigInput, RuleInput } from '../../../src/config/check/schema.ts'
import { mintServiceToken } from '../../../src/credentials/service-token.ts'
import type { GatewayError } from '../../../src/errors.ts'
import { SCOPE_NAMES, scopesForLimit } from '../../../src/scopes.ts'
import { createGuardedCalls } from '../../../src/set-ups/api/guarded-calls.ts'
import { ApiError } from '../../../src/set-ups/api/problems.ts'
import { MAX_ATTEMPTS, PERIOD_MS } from '../../../src/set-ups/api/token-attempts.ts'
import { createTokenChecks } from '../../../src/set-ups/api/token-check.ts'
import type { GuardableLimiter, Limiter } from '../../../src/set-ups/limits/limiter.ts'
import { createGuardableLimiterOnStore } from '../../../src/set-ups/limits/limiter-on-store.ts'
import { sha256 } from '../../../src/sha256.ts'
import { timeoutError } from '../../../src/store/deadline.ts'
import { tokenKey } from '../../../src/store/keys.ts'
import { formatToken, type TokenRecord } from '../../../src/store/records.ts'
import type { Store, StoreCall } from '../../../src/store/store.ts'
import { configOf, describeOnRedisEngine, type RedisEngine } from '../../support/engines.ts'
import { type CountedStore, storeOf } from '../../support/stores.ts'
import { NOON } from '../../support/traffic.ts'

const CALLS = {
  ...{ name: 'window', by: ['account'] },
  ...{ algorithm: 'fixed-window' as const, limit: 10, period: '300d' as const },
}
const limits: ConfigInput['limits'] = {
  calls: [CALLS],
  leased: [{ name: 'window', algorithm: 'fixed-window', limit: 10_000, period: '300d' }],
  tasks: [{ name: 'at-once', algorithm: 'concurrency', limit: 2 }],
  llm: [{ name: 'tokens', algorithm: 'token-bucket', unit: 'tokens', limit: 1000, period: '300d' }],
}
const RULE: RuleInput = { name: 'any', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }
const CONFIG = configOf({
  rules: [RULE],
  limits,
  units: { tokens: { estimate: 100 } },
  refusals: { rememberFor: '5s' },
})
const LEASING = configOf({ rules: [RULE], limits: { leased: limits.leased! }, lease: { for: '10s' } })
const ACCOUNT = { account: '42' }
const ADDRESS = '192.0.2.1'

type Result<T> = { ok: true; value: T } | { ok: false; reason: string }

const resultOf = <T>(call: Promise<T>): Promise<Result<T>> =>
  call.then(value => ({ ok: true, value }), refusalOf)

/** The reply to a refused token, in short. */
function refusalOf(error: unknown): { ok: false; reason: string } {
  if (!(error instanceof ApiError)) throw error
  const { problem, message, details } = error
  const { headers, extra } = details
  switch (problem) {
    case 'forbidden':
      return { ok: false, reason: 'scope', ...{ needed: extra?.scope } }
    case 'too-many-guesses':
      return { ok: false, reason: 'too many', ...{ retryAfter: headers?.['retry-after'] } }
    case 'store-unavailable':
      return { ok: false, reason: 'store', ...{ message, change: extra?.change } }
    default:
      return { ok: false, reason: REASONS.find(([text]) => message.startsWith(text))![1] }
  }
}

const REASONS = [
  ['Send a service token', 'missing'],
  ['This is not a service token of this deployment', 'malformed'],
  ['This is not a service token (slt_…)', 'another credential'],
  ['This token never existed', 'unknown'],
] as const

const isSlow = (change: 'none' | 'unknown') => ({
  ...{ ok: false, reason: 'store', change },
  message: expect.stringMatching(
    /^The store did not answer (within the deadline|\(store-timeout\))\./,
  ) as string,
})

describeOnRedisEngine('service tokens', fresh => {
  let redis: RedisEngine
  let store: CountedStore
  let failing: Store
  /** Of the last trip. */
  let lastCalls: readonly StoreCall[]
  /** Of the store: not set if it answers. */
  let failure: GatewayError | undefined
  let nowMs: number
  let tokens: ReturnType<typeof checksOn>
  let limiter: GuardableLimiter

  beforeEach(async () => {
    redis = await fresh()
    store = storeOf(redis)
    failure = undefined
    failing = {
      ...store,
      async run(calls) {
        if (failure) throw failure
        lastCalls = calls
        return await store.run(calls)
      },
    }
    nowMs = NOON / 1e3
    tokens = checksOn(failing)
    limiter = createGuardableLimiterOnStore(CONFIG, failing, { clock: clock() })
  })

  function checksOn(store: Store, environment?: string) {
    const checks = createTokenChecks(store, environment, { now: () => nowMs })
    const guarded = createGuardedCalls(store, checks)
    return {
      forget: checks.forget,
      check: (...args: Parameters<typeof checks.check>) => resultOf(checks.check(...args)),
      guarded: <T, L extends Limiter>(...args: Parameters<typeof guarded<T, L>>) =>
        resultOf(guarded<T, L>(...args)),
    }
  }
  const clock = () => ({ now: () => nowMs * 1e3, sleep: async () => {}, timer: () => () => {} })

  async function add(scopes: readonly string[], more: Partial<TokenRecord> = {}): Promise<string> {
    const token = mintServiceToken(undefined)
    const record = { name: 'a b=c scopes=tokens:write', scopes, createdAt: new Date(0), ...more }
    await redis.setRecord(tokenKey(sha256(token)), formatToken(record))
    return token
  }
  const remove = (token: string) => redis.send(['DEL', tokenKey(sha256(token))])
  /** All counters. Reservations are a sorted set, which the embedded Redis cannot dump. */
  async function stateOf(): Promise<Record<string, string>> {
    const keys = ((await redis.send(['KEYS', '*:state*'])) as Buffer[]).map(String)
    const counters = keys.filter(key => !key.endsWith(':reserved')).sort()
    return Object.assign({}, ...(await Promise.all(counters.map(key => redis.snapshot(key)))))
  }
  const use = <T>(token: string | undefined, call: (limiter: Limiter) => Promise<T>, limit = 'calls') =>
    tokens.guarded(token, scopesForLimit(limit), ADDRESS, limiter, call)

  describe('for everything but limits', () => {
    it('are checked in one trip, and for a second without one', async () => {
      const token = await add(['stats:read'])
      const checked = await tokens.check(token, ['switches:write', 'stats:read'], ADDRESS)
      const digest = sha256(token)
      expect(checked).toEqual({
        ok: true,
        value: {
          ...{ id: digest.slice(0, 12), digest, name: 'a b=c scopes=tokens:write' },
          ...{ scopes: ['stats:read'], createdAt: new Date(0) },
        },
      })
      expect(await tokens.check(token, ['keys:write'], ADDRESS)).toEqual({
        ...{ ok: false, reason: 'scope', needed: 'keys:write' },
      })
      expect(store.requests).toEqual([1])
      nowMs += 999
      expect(await tokens.check(token, [], ADDRESS)).toMatchObject({ ok: true })
      expect(store.requests).toEqual([1])
      nowMs += 1
      await tokens.check(token, [], ADDRESS)
      expect(store.requests).toEqual([1, 1])
    })

    it('permit what their scopes say, each by itself', async () => {
      for (const own of SCOPE_NAMES) {
        const token = await add([own])
        for (const needed of SCOPE_NAMES) {
          const { ok } = await tokens.check(token, [needed], ADDRESS)
          expect(ok, `${own} permits ${needed}`).toBe(own === needed)
        }
      }
    })

    it('are refused within a second after they were revoked, and are no longer known then', async () => {
      const token = await add(['stats:read'])
      await tokens.check(token, [], ADDRESS)
      await remove(token)
      expect(await tokens.check(token, [], ADDRESS)).toMatchObject({ ok: true })
      nowMs += 1000
      expect(await tokens.check(token, [], ADDRESS)).toEqual({ ok: false, reason: 'unknown' })
    })

    it('are refused at once by the isolate that has revoked them', async () => {
      const token = await add(['stats:read'])
      await tokens.check(token, [], ADDRESS)
      await remove(token)
      tokens.forget(sha256(token))
      expect(await tokens.check(token, [], ADDRESS)).toEqual({ ok: false, reason: 'unknown' })
    })

    it('end exactly when Redis says, whatever the clock of the isolate says', async () => {
      const token = await add(['stats:read'])
      await redis.send(['PEXPIRE', tokenKey(sha256(token)), '1'])
      await expect
        .poll(async () => await redis.send(['EXISTS', tokenKey(sha256(token))]), { interval: 1 })
        .toBe(0)
      expect(await tokens.check(token, [], ADDRESS)).toEqual({ ok: false, reason: 'unknown' })
    })

    it('are forgotten if the clock was set back', async () => {
      const token = await add(['stats:read'])
      await tokens.check(token, [], ADDRESS)
      await remove(token)
      nowMs -= 5000
      expect(await tokens.check(token, [], ADDRESS)).toEqual({ ok: false, reason: 'unknown' })
    })

    it('of another environment are unknown, without a trip', async () => {
      const token = mintServiceToken('staging')
      await redis.setRecord(
        tokenKey(sha256(token)),
        formatToken({ name: 'a', scopes: ['stats:read'], createdAt: new Date(0) }),
      )
      expect(await tokens.check(token, [], ADDRESS)).toEqual({ ok: false, reason: 'unknown' })
      const staging = checksOn(store, 'staging')
      expect(await staging.check(token, [], ADDRESS)).toMatchObject({ ok: true })
      expect(store.requests).toEqual([1])
    })

    it('say why the store has not answered, and that nothing was changed', async () => {
      const token = await add(['stats:read'])
      failure = timeoutError()
      expect(await tokens.check(token, [], ADDRESS)).toEqual(isSlow('none'))
    })

    it('are unknown if their record is no record of a token', async () => {
      const token = await add(['stats:read'])
      await redis.setRecord(tokenKey(sha256(token)), 'plan=pro created=2026-01-01')
      expect(await tokens.check(token, [], ADDRESS)).toEqual({ ok: false, reason: 'unknown' })
    })
  })

  describe('that are wrong', () => {
    it('make no trip if their checksum is wrong, and are not counted', async () => {
      expect(await tokens.check(undefined, [], ADDRESS)).toEqual({ ok: false, reason: 'missing' })
      expect(await tokens.check('', [], ADDRESS)).toEqual({ ok: false, reason: 'missing' })
      const token = await add(['stats:read'])
      for (let i = 0; i < 1000; i++) {
        const wrong = token.slice(0, -6) + String(i).padStart(6, 'x')
        const check = await tokens.check(wrong, [], ADDRESS)
        if (check.ok || check.reason !== 'malformed') throw new Error(wrong)
      }
      expect(await tokens.check('slk_0123', [], ADDRESS)).toEqual({ ok: false, reason: 'another credential' })
      expect(store.requests).toEqual([])
      expect(await tokens.check(token, [], ADDRESS)).toMatchObject({ ok: true })
    })

    it('get a trip 20 times a minute from an address; other addresses and known tokens stay', async () => {
      const known = await add(['stats:read'])
      const right = await add(['stats:read'])
      await tokens.check(known, [], ADDRESS)
      const wrong = Array.from({ length: MAX_ATTEMPTS + 30 }, () => mintServiceToken(undefined))
      const reasons = await Promise.all(wrong.map(token => tokens.check(token, [], ADDRESS)))
      expect(store.requests).toHaveLength(1 + MAX_ATTEMPTS)
      expect(reasons.slice(0, MAX_ATTEMPTS).every(check => !check.ok && check.reason === 'unknown')).toBe(
        true,
      )
      const tooMany = { ok: false, reason: 'too many', retryAfter: String(PERIOD_MS / 1e3) }
      for (const check of reasons.slice(MAX_ATTEMPTS)) expect(check).toEqual(tooMany)

      expect(await tokens.check(right, [], ADDRESS)).toEqual(tooMany)
      expect(await use(right, limiter => limiter.limit('calls', ACCOUNT))).toEqual(tooMany)
      expect(await tokens.check(right, [], '192.0.2.2')).toMatchObject({ ok: true })
      nowMs += 1000
      // Its record is no longer valid, but the isolate knows that it was a token.
      expect(await tokens.check(known, [], ADDRESS)).toMatchObject({ ok: true })

      nowMs += PERIOD_MS - 1001
      expect(await tokens.check(wrong.at(-1), [], ADDRESS)).toMatchObject({
        reason: 'too many',
        retryAfter: '1',
      })
      nowMs += 1
      expect(await tokens.check(wrong.at(-1), [], ADDRESS)).toEqual({ ok: false, reason: 'unknown' })
    })

    it('make one trip each: the isolate remembers that they are wrong', async () => {
      const wrong = mintServiceToken(undefined)
      for (let i = 0; i < 100; i++)
        expect(await tokens.check(wrong, [], ADDRESS)).toEqual({ ok: false, reason: 'unknown' })
      expect(store.requests).toEqual([1])
    })

    it('do not stop a client that begins with a hundred calls with one right token', async () => {
      const token = await add(['limits:use'])
      const all = await Promise.all(
        Array.from({ length: 100 }, () =>
          tokens.guarded(token, scopesForLimit('calls'), ADDRESS, limiter, each =>
            each.limit('calls', ACCOUNT),
          ),
        ),
      )
      expect(all.every(({ ok }) => ok)).toBe(true)
    })

    it('are forgotten when many other addresses have tried some: the memory is bounded', async () => {
      const nothing: Store = { run: async calls => calls.map(() => null), ping: async () => {} }
      const checks = checksOn(nothing)
      const tryOne = (address: string) => checks.check(mintServiceToken(undefined), [], address)
      for (let i = 0; i < MAX_ATTEMPTS; i++) await tryOne(ADDRESS)
      expect(await tryOne(ADDRESS)).toMatchObject({ reason: 'too many' })
      for (let i = 0; i < 500; i++) await tryOne(`2001:db8::${i}`)
      expect(await tryOne(ADDRESS)).toMatchObject({ reason: 'unknown' })
    })
  })

  describe('of limits by name', () => {
    it('are checked in the same trip', async () => {
      const token = await add(['limits:use:calls'])
      const result = await use(token, limiter => limiter.limit('calls', ACCOUNT))
      expect(result).toMatchObject({ ok: true, value: { allowed: true } })
      expect(store.requests).toEqual([1])
    })

    it.each([
      ['unknown', async () => mintServiceToken(undefined)],
      ['scope', () => add(['limits:use:leased', 'limits:use:call', 'limits:use:calls2', 'stats:read'])],
    ])('spend, give back and change nothing if they are refused: %s', async (reason, tokenOf) => {
      const right = await add(['limits:use', 'limits:reset'])
      type Calls = [string, (limiter: Limiter) => Promise<unknown>]
      const made = await use(right, async limiter => ({
        calls: await limiter.limit('calls', ACCOUNT),
        llm: await limiter.reserve('llm'),
      }))
      if (!made.ok) throw new Error(made.reason)
      const { value: spent } = made
      const before = await stateOf()
      const calls: Calls[] = [
        ['limit', limiter => limiter.limit('calls', ACCOUNT)],
        ['peek', limiter => limiter.peek('calls', ACCOUNT)],
        ['acquire', limiter => limiter.acquire('calls', ACCOUNT, { timeoutMs: 0 })],
        ['refund', limiter => limiter.refund(spent.calls)],
        ['reset', limiter => limiter.reset('calls', ACCOUNT)],
        ['hold', limiter => limiter.limit('tasks')],
        ['reserve', limiter => limiter.reserve('llm')],
        ['settle', limiter => limiter.settle(spent.llm, { tokens: 5 })],
        ['wrong arguments', limiter => limiter.limit('none')],
        ['nothing to give back', limiter => limiter.refund({ ...spent.calls, allowed: false })],
      ]
      for (const [name, call] of calls) {
        const needed = 'limits:use or limits:use:calls'
        const refusal = { ok: false, reason, ...(reason === 'scope' && { needed }) }
        expect(await use(await tokenOf(), call), name).toEqual(refusal)
        expect(await stateOf(), name).toEqual(before)
      }
      // What the refused calls were about can still be done.
      const settled = await use(right, limiter => limiter.settle(spent.llm, { tokens: 5 }), 'llm')
      expect(settled).toMatchObject({ ok: true, value: { applied: true } })
      const refunded = await use(right, limiter => limiter.refund(spent.calls))
      expect(refunded).toMatchObject({ ok: true, value: { allowed: true, rules: [{ remaining: 10 }] } })
    })

    it('throw for wrong arguments only if they are right', async () => {
      const token = await add(['limits:use'])
      await expect(use(token, limiter => limiter.limit('none'))).rejects.toThrow(TypeError)
      expect(await use(mintServiceToken(undefined), limiter => limiter.limit('none'))).toMatchObject({
        reason: 'unknown',
      })
    })

    it('need the scope of a reset for a reset', async () => {
      const user = await add(['limits:use'])
      const operator = await add(['limits:reset'])
      const reset = (token: string) =>
        tokens.guarded(token, ['limits:reset'], ADDRESS, limiter, each => each.reset('calls', ACCOUNT))
      expect(await reset(user)).toMatchObject({ reason: 'scope' })
      expect(await reset(operator)).toMatchObject({ ok: true, value: { allowed: true } })
    })

    it('are refused by the next trip after they were revoked, and from leases within a second', async () => {
      const token = await add(['limits:use'])
      const limiter = createGuardableLimiterOnStore(LEASING, failing, { clock: clock() })
      const call = () =>
        tokens.guarded(token, scopesForLimit('leased'), ADDRESS, limiter, each => each.limit('leased'))
      for (let i = 0; i < 30; i++) await call()
      expect(store.requests.length).toBeLessThan(30)
      await remove(token)
      expect(await call()).toMatchObject({ ok: true })
      nowMs += 1000
      const before = await stateOf()
      expect(await call()).toEqual({ ok: false, reason: 'unknown' })
      expect(await stateOf()).toEqual(before)
      // Not by a leased unit that was then refused.
      expect(lastCalls).toMatchObject([{ script: expect.anything() }])
    })

    it('keep the leases of others if they are refused a reset', async () => {
      const token = await add(['limits:use'])
      const leasing = createGuardableLimiterOnStore(LEASING, failing, { clock: clock() })
      const guarded = (text: string, call: (limiter: Limiter) => Promise<unknown>) =>
        tokens.guarded(text, scopesForLimit('leased'), ADDRESS, leasing, call)
      for (let i = 0; i < 30; i++) await guarded(token, each => each.limit('leased'))
      expect(await guarded(mintServiceToken(undefined), each => each.reset('leased'))).toMatchObject({
        reason: 'unknown',
      })
      const trips = store.requests.length
      expect(await guarded(token, each => each.limit('leased'))).toMatchObject({ value: { allowed: true } })
      expect(store.requests).toHaveLength(trips)
    })

    it('get no remembered refusal of the isolate unless they were checked within a second', async () => {
      const token = await add(['limits:use'])
      const call = (text: string) =>
        tokens.guarded(text, scopesForLimit('calls'), ADDRESS, limiter, each =>
          each.limit('calls', ACCOUNT, { cost: 10 }),
        )
      await call(token)
      await call(token)
      const trips = store.requests.length
      expect(await call(token)).toMatchObject({ ok: true, value: { allowed: false } })
      expect(store.requests).toHaveLength(trips)
      expect(await call(mintServiceToken(undefined))).toEqual({ ok: false, reason: 'unknown' })
      expect(lastCalls).toMatchObject([{ script: expect.anything() }])
    })

    it('get a local answer while the store fails only if they were checked within a second', async () => {
      const token = await add(['limits:use'])
      const call = () =>
        tokens.guarded(token, scopesForLimit('calls'), ADDRESS, limiter, each => each.limit('calls', ACCOUNT))
      failure = timeoutError()
      const refusal = isSlow('unknown')
      expect(await call()).toEqual(refusal)
      failure = undefined
      await call()
      failure = timeoutError()
      expect(await call()).toMatchObject({ ok: true, value: { degraded: 'store-timeout' } })
      nowMs += 1000
      expect(await call()).toEqual(refusal)
    })

    it('that are revoked while a call waits for a limit get nothing at its next try', async () => {
      const token = await add(['limits:use'])
      const sleep = async (ms: number) => {
        await remove(token)
        nowMs += ms
      }
      const waiting = createGuardableLimiterOnStore(CONFIG, failing, { clock: { ...clock(), sleep } })
      const guarded = (call: (limiter: Limiter) => Promise<unknown>) =>
        tokens.guarded(token, scopesForLimit('calls'), ADDRESS, waiting, call)
      await guarded(each => each.limit('calls', ACCOUNT, { cost: 10 }))
      const before = await stateOf()
      expect(await guarded(each => each.acquire('calls', ACCOUNT))).toEqual({ ok: false, reason: 'unknown' })
      expect(await stateOf()).toEqual(before)
    })

    it('let a refund be tried again after the store has failed', async () => {
      const token = await add(['limits:use'])
      const guarded = <T>(call: (limiter: Limiter) => Promise<T>) =>
        tokens.guarded(token, scopesForLimit('calls'), ADDRESS, limiter, call)
      const spent = await guarded(each => each.limit('calls', ACCOUNT))
      if (!spent.ok) throw new Error(spent.reason)
      nowMs += 1000
      failure = timeoutError()
      expect(await guarded(each => each.refund(spent.value))).toMatchObject({ reason: 'store' })
      failure = undefined
      expect(await guarded(each => each.refund(spent.value))).toMatchObject({
        value: { rules: [{ remaining: 10 }] },
      })
    })

    it('are checked even if all rules are switched off', async () => {
      const off = configOf({
        rules: [RULE],
        limits: { calls: [{ ...CALLS, mode: 'off' }] },
      })
      const limiter = createGuardableLimiterOnStore(off, failing, { clock: clock() })
      const call = (token: string) =>
        tokens.guarded(token, scopesForLimit('calls'), ADDRESS, limiter, each => each.limit('calls', ACCOUNT))
      expect(await call(mintServiceToken(undefined))).toEqual({ ok: false, reason: 'unknown' })
      expect(await call(await add(['limits:use']))).toMatchObject({ ok: true, value: { allowed: true } })
    })

    it('are checked in a trip before on a cluster, and for a second without one', async () => {
      const cluster = storeOf(redis, { isCluster: true })
      const limiter = createGuardableLimiterOnStore(CONFIG, cluster, { clock: clock() })
      const checks = checksOn(cluster)
      const call = (token: string) =>
        checks.guarded(token, scopesForLimit('calls'), ADDRESS, limiter, each => each.limit('calls', ACCOUNT))
      expect(await call(mintServiceToken(undefined))).toEqual({ ok: false, reason: 'unknown' })
      expect(await stateOf()).toEqual({})
      const token = await add(['limits:use'])
      expect(await call(token)).toMatchObject({ ok: true, value: { allowed: true } })
      expect(await call(token)).toMatchObject({ ok: true, value: { allowed: true } })
      expect(cluster.requests).toEqual([1, 1, 1, 1])
    })
  })
})
