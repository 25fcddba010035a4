/** `reserve` and `settle` of limits by name: in one process, in several, and through receipts. */
import { beforeEach, describe, expect, it } from 'vitest'
import type { LimitRuleInput } from '../../src/config/check/schema.ts'
import { GatewayError } from '../../src/errors.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import type { Limiter, ReservedDecision, SettledDecision } from '../../src/set-ups/limits/limiter-shape.ts'
import { createReceipts, type Receipt } from '../../src/set-ups/rpc/receipt.ts'
import type { Store } from '../../src/store/store.ts'
import { configOf, describeOnRedisEngine, type RedisEngine } from '../support/engines.ts'
import { settled as settledWork, Timers } from '../support/isolates.ts'
import { TERMS } from '../support/settled-rules.ts'
import { storeOf } from '../support/stores.ts'
import { NOON } from '../support/traffic.ts'

const config = configOf({
  units: { tokens: { estimate: 200, ttl: '10s' } },
  rules: [{ name: 'any', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }],
  limits: {
    llm: [
      { name: 'calls', by: ['team'], algorithm: 'fixed-window', limit: 100, period: '1d' },
      { name: 'tokens', unit: 'tokens', by: ['team'], algorithm: 'fixed-window', limit: 1000, period: '1d' },
    ],
    plain: [{ name: 'calls', algorithm: 'fixed-window', limit: 100, period: '1d' }],
  },
})
const { limits } = config
const DAY = { by: ['team'], algorithm: 'fixed-window' as const, period: '1d' as const }
const TWO_UNITS_RULES = [
  { ...DAY, name: 'tokens', unit: 'tokens', limit: 1000 },
  { ...DAY, name: 'usd', unit: 'usd', limit: 100 },
  { ...DAY, name: 'calls', limit: 10 },
] as const
const TWO_UNITS_INPUT = { units: { tokens: {}, usd: {} } }
const TWO_UNITS = configOf({ ...TWO_UNITS_INPUT, limits: { llm: TWO_UNITS_RULES.slice(0, 2) } })
const TEAM = { team: 'a' }

const standing = ({ rules }: Pick<SettledDecision, 'rules'>) =>
  Object.fromEntries(rules.map(({ name, remaining }) => [name, remaining]))

describeOnRedisEngine('a reservation of a limit by name', fresh => {
  it.each(['gcra', 'token-bucket'] as const)(
    'leaves a debt of %s that is never forgotten',
    async algorithm => {
      const { limits } = configOf({
        units: { tokens: { estimate: 1 } },
        limits: {
          llm: [
            { name: 'year', unit: 'tokens', algorithm, limit: 1000, period: '366d' } as LimitRuleInput,
            { name: 'calls', algorithm: 'fixed-window', limit: 100, period: '1h' },
          ],
        },
      })
      const limiter = createLimiterOnStore({ limits }, storeOf(await fresh()), {
        clock: { now: () => NOON, sleep: async () => {} },
      })
      const spend = async (tokens: number) => await limiter.limit('llm', {}, { amounts: { tokens } })
      const { rules } = await limiter.settle(await limiter.reserve('llm'), { tokens: 16_000 })
      // What comes back within three years is above the burst by two.
      expect(rules[0]).toMatchObject({ name: 'year', debt: 2000, resetAfterMs: 3 * 366 * 86400e3 })
      // The state is written, but not the record of the debt.
      expect((await spend(0)).allowed).toBe(true)
      expect((await spend(1)).allowed).toBe(false)
    },
  )

  let redis: RedisEngine
  let time: Timers
  let isAway: boolean
  let trips: number
  const open: Promise<unknown>[] = []
  const processOn = (limits = config.limits): Limiter => {
    const working = storeOf(redis)
    const store: Store = {
      ...working,
      run: async calls => {
        if (isAway) throw new GatewayError('ERR_STORE_UNREACHABLE', 'away', { fate: 'may-have-run' })
        trips += 1
        const replies = working.run(calls)
        open.push(replies)
        return await replies
      },
    }
    const clock = { now: () => time.nowMs * 1e3, sleep: async () => {}, timer: time.timer }
    return createLimiterOnStore({ limits }, store, { clock })
  }
  let limiter: Limiter
  /** Time passes only while no trip is under way. */
  const pass = async (ms: number) => {
    for (let passed = 0; passed < ms; passed += 250) {
      await time.pass(250)
      await Promise.all(open.splice(0))
      await settledWork()
    }
  }

  beforeEach(async () => {
    redis = await fresh()
    time = new Timers()
    isAway = false
    trips = 0
    limiter = processOn()
  })
  const left = async () => standing(await limiter.peek('llm', TEAM))

  it('is settled by what the call has cost, and says the state afterwards', async () => {
    const call = await limiter.reserve('llm', TEAM, { amounts: { tokens: 300 } })
    expect(call).toMatchObject({ allowed: true, reserved: { tokens: 300 }, costs: { calls: 1, tokens: 300 } })
    expect(standing(call)).toEqual({ calls: 99, tokens: 700 })
    const done = await call.settle({ tokens: 731 })
    expect(done).toMatchObject({ allowed: true, applied: true })
    expect(standing(done)).toEqual({ tokens: 269 })
    expect(trips).toBe(2)
    expect(time.waiting).toBe(0)
  })

  it('has the estimate of its unit if the call names none', async () => {
    expect((await limiter.reserve('llm', TEAM)).reserved).toEqual({ tokens: 200 })
    expect((await limiter.reserve('llm', TEAM, { cost: { tokens: 30 } })).reserved).toEqual({ tokens: 30 })
  })

  it('is settled once, whoever does it and however often', async () => {
    const { id, limit, identity, at, reserved, settle } = await limiter.reserve('llm', TEAM)
    const copy = JSON.parse(JSON.stringify({ id, limit, identity, at, reserved }))
    expect(await processOn().settle(copy, { tokens: 50 })).toMatchObject({ applied: true })
    expect(await settle({ tokens: 50 })).toMatchObject({ allowed: true, applied: false })
    expect(await limiter.settle(copy, { tokens: 1 })).toMatchObject({ applied: false })
    expect(await left()).toMatchObject({ tokens: 950 })
  })

  it('shows a debt if the call has cost more than the limit', async () => {
    const done = await (await limiter.reserve('llm', TEAM)).settle({ tokens: 1200 })
    expect(done.rules).toMatchObject([{ name: 'tokens', remaining: 0, debt: 200 }])
    expect((await limiter.reserve('llm', TEAM, { amounts: { tokens: 1 } })).allowed).toBe(false)
  })

  it('stays as it is if the call is released without a settlement', async () => {
    {
      await using call = await limiter.reserve('llm', TEAM)
      expect(call.allowed).toBe(true)
    }
    await time.pass(2 * TERMS.ttlMs)
    expect(trips).toBe(1)
    expect(await left()).toMatchObject({ tokens: 800 })
  })

  it('is renewed until it is settled', async () => {
    const call = await limiter.reserve('llm', TEAM)
    await pass(5 * TERMS.ttlMs)
    expect(await call.settle({ tokens: 0 })).toMatchObject({ applied: true })
    expect(await left()).toMatchObject({ tokens: 1000 })
  })

  it('can no longer be settled after its end, if it was released', async () => {
    const call = await limiter.reserve('llm', TEAM)
    call.release()
    await time.pass(TERMS.ttlMs)
    expect(await call.settle({ tokens: 0 })).toMatchObject({ allowed: true, applied: false })
    expect(await left()).toMatchObject({ tokens: 800 })
  })

  it('is settled in the background if the store does not answer', async () => {
    const call = await limiter.reserve('llm', TEAM)
    isAway = true
    expect(await call.settle({ tokens: 5 })).toMatchObject({
      ...{ allowed: false, applied: false, degraded: 'store-unreachable', rules: [] },
    })
    await time.pass(1000)
    isAway = false
    await time.pass(2000)
    expect(await left()).toMatchObject({ tokens: 995 })
  })

  it('is settled before a process ends', async () => {
    const call = await limiter.reserve('llm', TEAM)
    isAway = true
    await call.settle({ tokens: 5 })
    isAway = false
    await limiter.close()
    expect(await left()).toMatchObject({ tokens: 995 })
    await time.pass(TERMS.ttlMs)
  })

  it('does not exist if the call is refused, or if the store does not answer', async () => {
    const refused = await limiter.reserve('llm', TEAM, { cost: { calls: 101 } })
    isAway = true
    const degraded = await limiter.reserve('llm', TEAM)
    for (const call of [refused, degraded]) {
      expect(call.reserved).toBeUndefined()
      expect(await call.settle({ tokens: 5 })).toMatchObject({ applied: false })
    }
    isAway = false
    expect(degraded).toMatchObject({ allowed: true, degraded: 'store-unreachable' })
  })

  it('is not given back by a refund, which gives back the other units', async () => {
    const call = await limiter.reserve('llm', TEAM)
    await limiter.refund(call)
    expect(await left()).toEqual({ calls: 100, tokens: 800 })
    await call.settle({ tokens: 1 })
  })

  it('is not made by `limit`: its cost is final', async () => {
    const decision = await limiter.limit('llm', TEAM, { cost: { tokens: 40 } })
    expect(decision.reserved).toBeUndefined()
    await time.pass(2 * TERMS.ttlMs)
    expect(trips).toBe(1)
    await limiter.refund(decision)
    expect(await left()).toEqual({ calls: 100, tokens: 1000 })
  })

  it('makes room for other calls at once, although their refusals are remembered', async () => {
    const remembering = createLimiterOnStore(config, storeOf(redis), {
      clock: { now: () => time.nowMs * 1e3, sleep: async () => {}, timer: time.timer },
    })
    const call = await remembering.reserve('llm', TEAM, { amounts: { tokens: 1000 } })
    expect((await remembering.limit('llm', TEAM)).allowed).toBe(false)
    await call.settle({ tokens: 10 })
    expect((await remembering.limit('llm', TEAM)).allowed).toBe(true)
  })

  it('is settled by its receipt, in any isolate, and once', async () => {
    const receipts = createReceipts(limits, { now: () => time.nowMs })
    const call = await limiter.reserve('llm', TEAM)
    call.release()
    const receipt = JSON.parse(JSON.stringify(receipts.receiptOf(call)))
    expect(receipt).toMatchObject({ costs: { calls: 1 }, reserved: { tokens: 200 } })
    const other = createReceipts(limits, { now: () => time.nowMs })
    const first = await processOn().settle(other.decisionOf(receipt), { tokens: 20 })
    expect(first).toMatchObject({ applied: true, rules: [{ name: 'tokens', remaining: 980 }] })
    expect(await limiter.settle(receipts.decisionOf(receipt), { tokens: 20 })).toMatchObject({
      applied: false,
    })
  })

  it('is settled by its receipt, although one with the same id and other fields was used before', async () => {
    const receipts = createReceipts(limits, { now: () => time.nowMs })
    const receipt = receipts.receiptOf(await limiter.reserve('llm', TEAM))
    const { reserved: _, ...truncated } = receipt
    const wrong = [
      truncated,
      { ...receipt, reserved: { tokens: 1 } },
      { ...receipt, identity: { team: 'b' } },
    ]
    for (const each of wrong) {
      const decision = receipts.decisionOf(each)
      expect(await limiter.settle(decision, { tokens: 20 })).toMatchObject({ applied: false })
    }
    const decision = receipts.decisionOf(receipt)
    expect(await limiter.settle(decision, { tokens: 20 })).toMatchObject({ applied: true })
  })

  it('is settled by its receipt after a deployment that lowers a limit, changes the order of rules or adds one', async () => {
    const { receiptOf } = createReceipts(TWO_UNITS.limits)
    const [tokens, usd, calls] = TWO_UNITS_RULES
    const reserve = async () =>
      receiptOf(await processOn(TWO_UNITS.limits).reserve('llm', TEAM, { amounts: { tokens: 800, usd: 90 } }))
    for (const rules of [
      [{ ...tokens, limit: 500 }, usd],
      [usd, tokens],
      [calls, tokens, usd],
    ]) {
      const { limits } = configOf({ ...TWO_UNITS_INPUT, limits: { llm: rules } })
      const { decisionOf } = createReceipts(limits, { now: () => time.nowMs })
      const settled = await processOn(limits).settle(decisionOf(await reserve()), { tokens: 0, usd: 0 })
      expect(settled.applied).toBe(true)
      expect(standing(await processOn(TWO_UNITS.limits).peek('llm', TEAM))).toEqual({
        tokens: 1000,
        usd: 100,
      })
    }
  })

  it.each(['keep', 'release'] as const)(
    'is settled once by its receipt after a deployment without one of its rules, as far as it exists (%s)',
    async onUnsettled => {
      const units = { tokens: { onUnsettled }, usd: { onUnsettled } }
      const deployed = (rules: readonly object[]) =>
        configOf({ units, limits: { llm: rules } } as never).limits
      const [tokens, usd, calls] = TWO_UNITS_RULES
      const old = deployed([tokens, usd])
      const reserve = async () => {
        await processOn(old).reset('llm', TEAM)
        const call = await processOn(old).reserve('llm', TEAM, { amounts: { tokens: 800, usd: 90 } })
        call.release()
        return createReceipts(old).receiptOf(call)
      }
      const settle = async (rules: readonly object[], amounts: object, receipt?: Receipt) => {
        const now = deployed(rules)
        const { decisionOf } = createReceipts(now, { now: () => time.nowMs })
        return await processOn(now).settle(decisionOf(receipt ?? (await reserve())), { ...amounts })
      }
      const given = { tokens: 0, usd: 3 }
      const receipt = await reserve()
      expect(await settle([usd], given, receipt)).toMatchObject({
        ...{ allowed: true, applied: true, rules: [{ name: 'usd', remaining: 97 }] },
      })
      expect(await settle([usd], given, receipt)).toMatchObject({
        applied: false,
        rules: [{ remaining: 97 }],
      })
      expect(await settle([tokens, usd], given, receipt)).toMatchObject({ applied: false })
      expect(await settle([{ ...usd, name: 'dollars' }, tokens], given)).toMatchObject({
        ...{ applied: true, rules: [{ name: 'tokens', remaining: 1000 }] },
      })
      expect(standing(await processOn(old).peek('llm', TEAM))).toEqual({ tokens: 1000, usd: 10 })
      expect(await settle([calls], given)).toMatchObject({ allowed: true, applied: false, rules: [] })
      await expect(settle([usd], { usd: -1 })).rejects.toThrow('amounts.usd is -1.')
      await expect(settle([usd, tokens], { ...given, eur: 1 })).rejects.toThrow("no unit 'eur'")
    },
  )
})

describe('a wrong argument', () => {
  const store: Store = { run: () => Promise.reject(new Error()), ping: async () => {} }
  const limiter = createLimiterOnStore({ limits }, store)
  const RANGE = 'Use a whole number from 0 to 1000000000.'
  const decision = { limit: 'llm', identity: TEAM, at: 1, id: 'abcdefghijkl', reserved: { tokens: 200 } }

  it.each<[unknown, string]>([
    [{ tokens: -1 }, `amounts.tokens is -1. ${RANGE}`],
    [{ tokens: 1e9 + 1 }, `amounts.tokens is 1000000001. ${RANGE}`],
    [{ tokens: Number.NaN }, `amounts.tokens is NaN. ${RANGE}`],
    [{ tokens: 0.5 }, `amounts.tokens is 0.5. ${RANGE}`],
    [{ tokens: '5' }, `amounts.tokens is '5'. ${RANGE}`],
    [{ token: 5 }, "The limit 'llm' reserves no unit 'token'. Units: tokens."],
    [{ calls: 5 }, "The limit 'llm' reserves no unit 'calls'. Units: tokens."],
    [731, 'amounts is 731. Use an object with an amount for each unit, such as { tokens: 100 }.'],
    [undefined, 'amounts is undefined. Use an object with an amount for each unit, such as { tokens: 100 }.'],
  ])('of settle is rejected before anything is sent: %j', async (amounts, message) => {
    await expect(limiter.settle(decision, amounts as Record<string, number>)).rejects.toThrow(
      new TypeError(message),
    )
  })

  it('of a reservation leaves it as it is', async () => {
    const call = (await limiter.reserve('llm', TEAM)) as ReservedDecision
    await expect(call.settle({ token: 5 })).rejects.toThrow(TypeError)
  })

  it('of reserve is rejected', async () => {
    await expect(limiter.reserve('llm', TEAM, { amounts: { tokens: -1 } })).rejects.toThrow(
      'amounts.tokens is -1',
    )
    await expect(limiter.reserve('llm', TEAM, { amounts: { token: 1 } })).rejects.toThrow("no unit 'token'")
    await expect(limiter.reserve('llm', TEAM, { tokens: 1 } as object)).rejects.toThrow(
      "reserve has no option 'tokens'. Options: cost, amounts, numbers.",
    )
    await expect(limiter.reserve('plain')).rejects.toThrow(
      "The limit 'plain' reserves nothing: no rule counts a unit of the config. Use limit('plain').",
    )
  })
})
