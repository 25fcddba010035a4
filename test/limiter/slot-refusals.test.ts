/** What an isolate remembers of refusals by the slots of a cluster. */
import { expect, it } from 'vitest'
import { SlotRefusals } from '../../src/limiter/slot-refusals.ts'
import type { Verdict } from '../../src/script/evaluation.ts'
import { bound } from '../support/bound.ts'
import { rulesOf } from '../support/engines.ts'

const [rule] = rulesOf({ name: 'window', by: 'address', algorithm: 'fixed-window', limit: 2, period: '1h' })
const verdict: Verdict = {
  ...{ rule: rule!, mode: 'enforce', allowed: false, remaining: 0 },
  ...{ resetAfter: 0, retryAfter: 5000e3, delay: 0 },
}
const at = (key: string, cost = 1) => [bound(rule!, key, cost)]
const TRIP = [1000, 1100] as const

it('a refusal is likely until the store would admit, less the time of a trip', () => {
  const refusals = new SlotRefusals()
  expect(refusals.areLikely(at('a'), 1100)).toBe(false)
  refusals.note(at('a'), [verdict], ...TRIP)
  expect([1100, 5899, 5900].map(now => refusals.areLikely(at('a'), now))).toEqual([true, true, false])
  expect([refusals.areLikely(at('b'), 1100), refusals.areLikely(at('a', 0), 1100)]).toEqual([false, false])
})

it.each([
  ['a shadow', { mode: 'shadow' }],
  ['one that ends within a trip', { retryAfter: 150e3 }],
] as const)('%s is not likely to come again', (_, change) => {
  const refusals = new SlotRefusals()
  refusals.note(at('a'), [{ ...verdict, ...change }], ...TRIP)
  expect(refusals.areLikely(at('a'), 1100)).toBe(false)
})

it('a cost that the rule never admits is refused for a minute', () => {
  const refusals = new SlotRefusals()
  refusals.note(at('a', 3), [{ ...verdict, retryAfter: -1 }], ...TRIP)
  expect([60_899, 60_900].map(now => refusals.areLikely(at('a', 3), now))).toEqual([true, false])
})

it('is bounded', () => {
  const refusals = new SlotRefusals()
  for (let i = 0; i < 10_000; i++) refusals.note(at(`${i}`), [verdict], ...TRIP)
  const kept = Array.from({ length: 10_000 }, (_, i) => refusals.areLikely(at(`${i}`), 1100)).filter(Boolean)
  expect(kept.length).toBeGreaterThanOrEqual(4000)
  expect(kept.length).toBeLessThanOrEqual(8000)
})
