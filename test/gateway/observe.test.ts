/** Observations of requests that were shed, or would have been. */
import { describe, expect, it } from 'vitest'
import type { Verdict } from '../../src/script/evaluation.ts'
import { retryAfterSeconds } from '../../src/set-ups/http/deny.ts'
import { observe } from '../../src/set-ups/http/observe.ts'
import type { Ruling } from '../../src/set-ups/http/ruling.ts'
import type { ShedVerdict } from '../../src/shedding/worker-utilization.ts'
import { configOf } from '../support/engines.ts'

const WHERE = { requestId: 'id', route: 'reports', storeMs: 1 }

const { rules } = configOf({
  shedding: {
    classes: [{ name: 'critical', match: { methods: ['POST'] } }, { name: 'rest' }],
    fleetUsage: { capacity: 9 },
  },
  rules: [{ name: 'hour', by: 'address', algorithm: 'fixed-window', limit: 9, period: '1h' }],
})
const refusedBy = (name: string, retryAfter: number): Verdict => {
  const rule = rules.find(rule => rule.name.startsWith(name))!
  return { rule, mode: 'enforce', allowed: false, remaining: 0, resetAfter: 0, retryAfter, delay: 0 }
}
const denied = (...violated: Verdict[]): Ruling => ({
  kind: 'denied',
  verdicts: violated,
  violated,
  retryAfter: violated[0]!.retryAfter,
})
const SHED: ShedVerdict = {
  rule: { name: 'worker-utilization-rest', mode: 'enforce', enforcedShare: 1, rank: 1 },
  mode: 'enforce',
  allowed: false,
  retryAfter: 41_500_000,
}

describe('an observation', () => {
  it('of a request that the fleet had no capacity for has the Retry-After of the reply', () => {
    // The verdict of the rule only has the time after which units of dead isolates are free.
    expect(observe(denied(refusedBy('fleet-usage', 15_000_000)), WHERE)).toMatchObject({
      outcome: 'shed',
      retryAfter: 1,
    })
    const both = denied(refusedBy('hour', 60_000_000), refusedBy('fleet-usage', 15_000_000))
    expect(observe(both, WHERE)).toMatchObject({ outcome: 'limited', retryAfter: 60 })
  })

  it('of a shed request has the rule, and the time until its caller is admitted', () => {
    expect(observe({ kind: 'shed', verdict: SHED }, WHERE)).toMatchObject({
      outcome: 'shed',
      verdicts: [SHED],
      retryAfter: retryAfterSeconds(SHED.retryAfter),
    })
  })

  it('of a request that a shadow would have shed has the verdict of the shadow before those of the limits', () => {
    const allowed: Ruling = { kind: 'allowed', verdicts: [], delay: 0 }
    const shed: ShedVerdict = { ...SHED, mode: 'shadow' }
    expect(observe(allowed, { ...WHERE, shed })).toMatchObject({ outcome: 'allowed', verdicts: [shed] })
  })
})
