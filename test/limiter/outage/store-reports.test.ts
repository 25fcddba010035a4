/** While the store does not answer, the isolate admits no more than the store has last reported as remaining. */

import { beforeEach, describe, expect, it } from 'vitest'
import type { LimitRuleInput } from '../../../src/config/check/schema.ts'
import { GatewayError } from '../../../src/errors.ts'
import { createLocalLimiter, type LocalLimiter } from '../../../src/limiter/outage/local.ts'
import { createStoreReports } from '../../../src/limiter/outage/store-reports.ts'
import { prepareDecide, runCalls } from '../../../src/limiter/prepared-call.ts'
import type { DecideVerb } from '../../../src/script/decide.ts'
import type { BoundRule, Outcome } from '../../../src/script/evaluation.ts'
import type { Store } from '../../../src/store/store.ts'
import { compiled, describeOnRedisEngine } from '../../support/engines.ts'
import { counted as countedAt, KEY, OTHER_KEY, RULES_FOR_TEN, TEN } from '../../support/local-rules.ts'
import { ruleSetOf } from '../../support/rule-set.ts'
import { storeOf } from '../../support/stores.ts'
import { NOON } from '../../support/traffic.ts'
import { sendAlone } from '../../support/trips.ts'

let nowMs: number
let local: LocalLimiter

beforeEach(() => {
  nowMs = NOON / 1e3
  // The store counts by the same clock: otherwise units refill there until today.
  local = createLocalLimiter(
    1,
    () => nowMs,
    () => nowMs * 1e3,
  )
})

const counted = (rule: LimitRuleInput, cost: number, key?: string) => countedAt(rule, cost, key, nowMs)

const decide = (rules: readonly BoundRule[], verb?: DecideVerb) => local.decide(ruleSetOf(rules), rules, verb)

/** How many of `most` requests the isolate admits. */
const admittedOf = (most: number, rule: LimitRuleInput, key = KEY) => {
  let admitted = 0
  for (let i = 0; i < most; i++) if (decide([counted(rule, 1, key)]).admitted) admitted += 1
  return admitted
}

/** Notes a reply of the store in which so many units remain. */
function report(rule: LimitRuleInput, remaining: number, outcome: Partial<Outcome> = {}, key = KEY): void {
  const bound = counted(rule, 1, key)
  const times = { resetAfter: 0, retryAfter: 0, delay: 0 }
  local.noteReport([bound], {
    ...{ status: 'admitted', plan: '', at: nowMs * 1e3 },
    verdicts: [{ rule: bound.rule, mode: 'enforce', allowed: true, remaining, ...times }],
    ...outcome,
  })
}

async function decideInStore(store: Store, rule: LimitRuleInput, cost: number) {
  const rules = [counted(rule, cost)]
  const call = prepareDecide({ ...compiled({ rules, plans: [] }), now: nowMs * 1e3 })
  const [outcome] = await runCalls(store, [call])
  return { rules, outcome: outcome as Outcome }
}

describeOnRedisEngine('after an answer of the store, the isolate admits what is left', fresh => {
  it.each(RULES_FOR_TEN)('$name', async rule => {
    const store = storeOf(await fresh())
    const rules = [counted(rule, 7)]
    const [outcome] = await runCalls(store, [
      prepareDecide({ ...compiled({ rules, plans: [] }), now: nowMs * 1e3 }),
    ])
    local.noteReport(rules, outcome as Outcome)
    const left = (outcome as Outcome).verdicts[0]!.remaining
    expect(left).toBeLessThan(5)
    expect(admittedOf(10, rule)).toBe(left)
  })

  it('until its window ends, if that has started with a request', async () => {
    const store = storeOf(await fresh())
    const minute: LimitRuleInput = {
      ...{ name: 'minute', algorithm: 'fixed-window', limit: 10, period: '1m', start: 'first-request' },
    }
    await decideInStore(store, minute, 10)
    nowMs += 50_000
    const { rules, outcome } = await decideInStore(store, minute, 1)
    expect(outcome.status).toBe('refused')
    local.noteReport(rules, outcome)
    nowMs += 9999
    expect(admittedOf(20, minute)).toBe(0)
    nowMs += 1
    expect(admittedOf(20, minute)).toBe(10)
  })

  it('and hands over only what it has admitted itself', async () => {
    const store = storeOf(await fresh())
    const week: LimitRuleInput = { ...TEN, period: '7d' }
    const { rules, outcome } = await decideInStore(store, week, 6)
    local.noteReport(rules, outcome)
    expect(admittedOf(3, week)).toBe(3)
    await sendAlone(local.handOvers, store)
    expect((await decideInStore(store, week, 0)).outcome.verdicts[0]!.remaining).toBe(1)
    expect(admittedOf(3, week)).toBe(1)
  })
})

describe('the report of the store', () => {
  it('is not needed: without one, an identity has its whole budget', () => {
    report(TEN, 2)
    expect(admittedOf(20, TEN, OTHER_KEY)).toBe(10)
  })

  it('counts from the time of the answer, so that units have refilled since', () => {
    report(TEN, 0)
    nowMs += 4000
    expect(admittedOf(20, TEN)).toBe(4)
  })

  it('is about the window of the store, if the clock of the store is behind', () => {
    const minute: LimitRuleInput = { name: 'minute', algorithm: 'fixed-window', limit: 10, period: '1m' }
    report(minute, 0, { at: (nowMs - 1) * 1e3 })
    expect(admittedOf(20, minute)).toBe(10)
  })

  it('does not give back units that this isolate has admitted since and not handed over', () => {
    expect(admittedOf(4, TEN)).toBe(4)
    // The store has counted one request, and none of those four.
    report(TEN, 9)
    expect(admittedOf(20, TEN)).toBe(5)
  })

  it('leaves the share of the isolate as it is, if the store has more units left', () => {
    local = createLocalLimiter(0.5, () => nowMs)
    report(TEN, 8)
    report(TEN, 3, {}, OTHER_KEY)
    expect(admittedOf(20, TEN)).toBe(5)
    expect(admittedOf(20, TEN, OTHER_KEY)).toBe(3)
  })

  it('applies to a peek as well', () => {
    report(TEN, 3)
    expect(decide([counted(TEN, 1)], 'peek').verdicts[0]!.remaining).toBe(3)
  })

  it('is replaced by a later one, whatever the order of the replies', () => {
    report(TEN, 1, { at: (nowMs - 20) * 1e3 })
    report(TEN, 6, { at: (nowMs - 10) * 1e3 })
    report(TEN, 9, { at: (nowMs - 30) * 1e3 })
    expect(admittedOf(20, TEN)).toBe(6)
  })

  it('with fewer units counts, if two have the same time', () => {
    report(TEN, 3)
    report(TEN, 4)
    expect(admittedOf(20, TEN)).toBe(3)
  })

  it('does not include units whose hand-over is on its way', async () => {
    expect(admittedOf(4, TEN)).toBe(4)
    const replies = Promise.withResolvers<unknown[]>()
    const handOver = sendAlone(local.handOvers, { run: () => replies.promise, ping: async () => {} })
    // The store has counted one request, and none of those four yet.
    report(TEN, 9)
    expect(admittedOf(20, TEN)).toBe(5)
    replies.reject(new GatewayError('ERR_STORE_TIMEOUT', 'late'))
    await expect(handOver).rejects.toThrow('late')
  })

  it('includes units that were handed over before', async () => {
    expect(admittedOf(4, TEN)).toBe(4)
    const run = async (calls: readonly unknown[]) => calls.map(() => [1, '', NOON, 0, 1, 1, 0])
    await sendAlone(local.handOvers, { run, ping: async () => {} })
    report(TEN, 5)
    expect(admittedOf(20, TEN)).toBe(5)
  })

  it('is ignored for a shadow, and for units in flight', () => {
    const bound = counted(TEN, 1)
    const held = counted({ name: 'held', algorithm: 'concurrency', limit: 10 } as LimitRuleInput, 1)
    const reports = createStoreReports(() => 0)
    const numbers = { allowed: true, remaining: 0, resetAfter: 0, retryAfter: 0, delay: 0 }
    const verdicts = [
      { ...numbers, rule: bound.rule, mode: 'shadow' as const },
      { ...numbers, rule: held.rule, mode: 'enforce' as const },
    ]
    reports.note([bound, held], { status: 'admitted', plan: '', at: NOON, verdicts }, nowMs)
    expect([bound, held].map(reports.take)).toEqual([undefined, undefined])
  })

  it('is forgotten when the keys are reset', () => {
    report(TEN, 0)
    local.forgetReports([KEY])
    expect(admittedOf(20, TEN)).toBe(10)
  })

  it('is about the consumer, if only the store knew the consumer', () => {
    const [unknown, known] = ['sluice:{c:?}:state', 'sluice:{c:acme}:state']
    report(TEN, 2, { consumer: 'acme' }, unknown)
    expect(admittedOf(20, TEN, known)).toBe(2)
  })

  it('is ignored for rules that the isolate does not count', () => {
    report({ ...TEN, onStoreFailure: 'closed' } as LimitRuleInput, 0)
    expect(admittedOf(20, TEN)).toBe(10)
  })

  it('is kept for a bounded number of identities', () => {
    for (let i = 0; i < 25_000; i++) report(TEN, 0, {}, `sluice:{ip:${i}}:state`)
    expect(decide([counted(TEN, 1, 'sluice:{ip:0}:state')]).admitted).toBe(true)
    expect(decide([counted(TEN, 1, 'sluice:{ip:24999}:state')]).admitted).toBe(false)
  })
})
