/** The arguments and replies of a decision, without a store. Other suites test the script on every Redis. */

import { describe, expect, it } from 'vitest'
import { toDecision } from '../../src/limiter/decision.ts'
import { decodeDecide, encodeDecide } from '../../src/script/decide.ts'
import { bound } from '../support/bound.ts'
import { compiled, configOf, rulesOf } from '../support/engines.ts'
import { evaluate } from '../support/evaluate.ts'
import { ruleSetOf } from '../support/rule-set.ts'

const SECOND = { name: 'second', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' } as const
const [second, hour] = rulesOf(SECOND, {
  name: 'hour',
  by: 'address',
  algorithm: 'fixed-window',
  limit: 100,
  period: '1h',
  cost: 5,
})
const rules = [bound(second!, 'C'), bound(hour!, 'A')]
const WHO = { kind: 'key', consumerKey: 'R', credentialKey: 'K' } as const

describe('the call of a decision', () => {
  it('declares every key once, the records first', () => {
    const evaluation = compiled({ rules, plans: ['free', 'pro'], subject: WHO })
    const { keys, args } = encodeDecide(evaluation)
    expect(keys).toEqual(['R', 'K', 'C', 'A'])
    expect(args).toEqual(['decide', '1e1e', 'key', '', '', '1', '5'])
  })

  it('leaves out default values', () => {
    expect(encodeDecide(compiled({ rules: [rules[0]!], plans: ['free'] })).args).toEqual(['decide', '1e'])
    const peek = encodeDecide(compiled({ rules: [rules[0]!], plans: ['free'], subject: WHO }), 'peek')
    expect(peek.args).toEqual(['peek', '1e', 'key'])
  })

  it('marks rules and identities that are not part of the request, and rules that cannot refuse', () => {
    const ruleSet = ruleSetOf(rules)
    const [ofConsumer, ofAddress] = rules
    expect(encodeDecide({ ruleSet, rules: [ofConsumer!] })).toMatchObject({
      keys: ['C'],
      args: ['decide', '1e00'],
    })
    expect(encodeDecide({ ruleSet, rules: [ofAddress!] })).toMatchObject({
      keys: ['A'],
      args: ['decide', '001e', '', '', '', '1', '5'],
    })
    const shadow = { ...ofConsumer!, mode: 'shadow' } as const
    expect(encodeDecide({ ruleSet, rules: [shadow] }).args[1]).toBe('1s00')
    expect(encodeDecide({ ruleSet, rules: [{ ...shadow, staysShadow: true }] }).args[1]).toBe('1S00')
  })

  it('rejects two keys for one identity, and one key for two identities', () => {
    const [ofConsumer, ofAddress] = rules
    const ruleSet = ruleSetOf([ofConsumer!, { ...ofAddress!, key: 'C' }])
    expect(() => encodeDecide({ ruleSet, rules })).toThrow('Rules of one identity need one key.')
    const both = ruleSetOf(rules)
    expect(() => encodeDecide({ ruleSet: both, rules: [ofConsumer!, { ...ofAddress!, key: 'C' }] })).toThrow(
      'Rules of different identities need different keys.',
    )
  })

  it('reads logs with the states, and puts their chunks last', () => {
    const log = { by: 'consumer', algorithm: 'sliding-log', period: '1h' } as const
    const [a, b] = rulesOf({ ...log, name: 'a', limit: 101 }, { ...log, name: 'b', limit: 100 })
    const evaluation = compiled({ rules: [bound(a!, 'C'), bound(b!, 'C')], plans: ['free'] })
    const logs = [a!, b!].map(({ tag }) => `C:log:${tag}`)
    expect(encodeDecide(evaluation).keys).toEqual(['C', ...logs, ...logs.map(key => `${key}:mid`)])
  })

  it('counts a rule for a plan only if the caller is known to have this plan', () => {
    const rule = { name: 'a', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' } as const
    const plans = ['pro', 'pro-max']
    const { rules: ofPlans } = configOf({ plans, rules: [{ ...rule, match: { plans: ['pro-max'] } }] })
    const input = { rules: [bound(ofPlans[0]!, 'C')], plans, now: 17 }
    expect(encodeDecide(compiled(input)).args).toEqual(['decide', '10', '', '', '17'])
    expect(encodeDecide(compiled({ ...input, plan: 'pro' })).args).toEqual(['decide', '10', '', 'pro', '17'])
    const own = encodeDecide(compiled({ ...input, plan: 'pro-max' }))
    expect(own.args).toEqual(['decide', '1e', '', 'pro-max', '17'])
  })
})

describe('the reply to a decision', () => {
  const evaluation = compiled({ rules, plans: ['free'], subject: WHO })
  /** Both rules admit the request. */
  const ALLOWED = [0, 1, 1, 0, 1, 1]

  it('has no retry times if every rule has spent', () => {
    const { status, verdicts } = decodeDecide([2, 'free', 17, 9, 1, 95, 2], evaluation)
    expect([status, ...verdicts.map(({ remaining, resetAfter }) => [remaining, resetAfter])]).toEqual([
      ...['admitted', [9, 1], [95, 2]],
    ])
    expect(verdicts.every(({ allowed, retryAfter }) => allowed && retryAfter === 0)).toBe(true)
  })

  it('has a verdict for each rule that applies', () => {
    const reply = [0, 'free', 17, 5, 0, 100000, -2, 0, 0]
    expect(decodeDecide(reply, evaluation)).toEqual({
      status: 'refused',
      plan: 'free',
      at: 17,
      verdicts: [
        {
          ...{ rule: second, mode: 'enforce', allowed: false },
          ...{ remaining: 0, resetAfter: 100000, retryAfter: 5, delay: 0 },
        },
      ],
    })
    expect(decodeDecide([-2, '', 17], evaluation)).toEqual({
      status: 'blocked',
      plan: '',
      at: 17,
      verdicts: [],
    })
    expect(decodeDecide([-2, '', 17, ''], evaluation)).not.toHaveProperty('blockedUntil')
    expect(decodeDecide([-2, '', 17, '9'.repeat(30)], evaluation)).not.toHaveProperty('blockedUntil')
    expect(decodeDecide([-2, '', 17, '18'], evaluation)).toMatchObject({ blockedUntil: 18 })
    expect(decodeDecide([-1, '', 17, ...Array(2).fill([-2, 0, 0]).flat()], evaluation).status).toBe(
      'unknown-credential',
    )
  })

  it('has the overridden numbers of the consumer, and the consumer of a pointer', () => {
    const reply = [1, 'free acme', 17, 0, 6, 0, 0, 9, 0, '1s7,8;']
    const { consumer, plan, verdicts } = decodeDecide(reply, evaluation)
    expect([consumer, plan]).toEqual(['acme', 'free'])
    expect(verdicts[0]).toMatchObject({
      ...{ mode: 'shadow', rule: { limit: 7, quota: { burst: 8 }, tag: second!.tag } },
    })
    expect(verdicts[1]!.rule).toBe(hour)
  })

  it.each([
    [[1, 'free', 17, ...ALLOWED, '1e7,8']],
    [[1, 'free', 17, ...ALLOWED, 'x1e7,8;']],
    [[1, 'free', 17, ...ALLOWED, 5]],
    [[1, 'free', 17, ...ALLOWED, '1e7,8;', '2e7,8;']],
    [[1, 'free', 17, ...ALLOWED, '3e7,8;']],
    [[1, 'free', 17, ...ALLOWED, '0e7,8;']],
    [[1, 'free', 17, ...ALLOWED, '1e7,8;1e7,8;']],
    [null],
    ['OK'],
    [{}],
    [[]],
    [[1]],
    [[1, 2]],
    [[1, 'free']],
    [[1, 'free', '17', ...ALLOWED]],
    [['1', 'free', 17, ...ALLOWED]],
    [[1, 'free', 17, 0, 2, 3]],
    [[1, 'free', 17, ...ALLOWED.slice(0, 3), 0, -1, 0]],
    [[1, 'free', 17, ...ALLOWED.slice(0, 3), 5, 1, 1]],
    [[1, 'free', 17, ...ALLOWED.slice(0, 3), -3, 1, 1]],
    [[1, 'free', 17, ...ALLOWED.slice(0, 5), '0']],
    [[1, 'free', 17, ...ALLOWED.slice(0, 5), 0.5]],
    [[1, 'free', 17, ...ALLOWED.slice(0, 5), null]],
    [[1, 'free', 17, ...ALLOWED.slice(0, 5), 2 ** 60]],
    [[3, 'free', 17, ...ALLOWED]],
    [[2, 'free', 17, 1, 1, 1]],
    [[2, 'free', 17, 1, 1, 1, 1, 1]],
    [[0, 'free', 17, ...ALLOWED]],
  ])('is rejected if the script cannot have sent it: %j', reply => {
    expect(() => decodeDecide(reply, evaluation)).toThrow(
      expect.objectContaining({ code: 'ERR_STORE_REPLY_INVALID' }),
    )
  })
})

describe('a lease', () => {
  const [leased] = rulesOf({ ...SECOND, lease: { for: '250ms' } })
  const evaluation = compiled({ rules: [bound(leased!, 'C'), rules[1]!], plans: ['free'], subject: WHO })
  const wanting = (wantedRequests: number, of = evaluation) => ({ ...of, wantedRequests })
  const invalid = expect.objectContaining({ code: 'ERR_STORE_REPLY_INVALID' })
  /** Both rules have spent. */
  const SPENT = [2, 'free', 17, 9, 1, 95, 2]
  const ALLOWED = [1, 'free', 17, 0, 1, 1, 0, 1, 1]

  it('is requested by a number instead of the verb', () => {
    expect(encodeDecide(wanting(20)).args).toEqual(['20', '1e1e', 'key', '', '', '1', '5'])
    expect(encodeDecide(wanting(20)).script).toBe(evaluation.ruleSet.decide)
  })

  it.each([1, 0, -1, Number.NaN])('is not requested for %d requests', want => {
    expect(encodeDecide(wanting(want))).toEqual(encodeDecide(evaluation))
    expect(decodeDecide(SPENT, wanting(want))).toEqual(decodeDecide(SPENT, evaluation))
    expect(() => decodeDecide([...SPENT, 1], wanting(want))).toThrow(invalid)
  })

  it('is not requested by a peek, or if no rule has a lease', () => {
    expect(encodeDecide(wanting(20), 'peek')).toEqual(encodeDecide(evaluation, 'peek'))
    expect(decodeDecide(SPENT, wanting(20), 'peek')).toEqual(decodeDecide(SPENT, evaluation))
    const plain = compiled({ rules, plans: ['free'], subject: WHO })
    expect(encodeDecide(wanting(20, plain))).toEqual(encodeDecide(plain))
    expect(decodeDecide(SPENT, wanting(20, plain))).toEqual(decodeDecide(SPENT, plain))
  })

  it('is granted at the end of the reply, after overrides', () => {
    const grants = [SPENT, ALLOWED, [...ALLOWED, '1s7,8;']].map(
      reply => decodeDecide([...reply, 20], wanting(20)).granted,
    )
    expect(grants).toEqual([20, 20, 20])
    const { verdicts } = decodeDecide([...ALLOWED, '1s7,8;', 3], wanting(20))
    expect(verdicts[0]).toMatchObject({ mode: 'shadow', rule: { limit: 7 } })
    expect(verdicts[1]!.rule).toBe(hour)
  })

  it('of one request is an ordinary decision', () => {
    expect(decodeDecide([...SPENT, 1], wanting(20))).toEqual(decodeDecide(SPENT, evaluation))
  })

  it('is granted only to an admitted request', () => {
    const refused = [0, 'free', 17, 5, 0, 1, 0, 1, 1]
    expect(decodeDecide(refused, wanting(20))).toEqual(decodeDecide(refused, evaluation))
    const unknown = [-1, '', 17, -2, 0, 0, -2, 0, 0]
    expect(decodeDecide(unknown, wanting(20))).toEqual(decodeDecide(unknown, evaluation))
    expect(decodeDecide([-2, '', 17], wanting(20)).granted).toBeUndefined()
    for (const reply of [refused, unknown]) {
      expect(() => decodeDecide([...reply, 5], wanting(20))).toThrow(invalid)
    }
  })

  it.each([
    ['none', []],
    ['0', [0]],
    ['a negative one', [-1]],
    ['more than requested', [21]],
    ['a fraction', [1.5]],
    ['text', ['5']],
    ['null', [null]],
    ['one before the overrides', [5, '1s7,8;']],
    ['only overrides', ['1s7,8;']],
    ['two', [5, 5]],
    ['one after two texts', ['1s7,8;', '2s7,8;', 5]],
  ])('is rejected if the script cannot have granted it: %s', (_, end) => {
    expect(() => decodeDecide([...SPENT, ...end], wanting(20))).toThrow(invalid)
    expect(() => decodeDecide([...ALLOWED, ...end], wanting(20))).toThrow(invalid)
  })

  it('is rejected in the reply to a call that did not request one', () => {
    expect(() => decodeDecide([...SPENT, 5], evaluation)).toThrow(invalid)
  })
})

describe('a decision', () => {
  const verdict = (retryAfter: number) => ({
    rule: second!,
    mode: 'enforce' as const,
    allowed: retryAfter === 0,
    remaining: 0,
    resetAfter: 0,
    retryAfter,
    delay: 0,
  })

  it('has the longest retry time of the rules that refused', () => {
    const decision = toDecision({ status: 'refused', plan: '', at: 0, verdicts: [0, 5, 9, 7].map(verdict) })
    expect(decision).toMatchObject({ kind: 'denied', retryAfter: 9 })
    expect(decision.kind === 'denied' && decision.violated).toHaveLength(3)
  })

  it('has no retry time if one of the rules never admits the cost', () => {
    expect(toDecision({ status: 'refused', plan: '', at: 0, verdicts: [5, -1].map(verdict) })).toMatchObject({
      retryAfter: -1,
    })
  })

  it('makes no trip without rules and without a credential', async () => {
    const store = {
      run: () => Promise.reject(new Error('a call was made')),
      ping: () => Promise.reject(new Error('a call was made')),
    }
    expect(await evaluate(store, compiled({ rules: [], plans: ['free'] }))).toEqual({
      status: 'admitted',
      plan: '',
      at: 0,
      verdicts: [],
    })
  })

  it('that fails because of a bug is degraded, and its log text does not contain the message of the exception', async () => {
    const store = { run: () => Promise.reject(new TypeError('secret')), ping: () => Promise.resolve() }
    expect(await evaluate(store, compiled({ rules, plans: ['free'] }))).toEqual({
      status: 'degraded',
      cause: 'internal',
      fate: 'may-have-run',
      detail: expect.stringMatching(/^TypeError\n +at /),
    })
  })
})
