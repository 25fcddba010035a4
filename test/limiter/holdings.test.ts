/** The holdings of an isolate, without a store. interleavings.test.ts and concurrency.test.ts test them together with the store. */
import { describe, expect, it } from 'vitest'
import { Holdings } from '../../src/limiter/holdings.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import { bound } from '../support/bound.ts'
import { rulesOf } from '../support/engines.ts'
import { NOON } from '../support/traffic.ts'

const [rule] = rulesOf({ name: 'a', by: 'consumer', algorithm: 'concurrency', limit: 5 })
const claimed = (consumer = 'acme') => bound(rule!, consumerStateKey(consumer), 1, NOON / 1e3)

describe('the holdings of an isolate', () => {
  it('never repeat an epoch under one name: when all are used up, the isolate gets another name', () => {
    let names = 0
    const holdings = new Holdings(
      () => NOON / 1e3,
      () => `isolate${names++}`,
      3,
    )
    const texts = Array.from({ length: 9 }, (_, i) => {
      const { holder, epoch } = holdings.claim(claimed(`caller-${i}`)).holding
      return `${holder} ${epoch}`
    })
    expect(new Set(texts).size).toBe(9)
    expect(texts.map(text => Number(text.at(-1)))).toEqual([1, 2, 3, 1, 2, 3, 1, 2, 3])
  })

  it('move to the new name with all units', () => {
    let names = 0
    const holdings = new Holdings(
      () => NOON / 1e3,
      () => `isolate${names++}`,
      1,
    )
    const one = holdings.claim(claimed())
    holdings.settle(one, 'admitted')
    const lost = holdings.claim(claimed())
    holdings.settle(lost, 'lost')
    expect(holdings.unconfirmed()).toEqual([
      expect.objectContaining({ holding: { holder: 'isolate1', epoch: 1, started: 1, ended: 0 } }),
    ])
  })

  it('count a unit that was admitted without the store in addition to one whose reply has not arrived', () => {
    const holdings = new Holdings(() => NOON / 1e3)
    const pending = holdings.claim(claimed())
    const own = holdings.claim(claimed())
    holdings.settle(own, 'refused')
    holdings.hold(own)
    const next = holdings.claim(claimed())
    // The new epoch contains both units, so the store no longer adds the first one.
    expect(next.holding.epoch).toBeGreaterThan(pending.holding.epoch)
    expect(next.holding.started - next.holding.ended).toBe(2)
    holdings.settle(pending, 'admitted')
    expect(holdings.claim(claimed()).holding).toMatchObject({ started: 2, ended: 0 })
  })

  it('do not confuse a claim under the old name with one of the same epoch under the new name', () => {
    let names = 0
    const holdings = new Holdings(
      () => NOON / 1e3,
      () => `isolate${names++}`,
      1,
    )
    const [one, lost] = [holdings.claim(claimed()), holdings.claim(claimed())]
    holdings.settle(lost, 'lost')
    // The holding has epoch 1 again, but under the new name, and already counts the first claim as admitted.
    holdings.settle(one, 'admitted')
    expect(holdings.claim(claimed()).holding).toMatchObject({ holder: 'isolate1', started: 1, ended: 0 })
  })

  it('settle a claim once, and release it once', () => {
    const holdings = new Holdings(() => NOON / 1e3)
    const claim = holdings.claim(claimed())
    holdings.settle(claim, 'admitted')
    holdings.settle(claim, 'lost')
    holdings.release(claim)
    holdings.release(claim)
    expect(holdings.claim(claimed()).holding).toMatchObject({ started: 1, ended: 1 })
  })
})
