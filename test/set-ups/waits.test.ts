/** What the answer to one call of `acquire` says about those that wait behind it. */
import { describe, expect, it } from 'vitest'
import type { Verdict } from '../../src/script/evaluation.ts'
import { answerFor } from '../../src/set-ups/limits/waits.ts'
import { rulesOf } from '../support/engines.ts'

const [rule] = rulesOf({ name: 'a', by: 'address', algorithm: 'gcra', limit: 10, period: '10s' })
const USED_UP: Verdict = {
  ...{ rule: rule!, mode: 'enforce', allowed: true, remaining: 0 },
  ...{ resetAfter: 10e6, retryAfter: 0, delay: 0 },
}
const ADMITTED = { allowed: true, retryAfterMs: 0 }

describe('an answer', () => {
  it('says how many calls of the same cost are admitted now, and when the next one is due', () => {
    const answer = (verdict: Verdict) => answerFor({ decision: ADMITTED, verdicts: [verdict] }, () => 2, 0)
    expect(answer({ ...USED_UP, remaining: 5 })).toMatchObject({ further: 2, paceMs: 2000 })
    expect(answer(USED_UP)).toMatchObject({ further: 0, pauseMs: 2000, paceMs: 2000 })
  })

  it('lets calls follow at the pace of the rules that hold them up, not of a rule with units left', () => {
    const [day] = rulesOf({ name: 'b', by: 'address', algorithm: 'fixed-window', limit: 5000, period: 'day' })
    const plenty = { ...USED_UP, rule: day!, remaining: 4990 }
    const admitted = answerFor({ decision: ADMITTED, verdicts: [USED_UP, plenty] }, () => 1, 0)
    expect(admitted).toMatchObject({ further: 0, pauseMs: 1000, paceMs: 1000 })
    const refusal = { ...USED_UP, allowed: false, retryAfter: 500e3 }
    const decision = { allowed: false, retryAfterMs: 500 }
    const refused = answerFor({ decision, verdicts: [refusal, plenty] }, () => 1, 500)
    expect(refused).toMatchObject({ pauseMs: 500, paceMs: 1000 })
  })

  it('lets one call ask after the other if it is to a call with cost 0, or if the store has not answered', () => {
    const ofCost0 = answerFor({ decision: ADMITTED, verdicts: [USED_UP] }, () => 0, 0)
    expect(ofCost0).toMatchObject({ further: 0, paceMs: Number.POSITIVE_INFINITY })
    const refused = { decision: { allowed: false, retryAfterMs: 1000 }, verdicts: [] }
    expect(answerFor(refused, () => 1, 1000)).toMatchObject({
      ...{ further: 0, pauseMs: 1000, paceMs: Number.POSITIVE_INFINITY },
    })
  })

  it('lets all calls ask if no rule is enforced', () => {
    for (const verdicts of [[], [{ ...USED_UP, mode: 'shadow' as const }]])
      expect(answerFor({ decision: ADMITTED, verdicts }, () => 1, 0)).toMatchObject({
        further: Number.POSITIVE_INFINITY,
      })
  })
})
