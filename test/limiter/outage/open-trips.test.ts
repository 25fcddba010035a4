/** Decisions on their way to the store: the isolate leaves units for them when it decides by itself. */

import { beforeEach, expect, it } from 'vitest'
import type { LimitRuleInput } from '../../../src/config/check/schema.ts'
import { createLocalLimiter } from '../../../src/limiter/outage/local.ts'
import { createOpenTrips, type OpenTrips } from '../../../src/limiter/outage/open-trips.ts'
import type { BoundRule, Evaluation } from '../../../src/script/evaluation.ts'
import { counted, KEY, OTHER_KEY, TEN } from '../../support/local-rules.ts'
import { ruleSetOf } from '../../support/rule-set.ts'
import { NOON } from '../../support/traffic.ts'

let nowMs: number
let openTrips: OpenTrips

beforeEach(() => {
  nowMs = NOON / 1e3
  openTrips = createOpenTrips(() => nowMs)
})

const begin = (rules: readonly BoundRule[], rest: Partial<Evaluation> = {}) =>
  openTrips.begin({ rules, ...rest })
const units = (key = KEY) => openTrips.unitsOf(counted(TEN, 1, key), undefined)

it('the units of a trip are open until it ends', () => {
  const ends = [begin([counted(TEN, 3)]), begin([counted(TEN, 1)], { wantedRequests: 5 })]
  expect(units()).toBe(8)
  expect(units(OTHER_KEY)).toBe(0)
  ends[0]!()
  expect(units()).toBe(5)
  ends[1]!()
  expect(units()).toBe(0)
})

it('a trip that the platform has ended is forgotten after 20 to 40 s', () => {
  begin([counted(TEN, 3)])
  nowMs += 21_000
  const end = begin([counted(TEN, 1)])
  expect(units()).toBe(4)
  nowMs += 21_000
  expect(units()).toBe(1)
  nowMs += 100_000
  expect(units()).toBe(0)
  end()
  expect(units()).toBe(0)
})

it('the variants of a rule for several plans count once', () => {
  begin([counted(TEN, 2), counted({ ...TEN, limit: 20 }, 2)])
  expect(units()).toBe(2)
})

it('opaque keys of unknown consumers are counted separately from each other', () => {
  const subject = (digest: string) => ({
    ...({ kind: 'pointer', pointerKey: `sluice:{k:${digest}}:pointer` } as const),
    ...{ consumerKey: 'sluice:{c:?}:consumer', credentialKey: 'sluice:{c:?}:key:0' },
  })
  const unknown = counted(TEN, 1, 'sluice:{c:?}:state')
  begin([unknown], { subject: subject('a1') })
  expect(openTrips.unitsOf(unknown, subject('a1'))).toBe(1)
  expect(openTrips.unitsOf(unknown, subject('b2'))).toBe(0)
})

it('rules at cost 0, shadows and rules that the isolate does not count leave nothing open', () => {
  const closed = counted({ ...TEN, onStoreFailure: 'closed' } as LimitRuleInput, 1)
  begin([counted(TEN, 0), { ...counted(TEN, 1), mode: 'shadow' }, closed])
  expect(units()).toBe(0)
})

it('the isolate refuses a request that would take open units, and spends nothing', () => {
  const local = createLocalLimiter(1, () => nowMs)
  const rules = [counted(TEN, 4)]
  const ruleSet = ruleSetOf(rules)
  const refused = local.decide(ruleSet, rules, 'decide', [7])
  expect(refused).toMatchObject({
    admitted: false,
    verdicts: [{ allowed: false, remaining: 3, retryAfter: 1e6 }],
  })
  expect(local.decide(ruleSet, rules, 'decide', [6])).toMatchObject({
    admitted: true,
    verdicts: [{ remaining: 6 }],
  })
  expect(local.decide(ruleSet, rules, 'peek', [3]).admitted).toBe(false)
})
