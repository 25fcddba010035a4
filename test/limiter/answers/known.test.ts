/** When an answer of the store may be reused: for which requests, and after which later answers about the credential. */
import { describe, expect, it } from 'vitest'
import { answerKeyOf, isConsistent } from '../../../src/limiter/answers/known.ts'
import { refusalAfter, repeatRefusal } from '../../../src/limiter/answers/outcomes.ts'
import { bound } from '../../support/bound.ts'
import { rulesOf } from '../../support/engines.ts'

const [rule] = rulesOf({ name: 'a', by: 'consumer', algorithm: 'fixed-window', limit: 5, period: '1m' })
const RULE = bound(rule!, 'k', 1, 0)
const token = (consumerKey: string, plan = 'free') => ({
  subject: { kind: 'token', consumerKey, plan } as const,
})

describe('requests share an answer', () => {
  const key = answerKeyOf([RULE], token('acme'))

  it('if the caller, the plan and the rules are the same, whatever the cost', () => {
    expect(answerKeyOf([{ ...RULE, cost: 7 }], token('acme'))).toBe(key)
  })

  it.each([
    ['the caller', answerKeyOf([RULE], token('other'))],
    ['the plan', answerKeyOf([RULE], token('acme', 'pro'))],
    ['the counted identity', answerKeyOf([{ ...RULE, key: 'other' }], token('acme'))],
    ['the mode of a rule', answerKeyOf([{ ...RULE, mode: 'shadow' }], token('acme'))],
    ['the role of a rule', answerKeyOf([{ ...RULE, role: 'peek' }], token('acme'))],
    ['a rule more', answerKeyOf([RULE, RULE], token('acme'))],
  ])('but not if this differs: %s', (_, other) => {
    expect(other).not.toBe(key)
  })
})

describe('an answer is valid while the latest answers about the credential are consistent with it', () => {
  it.each([
    ['blocked', { isBlocked: true }, true],
    ['blocked', { isBlocked: false }, false],
    ['unknown-credential', {}, true],
    ['unknown-credential', { plan: 'free' }, false],
    ['admitted', { plan: 'free' }, true],
    ['admitted', { plan: 'pro' }, false],
    ['admitted', { plan: 'free', isBlocked: true }, false],
    ['refused', { isBlocked: true }, false],
    ['admitted', { isUnknown: true }, false],
    ['unknown-credential', { isUnknown: true }, true],
  ] as const)('%s, and then seen as %j: %s', (status, seen, expected) => {
    expect(isConsistent({ status, plan: 'free' }, seen as never)).toBe(expected)
  })

  it('or if nothing is known about the credential, whatever the answer is', () => {
    expect(isConsistent({ status: 'blocked', plan: '' }, undefined)).toBe(true)
  })
})

describe('a repeated refusal', () => {
  const verdict = {
    rule: rule!,
    mode: 'enforce',
    allowed: true,
    remaining: 0,
    retryAfter: 0,
    delay: 0,
  } as const
  const outcome = {
    status: 'admitted',
    plan: 'free',
    at: 1e15,
    verdicts: [{ ...verdict, resetAfter: 60e6 }],
  } as const
  const refused = refusalAfter(outcome, [RULE])!
  const repeated = (cost: number) => repeatRefusal(refused, 1e6, [{ ...RULE, cost }], [1]).verdicts[0]

  it('says that a cost above the limit is never admitted, as the store does', () => {
    expect([1, 5].map(cost => repeated(cost)!.retryAfter)).toEqual([59e6, 59e6])
    expect(repeated(6)).toMatchObject({ allowed: false, retryAfter: -1 })
  })
})
