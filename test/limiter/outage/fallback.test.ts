/** If the store has not answered, the cause decides which rules are counted in the isolate. */

import { describe, expect, it } from 'vitest'
import { ALL_ALGORITHMS } from '../../../src/algorithms/all.ts'
import type { OnStoreFailure } from '../../../src/config/check/schema.ts'
import { compileLimitRule } from '../../../src/config/compile-rule.ts'
import type { DegradedCause } from '../../../src/limiter/decision.ts'
import { fallBack } from '../../../src/limiter/outage/fallback.ts'
import { createLocalLimiter } from '../../../src/limiter/outage/local.ts'
import { bound } from '../../support/bound.ts'
import { compiled } from '../../support/engines.ts'

/** Sends 5 requests with a limit of 2. Returns how many pass, and whether any of them was not counted. */
function passed(onStoreFailure: OnStoreFailure, cause: DegradedCause, isConfirmed: boolean) {
  const rule = compileLimitRule(
    { name: 'two', algorithm: 'fixed-window', limit: 2, period: '7d', onStoreFailure },
    ALL_ALGORITHMS,
  )
  const settings = {
    credentials: 'recent',
    local: createLocalLimiter(1, Date.now),
    store: { isOutageConfirmed: () => isConfirmed },
  } as const
  const decisions = Array.from({ length: 5 }, () =>
    fallBack(
      compiled({ rules: [bound(rule, 'sluice:{x}:state')], plans: [] }),
      { status: 'degraded', cause, detail: '', fate: 'may-have-run' },
      undefined,
      settings,
    ),
  )
  const kinds = decisions.map(({ kind }) => kind)
  const isUncounted = decisions.some(decision => decision.kind === 'allowed' && decision.isUncounted)
  return [kinds.filter(kind => kind === 'allowed').length, isUncounted]
}

describe('while the store does not answer, an open rule', () => {
  it.each(['store-unreachable', 'store-refused', 'store-quota', 'store-reply-invalid', 'internal'] as const)(
    'lets every request pass after %s',
    cause => {
      expect(passed('open', cause, false)).toEqual([5, true])
    },
  )

  it.each(['store-timeout', 'breaker-open'] as const)(
    'is counted in the isolate after %s, and lets every request pass once the outage is confirmed',
    cause => {
      expect(passed('open', cause, false)).toEqual([2, false])
      expect(passed('open', cause, true)).toEqual([5, true])
    },
  )

  it('is counted in the isolate if the isolate is overloaded', () => {
    for (const isConfirmed of [false, true])
      expect(passed('open', 'overload', isConfirmed)).toEqual([2, false])
  })
})

const CAUSES = [
  ...(['store-timeout', 'breaker-open', 'store-unreachable', 'store-refused', 'store-quota'] as const),
  ...(['store-reply-invalid', 'internal', 'overload'] as const),
]

describe.each(CAUSES)('while the store does not answer, after %s', cause => {
  it('a closed rule admits nothing', () => {
    for (const isConfirmed of [false, true]) expect(passed('closed', cause, isConfirmed)).toEqual([0, false])
  })

  it('a local rule admits its share', () => {
    for (const isConfirmed of [false, true]) expect(passed('local', cause, isConfirmed)).toEqual([2, false])
  })
})
