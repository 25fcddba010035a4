/**
 * Requests that reserve units of several identities, and count as in flight: in random orders of events, with lost and late trips. When all
 * of them are over, the store has counted what the admitted ones have cost, and nothing is in flight.
 */
import { expect, it } from 'vitest'
import type { RuleInput } from '../../../src/config/check/schema.ts'
import type { Rule } from '../../../src/config/compile-rule.ts'
import { GatewayError } from '../../../src/errors.ts'
import type { Decided } from '../../../src/limiter/engine-shape.ts'
import { consumerStateKey } from '../../../src/store/keys.ts'
import { randomCases } from '../../selection.ts'
import { describeOnRedisEngine, rulesOf } from '../../support/engines.ts'
import { isolateOn, Timers } from '../../support/isolates.ts'
import { randomFrom, SEED } from '../../support/random.ts'
import { settled } from '../../support/settled-rules.ts'

const LIMIT = 100_000
const MOST_IN_FLIGHT = 50
const CONSUMERS = ['acme', 'other']
const EVERYBODY = consumerStateKey('everybody')
const STEPS = 40

const common = { by: 'consumer', onStoreFailure: 'closed' } as const
const window = (name: string, algorithm: 'fixed-window' | 'sliding-window'): RuleInput => ({
  ...{ ...common, name, algorithm, limit: LIMIT, period: '1d' },
})
/** The first rule of the first identity counts units in flight. */
const [inFlight, tokens, plain, money, total] = rulesOf(
  { ...common, name: 'in-flight', algorithm: 'concurrency', limit: MOST_IN_FLIGHT, ttl: '10s' },
  window('tokens', 'fixed-window'),
  window('plain', 'fixed-window'),
  window('money', 'sliding-window'),
  window('total', 'fixed-window'),
) as [Rule, Rule, Rule, Rule, Rule]

const FAULTS = ['lost request', 'lost reply', 'late'] as const

describeOnRedisEngine('requests that reserve and are in flight', (fresh, kind) => {
  it.each(['keep', 'release'] as const)('cost what they have cost (unsettled: %s)', async onUnsettled => {
    const reserving = [tokens, money, total].map(rule => settled(rule, { onUnsettled }))
    for (let run = 0; run < randomCases(12, kind); run++) {
      const redis = await fresh()
      const time = new Timers()
      const random = randomFrom(SEED + run)
      const isolates = ['A', 'B'].map(name => isolateOn(redis, time, name))
      const lost = (fate: 'not-sent' | 'may-have-run') => new GatewayError('ERR_STORE_TIMEOUT', '', { fate })
      let isFaulty = true
      for (const isolate of isolates)
        isolate.fault = async execute => {
          const fault = isFaulty && random.chance(0.25) ? random.pick(FAULTS) : undefined
          if (fault === 'lost request') throw lost('not-sent')
          const replies = await execute()
          if (fault === 'late') await new Promise<void>(resolve => time.timer(300, resolve))
          if (fault === 'lost reply') throw lost('may-have-run')
          return replies
        }
      const demandOf = (consumer: string, costOf: () => number) =>
        [inFlight, ...reserving.slice(0, 1), plain, ...reserving.slice(1)].map(rule => ({
          rule,
          key: rule.name === 'total' ? EVERYBODY : consumerStateKey(consumer),
          cost: rule.settlement ? costOf() : 1,
        }))
      const used = new Map<string, number>()
      const open: Decided[] = []
      const finish = ({ finish, stake }: Decided) => {
        const { rules } = stake!.reservation!
        const costs = new Map(rules.map(({ rule }) => [rule.name, random.pick([0, 5, 80, 300])]))
        for (const { rule, key } of rules) {
          const name = `${rule.name} ${key}`
          used.set(name, (used.get(name) ?? 0) + costs.get(rule.name)!)
        }
        finish('complete', rule => costs.get(rule.name))
        finish('complete', () => 5000)
      }
      const asked: Promise<void>[] = []
      for (let i = 0; i < STEPS; i++) {
        const demand = demandOf(random.pick(CONSUMERS), () => random.pick([1, 50, 100]))
        const ask = async () => {
          const decided = await random.pick(isolates).askWith(demand)
          if (decided.decision.kind === 'allowed') open.push(decided)
          else decided.finish('complete')
        }
        asked.push(ask())
        if (random.chance(0.8) && open.length > 0) finish(open.splice(random.int(0, open.length - 1), 1)[0]!)
        await time.pass(random.pick([0, 0, 50, 400, 3000]))
      }
      isFaulty = false
      await time.pass(1000)
      await Promise.all(asked)
      expect(open.length + used.size).toBeGreaterThan(0)
      for (const decided of open.splice(0)) finish(decided)
      await time.pass(8000)

      for (const { settlements } of isolates) expect(settlements.backlog).toEqual({ waiting: 0, dropped: 0 })
      for (const consumer of CONSUMERS) {
        const seen = isolateOn(redis, time, 'Z')
        const demand = demandOf(consumer, () => 0)
        const { outcome, finish } = await seen.askWith(demand)
        for (const { rule, remaining } of outcome!.verdicts) {
          const { key } = demand.find(each => each.rule.name === rule.name)!
          const what = `run ${run}, ${rule.name} ${key}`
          if (rule.settlement) expect(LIMIT - remaining, what).toBe(used.get(`${rule.name} ${key}`) ?? 0)
          if (rule === inFlight) expect(remaining, what).toBe(MOST_IN_FLIGHT - 1)
        }
        finish('complete')
        await time.pass(600)
      }
    }
  })
})
