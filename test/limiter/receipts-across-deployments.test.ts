/**
 * Decisions are refunded and settled by later deployments, which have changed the numbers of rules. A book keeps what was spent in each
 * record, under whichever config: no unit is given back to a record that has not spent it, and what has not changed is settled as if nothing
 * had happened.
 */
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import type { LimitDecision, Limiter } from '../../src/set-ups/limits/limiter-shape.ts'
import { createReceipts } from '../../src/set-ups/rpc/receipt.ts'
import { configOf, describeOnRedisEngine, runsFor } from '../support/engines.ts'
import { forEvery } from '../support/property.ts'
import { SEED } from '../support/random.ts'
import { storeOf } from '../support/stores.ts'
import { NOON } from '../support/traffic.ts'

interface Numbers {
  algorithm: 'gcra' | 'token-bucket' | 'fixed-window' | 'sliding-window'
  limit: number
  period: '4d' | '8d'
}

/** The numbers of both rules; undefined: the deployment does not have the rule. */
interface Deployment {
  one: Numbers | undefined
  two: Numbers | undefined
  ttl: '10m' | '1h'
}

type RuleName = 'one' | 'two'
const NAMES = ['one', 'two'] as const

const numbers = fc.record<Numbers>({
  algorithm: fc.constantFrom('gcra', 'token-bucket', 'fixed-window', 'sliding-window'),
  limit: fc.constantFrom(12, 20),
  period: fc.constantFrom('4d', '8d'),
})
const deployment = fc.record<Deployment>({
  one: fc.option(numbers, { nil: undefined }),
  two: numbers,
  ttl: fc.constantFrom('10m', '1h'),
})

type Step =
  | { verb: 'deploy'; to: Deployment }
  | { verb: 'spend'; units: number }
  | { verb: 'end'; which: number; actual: number }
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ verb: fc.constant('deploy' as const), to: deployment }),
  fc.record({ verb: fc.constant('spend' as const), units: fc.integer({ min: 1, max: 6 }) }),
  fc.record({
    verb: fc.constant('end' as const),
    which: fc.nat(20),
    actual: fc.integer({ min: 0, max: 8 }),
  }),
)

/** What a reservation or a decision belongs to, and the record of a rate, which also depends on its limit. */
const familyOf = (name: RuleName, { algorithm, period }: Numbers) => `${name} ${algorithm} ${period}`
const recordOf = (name: RuleName, rule: Numbers) =>
  rule.algorithm.endsWith('window') ? familyOf(name, rule) : `${familyOf(name, rule)} ${rule.limit}`

/**
 * A refund of a rate leaves out what has drained since the decision, here some milliseconds of hours. After several of them, the last unit may
 * be missing.
 */
const lostBy = ({ algorithm }: Numbers) => (algorithm.endsWith('window') ? 0 : 1)

const kinds = {
  /** `limit` and `refund`. */
  refunded: {
    unit: {},
    spend: (limiter: Limiter, units: number) => limiter.limit('calls', {}, { cost: units }),
    end: async (limiter: Limiter, receipt: LimitDecision) => await limiter.refund(receipt),
    amountOf: () => 0,
  },
  /** `reserve` and `settle`. */
  settled: {
    unit: { unit: 'tokens' },
    spend: (limiter: Limiter, units: number) => limiter.reserve('calls', {}, { amounts: { tokens: units } }),
    end: async (limiter: Limiter, receipt: LimitDecision, actual: number) =>
      await limiter.settle(receipt, { tokens: actual }),
    amountOf: (actual: number) => actual,
  },
}

const allKinds = {
  ...kinds,
  'settled before they are released': { ...kinds.settled, onUnsettled: 'release' },
}

describeOnRedisEngine('decisions of an earlier deployment', fresh => {
  it.each(Object.entries(allKinds))(
    `are %s in the records that have spent (SEED=${SEED})`,
    async (_, kind) => {
      const redis = await fresh()
      let now = NOON
      const configFor = ({ ttl, ...rules }: Deployment) =>
        configOf({
          refusals: { rememberFor: 0 },
          rules: [{ name: 'any', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }],
          units: {
            tokens: { estimate: 5, ttl, ...('onUnsettled' in kind && { onUnsettled: kind.onUnsettled }) },
          },
          limits: {
            calls: NAMES.flatMap(name => (rules[name] ? [{ name, ...kind.unit, ...rules[name] }] : [])),
          },
        } as unknown as ConfigInput)
      await forEvery(
        fc.tuple(deployment, fc.array(step, { minLength: 3, maxLength: 14 })),
        runsFor(redis, 60),
        async ([first, steps]) => {
          await redis.send(['FLUSHALL'])
          let live = first
          const limiterOf = () =>
            createLimiterOnStore(configFor(live), storeOf(redis), {
              clock: { now: () => now, sleep: async () => {} },
            })
          let limiter = limiterOf()
          const book = new Map<string, number>()
          const spentIn = (name: RuleName) => book.get(recordOf(name, live[name]!)) ?? 0
          const add = (name: RuleName, units: number) =>
            book.set(recordOf(name, live[name]!), Math.max(0, spentIn(name) + units))
          const open: { receipt: LimitDecision; of: Deployment; units: number }[] = []
          for (const each of steps) {
            now += 1
            const known = NAMES.filter(name => live[name])
            if (each.verb === 'deploy') {
              live = each.to
              limiter = limiterOf()
            } else if (each.verb === 'spend') {
              const decision = await kind.spend(limiter, each.units)
              const fits = (least: number) =>
                known.every(
                  name => spentIn(name) + each.units + least * lostBy(live[name]!) <= live[name]!.limit,
                )
              expect([fits(0), fits(1)]).toContain(decision.allowed)
              if (!decision.allowed) continue
              for (const name of known) add(name, each.units)
              const receipt = createReceipts(configFor(live).limits).receiptOf(decision)
              open.push({ receipt: JSON.parse(JSON.stringify(receipt)), of: live, units: each.units })
            } else if (open.length > 0) {
              const [{ receipt, of, units }] = open.splice(each.which % open.length, 1) as [
                (typeof open)[number],
              ]
              const checked = createReceipts(configFor(live).limits, { now: () => now / 1e3 }).decisionOf(
                receipt,
              )
              const { changedRules = [] } = await kind.end(limiter, checked as LimitDecision, each.actual)
              const more = kind.amountOf(each.actual) - units
              const counted = NAMES.filter(name => of[name])
              const same = counted.filter(
                name => live[name] && recordOf(name, live[name]) === recordOf(name, of[name]!),
              )
              const related = counted.filter(
                name => live[name] && familyOf(name, live[name]) === familyOf(name, of[name]!),
              )
              expect(changedRules).toEqual(counted.filter(name => !same.includes(name)))
              for (const name of related) if (more > 0 || same.includes(name)) add(name, more)
            }
            const { rules } = await limiter.peek('calls')
            for (const name of NAMES.filter(name => live[name])) {
              const { remaining } = rules.find(rule => rule.name === name)!
              const most = Math.max(0, live[name]!.limit - spentIn(name))
              const least = Math.max(0, most - lostBy(live[name]!))
              expect([name, remaining >= least && remaining <= most]).toEqual([name, true])
            }
          }
        },
      )
    },
  )
})

describeOnRedisEngine('a receipt that was refunded, again after a deployment', fresh => {
  const day = { algorithm: 'fixed-window', limit: 20, period: '1d' } as const
  const byAccount = { name: 'day', by: ['account'], ...day } as const
  const others = [
    { name: 'month', by: ['account'], algorithm: 'fixed-window', limit: 1e6, period: '30d' },
    { name: 'burst', by: ['account', 'user'], algorithm: 'gcra', limit: 1e6, period: '1s' },
    { name: 'all', algorithm: 'gcra', limit: 1e6, period: '1m' },
  ] as const
  const [month, burst, all] = others
  it.each([
    ['has a rule with a longer period', [byAccount, month]],
    ['has a first rule that counts by other parts', [burst, byAccount]],
    ['has a first rule that counts all calls together', [all, byAccount]],
    ['has no other rules', [byAccount]],
  ])('gives nothing back if the later deployment %s', async (_, rules) => {
    for (const [before, after] of [
      [[byAccount, burst], rules],
      [rules, [byAccount, burst]],
      [rules, [byAccount, month, all]],
    ] as const) {
      const redis = await fresh()
      await redis.send(['FLUSHALL'])
      let now = NOON
      const deploy = (rules: readonly unknown[]) =>
        createLimiterOnStore(
          configOf({
            refusals: { rememberFor: 0 },
            rules: [{ name: 'any', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }],
            limits: { calls: rules },
          } as unknown as ConfigInput),
          storeOf(redis),
          { clock: { now: () => now, sleep: async () => {} } },
        )
      const identityOf = (rules: readonly { name: string; by?: readonly string[] }[]) =>
        rules.some(({ by = [] }) => by.includes('user')) ? { account: 1, user: 'b' } : { account: 1 }
      const left = async () => {
        const { rules } = await deploy([byAccount]).peek('calls', { account: 1 })
        return rules[0]!.remaining
      }
      const first = await deploy(before).limit('calls', identityOf(before), { cost: 5 })
      await deploy(before).limit('calls', identityOf(before), { cost: 10 })
      expect(await left()).toBe(5)
      const copy = () => structuredClone(JSON.parse(JSON.stringify(first)))
      await deploy(before).refund(copy())
      expect(await left()).toBe(10)
      for (const deployment of [after, before, [byAccount], after]) {
        now += 1_500_000
        await deploy(deployment).refund(copy())
        expect(await left()).toBe(10)
      }
    }
  })

  it('keeps the record of what was given back for as long as any deployment needs', async () => {
    const redis = await fresh()
    await redis.send(['FLUSHALL'])
    const deploy = (...limits: readonly unknown[]) =>
      createLimiterOnStore(
        configOf({
          rules: [{ name: 'any', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }],
          limits: { calls: limits },
        } as unknown as ConfigInput),
        storeOf(redis),
        { clock: { now: () => NOON, sleep: async () => {} } },
      )
    const minute = { name: 'minute', by: ['account'], algorithm: 'fixed-window', limit: 20, period: '1m' }
    const decision = await deploy(byAccount, minute).limit('calls', { account: 1 }, { cost: 5 })
    const copy = () => JSON.parse(JSON.stringify(decision))
    await deploy(byAccount, minute).refund(copy())
    await deploy(minute).refund(copy())
    const [key] = (await redis.send(['KEYS', '*:refunds:*'])) as Buffer[]
    expect(Number(await redis.send(['TTL', String(key)]))).toBeGreaterThan(86_400)
  })

  it('is given back once by this version and once by an earlier one, which reads no `records`', async () => {
    const redis = await fresh()
    await redis.send(['FLUSHALL'])
    const limiter = createLimiterOnStore(
      configOf({
        refusals: { rememberFor: 0 },
        rules: [{ name: 'any', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }],
        limits: { calls: [byAccount] },
      } as unknown as ConfigInput),
      storeOf(redis),
      { clock: { now: () => NOON, sleep: async () => {} } },
    )
    const first = await limiter.limit('calls', { account: 1 }, { cost: 5 })
    await limiter.limit('calls', { account: 1 }, { cost: 15 })
    const { records: _, ...ofEarlier } = first
    const left: number[] = []
    for (const receipt of [first, ofEarlier, first, ofEarlier]) {
      const { rules } = await limiter.refund(JSON.parse(JSON.stringify(receipt)))
      left.push(rules[0]!.remaining)
    }
    // docs/internals/script.md says why.
    expect(left).toEqual([5, 10, 10, 10])
  })
})
