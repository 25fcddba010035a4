/** How long a lease serves requests after the store has decided, on the model of the script and a clock that the test sets. */
import { describe, expect, it } from 'vitest'
import { createAnswers } from '../../../src/limiter/answers/answers.ts'
import { createLeases } from '../../../src/limiter/answers/leases.ts'
import { ScriptModel } from '../../../src/script/model.ts'
import type { RuleSet } from '../../../src/script/rule-set-shape.ts'
import { consumerStateKey } from '../../../src/store/keys.ts'
import { bound } from '../../support/bound.ts'
import { rulesOf } from '../../support/engines.ts'
import { knownAnswers, knownRequest } from '../../support/known-request.ts'

const KEY = consumerStateKey('acme')
const RULE_SET = { plans: ['free'], leases: true } as unknown as RuleSet

function setUp(forMs: number) {
  const [rule] = rulesOf({
    ...{ name: 'a', by: 'consumer', algorithm: 'fixed-window', limit: 100_000, period: '300d' },
    lease: { for: `${forMs}ms` },
  })
  const world = { time: 1e6 }
  const model = new ScriptModel()
  const known = knownAnswers(() => world.time)
  const answers = createAnswers(
    known,
    undefined,
    createLeases(known, { timer: () => () => {}, log: () => true }),
  )
  const demand = () => ({ ruleSet: RULE_SET, rules: [bound(rule!, KEY, 1, world.time)] })
  const request = () => answers.forRequest(knownRequest(demand()))
  /** Begins a trip that the store decides at once. @returns a function that ends the trip */
  function ask(lease = request()) {
    const outcome = model.decide({ ...demand(), wantedRequests: lease.beginTrip(), now: world.time * 1e3 })
    return () => void lease.endTrip(outcome)
  }
  /** Requests at one instant, each with a trip that takes `tripMs`: the isolate learns how long trips take and how many requests come. */
  function warmUp(tripMs: number) {
    const ends = Array.from({ length: 40 }, () => ask())
    world.time += tripMs
    for (const end of ends) end()
    // The leases of these trips are over.
    world.time += 10 * (forMs + tripMs)
    for (let i = 0; i < 40; i++) request()
  }
  const canServe = () => request().decideAfterWait() !== undefined
  return { world, request, canServe, ask, warmUp }
}

describe('a lease', () => {
  it.each([
    [250, 6],
    [250, 200],
    [50, 40],
    [10_000, 250],
  ])(
    'of %d ms ends that long after the start of a trip of %d ms, because the store may have decided then',
    (forMs, tripMs) => {
      const { world, request, canServe, ask, warmUp } = setUp(forMs)
      warmUp(tripMs)
      const startedAt = world.time
      const end = ask()
      world.time += tripMs
      end()
      expect(canServe()).toBe(true)
      world.time = startedAt + forMs - 1
      expect(request().decideAfterWait()).toBeDefined()
      world.time += 1
      expect(request().decideAfterWait()).toBeUndefined()
    },
  )

  it('does not count the time in which its trip has waited for its turn at the store', () => {
    const { world, request, canServe, ask, warmUp } = setUp(250)
    warmUp(6)
    const lease = request()
    const end = ask(lease)
    world.time += 400
    expect(lease.isNoLongerNeeded()).toBe(false)
    const sentAt = world.time
    world.time += 6
    end()
    world.time = sentAt + 249
    expect(canServe()).toBe(true)
    world.time += 1
    expect(canServe()).toBe(false)
  })

  it('that is over when its answer arrives serves only the requests that have waited for this answer', () => {
    const { world, request, canServe, ask, warmUp } = setUp(50)
    warmUp(240)
    const end = ask()
    world.time += 100
    const [waiting, trying] = [request(), request()]
    expect([waiting.pauseBeforeTrip(), trying.pauseBeforeTrip()]).toEqual([140, 140])
    // This one has made its own trip meanwhile.
    trying.beginTrip()
    world.time += 140
    end()
    expect(canServe()).toBe(false)
    expect(trying.isNoLongerNeeded()).toBe(false)
    expect(waiting.decideAfterWait()).toMatchObject({ decision: { kind: 'allowed', from: 'leases' } })
  })

  it('is not prolonged by a reply that a later one has overtaken', () => {
    const { world, canServe, ask, warmUp } = setUp(1000)
    warmUp(6)
    ask()()
    const endSlow = ask()
    world.time += 500
    const startedAt = world.time
    ask()()
    world.time += 300
    endSlow()
    world.time = startedAt + 999
    expect(canServe()).toBe(true)
    world.time += 1
    expect(canServe()).toBe(false)
  })

  it('ends if the clock is set back by more than a second, even to a time at which the lease had begun', () => {
    const { world, canServe, ask, warmUp } = setUp(10_000)
    warmUp(6)
    ask()()
    world.time += 5000
    expect(canServe()).toBe(true)
    const end = ask()
    world.time -= 3000
    expect(canServe()).toBe(false)
    end()
    expect(canServe()).toBe(false)
  })
})
