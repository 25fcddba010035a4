/** The counters of an isolate: one outcome for each request, and the verdict of each rule, in bounded memory. */
import { describe, expect, it } from 'vitest'
import { toDecision } from '../../src/limiter/decision.ts'
import { createCounters } from '../../src/metrics/counters.ts'
import { sumFields } from '../../src/metrics/sums.ts'
import type { Verdict } from '../../src/script/evaluation.ts'
import { observe } from '../../src/set-ups/http/observe.ts'
import type { Ruling } from '../../src/set-ups/http/ruling.ts'
import { rulesOf } from '../support/engines.ts'

const WHERE = { requestId: 'id', route: 'reports', storeMs: 1 }

const [minute, tried] = rulesOf(
  { name: 'minute', by: 'consumer', algorithm: 'fixed-window', limit: 9, period: '1m' },
  { name: 'tried', by: 'consumer', algorithm: 'sliding-log', limit: 9, period: '1m', candidateFor: 'minute' },
)

function verdict(rest: Partial<Verdict> = {}): Verdict {
  return {
    ...{ rule: minute!, mode: 'enforce', allowed: true },
    ...{ remaining: 1, resetAfter: 0, retryAfter: 0, delay: 0 },
    ...rest,
  }
}

function countedFor(...decisions: Ruling[]): Record<string, number> {
  const counters = createCounters()
  for (const decision of decisions) counters.record(observe(decision, WHERE))
  return Object.fromEntries(counters.take(100))
}

describe('counters', () => {
  it('count each request once, whatever its outcome', () => {
    const degraded = { cause: 'store-timeout', detail: '' } as const
    const verdicts = [verdict({ allowed: false, retryAfter: 5 })]
    const outcome = { plan: 'pro', at: 1, verdicts: [] }
    const decisions: Ruling[] = [
      toDecision({ status: 'admitted', ...outcome }),
      { kind: 'allowed', verdicts: [], delay: 0, degraded, isUncounted: true },
      // Decided by the isolate's own count.
      { kind: 'allowed', verdicts: [], delay: 0, degraded },
      { kind: 'unavailable', what: 'limits', degraded },
      { kind: 'denied', verdicts, violated: verdicts, retryAfter: 5, degraded },
      toDecision({ status: 'refused', ...outcome, verdicts }),
      toDecision({ status: 'unknown-credential', ...outcome }),
      toDecision({ status: 'blocked', ...outcome }),
      { kind: 'unauthenticated', reason: 'missing', accepted: [] },
      { kind: 'unauthenticated', reason: 'unverifiable', detail: 'no answer', accepted: [] },
      { kind: 'forbidden', what: 'country' },
    ]
    const requests = Object.entries(countedFor(...decisions)).filter(([field]) => field.startsWith('request'))
    expect(Object.fromEntries(requests)).toEqual({
      'request allowed - reports': 1,
      'request failed_open store-timeout reports': 1,
      'request allowed store-timeout reports': 1,
      'request failed_closed store-timeout reports': 1,
      'request limited store-timeout reports': 1,
      'request limited - reports': 1,
      'request unauthenticated - reports': 2,
      'request unverifiable - reports': 1,
      'request forbidden - reports': 2,
    })
  })

  it('count each rule by its own verdict, with the plan, and the agreement of each candidate', () => {
    const verdicts = [
      verdict({ allowed: false }),
      verdict({ rule: tried!, mode: 'shadow', agrees: false }),
      verdict({ rule: { ...minute!, name: 'other' } }),
    ]
    const refused = toDecision({ status: 'refused', plan: 'pro', at: 1, verdicts })
    expect(countedFor(refused, refused)).toEqual({
      'request limited - reports': 2,
      'rule limited minute reports pro': 2,
      'rule shadow_allowed tried reports pro': 2,
      'candidate disagreed tried reports pro': 2,
      'rule allowed other reports pro': 2,
    })
  })

  it('count the verdicts about test callers apart, in as many counters as those of live ones', () => {
    const verdicts = [
      verdict({ allowed: false }),
      verdict({ rule: tried!, mode: 'shadow', agrees: true, allowed: false }),
    ]
    const counters = createCounters()
    for (const mode of ['live', 'test'] as const)
      counters.record(
        observe(toDecision({ status: 'refused', plan: 'pro', at: 1, verdicts }), { ...WHERE, mode }),
      )
    const batch = counters.take(100)
    expect(Object.fromEntries(batch)).toEqual({
      'request limited - reports': 2,
      'test limited': 1,
      'rule limited minute reports pro': 1,
      'rule limited minute reports pro test': 1,
      'rule shadow_limited tried reports pro': 1,
      'rule shadow_limited tried reports pro test': 1,
      'candidate agreed tried reports pro': 1,
      'candidate agreed tried reports pro test': 1,
    })
    expect(
      sumFields(batch).rules.map(({ rule, mode, limited, shadowLimited, agreed }) => [
        ...[rule, mode, limited, shadowLimited, agreed],
      ]),
    ).toEqual([
      ['minute', 'live', 1, 0, 0],
      ['tried', 'live', 0, 1, 1],
      ['minute', 'test', 1, 0, 0],
      ['tried', 'test', 0, 1, 1],
    ])
  })

  it('count the verdicts of rules on guesses', () => {
    const [guesses] = rulesOf({
      ...{ name: 'guesses', by: 'address', algorithm: 'fixed-window', limit: 1, period: '1m' },
      ...{ on: 'auth-failure', mode: 'shadow' },
    } as Parameters<typeof rulesOf>[0])
    const guess = verdict({ rule: guesses!, mode: 'shadow', allowed: false })
    const decision = toDecision({ status: 'unknown-credential', plan: '', at: 1, verdicts: [guess] })
    expect(countedFor(decision)).toEqual({
      'request unauthenticated - reports': 1,
      'rule shadow_limited guesses reports -': 1,
    })
  })

  it('are removed oldest first, and counts that are put back are added to newer ones', () => {
    const counters = createCounters()
    const allowed = observe(toDecision({ status: 'admitted', plan: '', at: 1, verdicts: [verdict()] }), WHERE)
    counters.record(allowed)
    const batch = counters.take(1)
    expect([batch, counters.size]).toEqual([[['request allowed - reports', 1]], 1])
    counters.record(allowed)
    counters.putBack(batch)
    expect(Object.fromEntries(counters.take(9))).toEqual({
      'rule allowed minute reports -': 2,
      'request allowed - reports': 2,
    })
  })

  it('that are lost are replaced by the number of their requests', () => {
    const counters = createCounters()
    const allowed = observe(toDecision({ status: 'admitted', plan: '', at: 1, verdicts: [verdict()] }), WHERE)
    for (let i = 0; i < 3; i++) counters.record(allowed)
    counters.countAsLost(counters.take(9))
    counters.record(allowed)
    counters.countAsLost(counters.take(9))
    expect(counters.take(9)).toEqual([['lost', 4]])
  })

  it('use bounded memory: without room for more labels, the sums stay correct', () => {
    const counters = createCounters(10)
    for (let i = 0; i < 500; i++) {
      const named = verdict({ rule: { ...minute!, name: `rule-${i}` } })
      const decision = toDecision({ status: 'admitted', plan: '', at: 1, verdicts: [named] })
      counters.record(observe(decision, { ...WHERE, route: `route-${i}` }))
    }
    expect(counters.size).toBeLessThanOrEqual(12)
    const all = counters.take(100)
    const sumOf = (kind: string) =>
      all.filter(([field]) => field.startsWith(kind)).reduce((sum, [, by]) => sum + by, 0)
    expect([sumOf('request allowed '), sumOf('rule allowed ')]).toEqual([500, 500])
    expect(Object.fromEntries(all)['rule allowed ~ ~ ~']).toBeGreaterThan(400)
  })
})
