/** What `callerOf(request)` says about the limits of a caller. */
import { expect, it } from 'vitest'
import type { Verdict } from '../../src/script/evaluation.ts'
import { callerInfo } from '../../src/set-ups/guard/caller-info.ts'
import { rulesOf } from '../support/engines.ts'

it('the limit with the smallest part of its units left comes first, also if it has a burst', () => {
  const rules = rulesOf(
    { name: 'minute', by: 'address', algorithm: 'fixed-window', limit: 100, period: '1m' },
    { name: 'burst', by: 'address', algorithm: 'gcra', limit: 10, period: '1s', burst: 100 },
  )
  const verdicts = rules.map((rule, i): Verdict => {
    const remaining = [50, 20][i]!
    return { rule, mode: 'enforce', allowed: true, remaining, resetAfter: 1e6, retryAfter: 0, delay: 0 }
  })
  const { limits } = callerInfo({
    ...{ requestId: 'r', caller: undefined },
    decision: { kind: 'allowed', delay: 0, verdicts },
  } as unknown as Parameters<typeof callerInfo>[0])
  expect(limits.map(({ name, limit, remaining }) => [name, limit, remaining])).toEqual([
    ['burst', 10, 20],
    ['minute', 100, 50],
  ])
})
