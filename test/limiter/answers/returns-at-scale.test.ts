/** Many leases end at once: all their unused units are given back without further requests, or the log says how many are not. */
import { describe, expect, it } from 'vitest'
import { type CallFate, GatewayError } from '../../../src/errors.ts'
import { createActiveLeases } from '../../../src/limiter/answers/active-leases.ts'
import type { Lease } from '../../../src/limiter/answers/known.ts'
import type { LeaseGrant } from '../../../src/limiter/answers/lease-units.ts'
import { RequestRate } from '../../../src/limiter/answers/renewal.ts'
import type { Refund } from '../../../src/script/refund.ts'
import type { RuleSet } from '../../../src/script/rule-set-shape.ts'
import type { Store, StoreCall } from '../../../src/store/store.ts'
import { bound } from '../../support/bound.ts'
import { rulesOf } from '../../support/engines.ts'
import { knownAnswers } from '../../support/known-request.ts'
import { tripsOn } from '../../support/trips.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

const [RULE] = rulesOf({
  ...{ name: 'a', by: 'consumer', algorithm: 'fixed-window', limit: 100, period: '300d' },
  lease: { for: '250ms' },
})
const LEFT = 5

/** An isolate whose leases have saved enough trips, and a store that does not answer while it is away. */
function setUp() {
  const time = new VirtualClock()
  const known = knownAnswers(() => time.nowMs)
  const lines: Record<string, unknown>[] = []
  const store = { fault: undefined as CallFate | undefined, trips: [] as number[], units: 0 }
  const active = createActiveLeases(known, {
    timer: (ms, run) => time.after(ms, run),
    log: (_, event, fields) => lines.push({ event, ...fields }) > 0,
    buildRefundCall: refund => ({ command: 'GET', key: 'refund', refund }) as StoreCall,
  })
  const run: Store['run'] = async calls => {
    await time.pass(5)
    if (store.fault) throw new GatewayError('ERR_STORE_UNREACHABLE', 'It is away.', { fate: store.fault })
    store.trips.push(calls.length)
    for (const { refund } of calls as unknown as { refund: Refund }[]) store.units += refund.rules[0]!.units
    return calls.map(() => [])
  }
  const trips = tripsOn({ run, ping: async () => {} }, [active.returns], {
    now: () => time.nowMs,
    timer: (ms, run) => time.after(ms, run),
  })
  active.savedTrips = 1000

  /** Adds leases that are used now. */
  function hold(leases: number): void {
    for (let i = 0; i < leases; i++) active.add(leaseOf(i, time.nowMs, known.changes))
  }
  /** A request ends, and no other one comes. */
  const endRequest = () => trips.schedule(work => void work.catch(() => {}))
  return { time, active, store, lines, hold, endRequest }
}

function leaseOf(i: number, nowMs: number, asOf: number): Lease {
  const outcome = { status: 'admitted', verdicts: [], at: nowMs * 1e3, plan: '' }
  const evaluation = { ruleSet: { plans: ['free'] } as unknown as RuleSet, rules: [] }
  const units = [
    { bound: bound(RULE!, `key${i}`), ruleIndex: 0, spent: 10, left: LEFT, departsAt: 0, interval: 0 },
  ]
  const times = { answeredAt: nowMs, endsAt: nowMs + 250, keptUntil: nowMs + 250 }
  return {
    ...{ leaseMs: 250, rate: new RequestRate(), lastUsedAt: nowMs, isScarce: false, grantedShare: 1 },
    grants: [{ evaluation, outcome, units, answeredAt: nowMs }] as unknown as LeaseGrant[],
    lastAnswer: {
      ...times,
      asOf,
      outcome,
      switches: {},
      renewal: undefined,
    } as unknown as Lease['lastAnswer'],
    ...{ renewal: undefined, refusedUntil: Number.NEGATIVE_INFINITY },
  }
}

describe('leases that end at once', () => {
  it('give all units back after the last request, 8,000 in less than 10 s and with few trips', async () => {
    const { time, store, lines, hold, endRequest } = setUp()
    hold(8000)
    endRequest()
    await time.run(time.nowMs + 10_000)
    expect(store.units).toBe(8000 * LEFT)
    expect(store.trips.length).toBeLessThanOrEqual(80)
    expect(lines).toEqual([])
  })

  it('are told by the log with their number, if the store is away for too long', async () => {
    const { time, store, lines, hold, endRequest } = setUp()
    store.fault = 'not-sent'
    hold(300)
    endRequest()
    await time.run(time.nowMs + 11_000)
    endRequest()
    expect(told(lines)).toEqual({ leases: 300, units: 300 * LEFT })
    expect(lines[0]!.detail).toMatch('For 10 s, no trip could take them to the store.')
    store.fault = undefined
    await time.run(time.nowMs + 11_000)
    expect(store.units).toBe(0)
  })

  it('are told by the log with their number, if their trip has failed: they are not sent twice', async () => {
    const { time, store, lines, hold, endRequest } = setUp()
    store.fault = 'may-have-run'
    hold(30)
    endRequest()
    await time.run(time.nowMs + 1000)
    expect(told(lines)).toEqual({ leases: 30, units: 30 * LEFT })
    expect(store.units).toBe(0)
  })

  it('are told by the log with their number, if more of them wait than memory is for', async () => {
    const { time, store, lines, hold, endRequest } = setUp()
    hold(10_500)
    endRequest()
    await time.run(time.nowMs + 12_000)
    endRequest()
    expect(told(lines).leases).toBeGreaterThanOrEqual(500)
    expect(store.units + told(lines).units).toBe(10_500 * LEFT)
  })

  it('are told by the log with their number, if the process ends and the store does not answer', async () => {
    const { active, lines, hold } = setUp()
    hold(30)
    await active.giveBack(async () => false)
    expect(told(lines)).toEqual({ leases: 30, units: 30 * LEFT })
  })
})

function told(lines: readonly Record<string, unknown>[]) {
  const sum = { leases: 0, units: 0 }
  for (const { event, leases, units } of lines) {
    expect(event).toBe('returns-dropped')
    sum.leases += Number(leases)
    sum.units += Number(units)
  }
  return sum
}
