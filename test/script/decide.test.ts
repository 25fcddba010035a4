/** This side of the contract of the one call; what decide.lua makes of it is tested on every Redis. */
import { describe, expect, it } from 'vitest'
import { decisionOf } from '../../src/limiter/decision.ts'
import { evaluate } from '../../src/limiter/evaluate.ts'
import { decodeDecide, encodeDecide } from '../../src/script/decide.ts'
import { bound } from '../support/bound.ts'
import { configOf, rulesOf } from '../support/engines.ts'

const [second, hour] = rulesOf(
  { name: 'second', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' },
  { name: 'hour', by: 'address', algorithm: 'fixed-window', limit: 100, period: '1h', cost: 5 },
)
const rules = [bound(second!, 'C'), bound(hour!, 'A')]
const WHO = { kind: 'key', consumerKey: 'R', credentialKey: 'K' } as const

describe('a question to the store', () => {
  it('declares every key once, the records first', () => {
    const evaluation = { rules: [...rules, rules[0]!], plans: ['free', 'pro'], subject: WHO }
    const { keys, args } = encodeDecide(evaluation)
    expect(keys).toEqual(['R', 'K', 'C', 'A'])
    expect(args).toEqual([
      ...['decide', '', ' free pro ', '4', 'key', '', `${second!.family}___${second!.family}`],
      ...['3', second!.tag, 'gcra', '1', '100000', '10', 'spend', '1', '', '1'],
      ...['4', hour!.tag, 'fixed-window', '100', '3600000000', '', 'spend', '5', '', '1'],
      ...['3', second!.tag, 'gcra', '1', '100000', '10', 'spend', '1', '', '1'],
    ])
  })

  it('reads short logs with the states, and puts the long ones last', () => {
    const log = { by: 'consumer', algorithm: 'sliding-log', period: '1h' } as const
    const [long, short] = rulesOf({ ...log, name: 'long', limit: 101 }, { ...log, name: 'short', limit: 100 })
    const { keys, args } = encodeDecide({ rules: [bound(long!, 'C'), bound(short!, 'C')], plans: ['free'] })
    expect(keys).toEqual(['C', `C:log:${short!.tag}`, `C:log:${long!.tag}`])
    expect(args[3]).toBe('2')
    expect([args[12], args[22]]).toEqual(['3', '2'])
  })

  it('carries the plans a rule is for, each whole', () => {
    const { rules: ofPlans } = configOf({
      plans: ['pro', 'pro-max'],
      rules: [
        {
          name: 'a',
          by: 'consumer',
          algorithm: 'gcra',
          limit: 1,
          period: '1s',
          match: { plans: ['pro-max'] },
        },
      ],
    })
    const { args } = encodeDecide({ rules: [bound(ofPlans[0]!, 'C')], plans: ['pro', 'pro-max'], now: 17 })
    expect([args[1], args[2], args.at(-2)]).toEqual(['17', '', ' pro-max '])
  })
})

describe('an answer of the store', () => {
  const evaluation = { rules, plans: ['free'] }
  /** Both rules allow. */
  const ALLOWED = [0, 1, 1, 0, 0, 1, 1, 0]

  it('is read rule by rule, without those that do not apply', () => {
    const reply = [0, 'free', 17, 5, 0, 100000, 0, -2, 0, 0, 0]
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
    expect(decodeDecide([-1, '', 17, ...Array(2).fill([-2, 0, 0, 0]).flat()], evaluation).status).toBe(
      'unknown-credential',
    )
  })

  it('tells the numbers that the consumer has, and whose key it was', () => {
    const reply = [1, 'free acme', 17, 0, 6, 0, 0, 0, 9, 0, 0, 1, 7, 8, 0]
    const { consumer, plan, verdicts } = decodeDecide(reply, evaluation)
    expect([consumer, plan]).toEqual(['acme', 'free'])
    expect(verdicts[0]).toMatchObject({
      ...{ mode: 'shadow', rule: { limit: 7, quota: { burst: 8 }, tag: second!.tag } },
    })
    expect(verdicts[1]!.rule).toBe(hour)
  })

  it.each([
    [[1, 'free', 17, ...ALLOWED, 1, 7, 8]],
    [[1, 'free', 17, ...ALLOWED, 3, 7, 8, 1]],
    [[1, 'free', 17, ...ALLOWED, 0, 7, 8, 1]],
    [[1, 'free', 17, ...ALLOWED, 1, 7, 8, 1, 1, 7, 8, 1]],
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
    [[1, 'free', 17, ...ALLOWED.slice(0, 4), 0, -1, 0, 0]],
    [[1, 'free', 17, ...ALLOWED.slice(0, 4), 5, 1, 1, 0]],
    [[1, 'free', 17, ...ALLOWED.slice(0, 4), -3, 1, 1, 0]],
    [[1, 'free', 17, ...ALLOWED.slice(0, 7), '0']],
    [[1, 'free', 17, ...ALLOWED.slice(0, 7), 0.5]],
    [[1, 'free', 17, ...ALLOWED.slice(0, 7), null]],
    [[1, 'free', 17, ...ALLOWED.slice(0, 7), 2 ** 60]],
    [[2, 'free', 17, ...ALLOWED]],
    [[0, 'free', 17, ...ALLOWED]],
  ])('that decide.lua cannot have said is refused: %j', reply => {
    expect(() => decodeDecide(reply, evaluation)).toThrow(
      expect.objectContaining({ code: 'ERR_STORE_REPLY_INVALID' }),
    )
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

  it('waits for the slowest of the rules that refused', () => {
    const decision = decisionOf({ status: 'refused', plan: '', at: 0, verdicts: [0, 5, 9, 7].map(verdict) })
    expect(decision).toMatchObject({ kind: 'denied', retryAfter: 9 })
    expect(decision.kind === 'denied' && decision.violated).toHaveLength(3)
  })

  it('waits for ever when one of them never admits it', () => {
    expect(decisionOf({ status: 'refused', plan: '', at: 0, verdicts: [5, -1].map(verdict) })).toMatchObject({
      retryAfter: -1,
    })
  })

  it('asks nobody when there is nothing to ask', async () => {
    const store = {
      run: () => Promise.reject(new Error('asked')),
      ping: () => Promise.reject(new Error('asked')),
    }
    expect(await evaluate(store, { rules: [], plans: ['free'] })).toEqual({
      status: 'admitted',
      plan: '',
      at: 0,
      verdicts: [],
    })
  })

  it('that a bug prevents is let through, and the log gets no foreign text', async () => {
    const store = { run: () => Promise.reject(new TypeError('secret')), ping: () => Promise.resolve() }
    expect(await evaluate(store, { rules, plans: ['free'] })).toEqual({
      status: 'degraded',
      cause: 'internal',
      detail: expect.stringMatching(/^TypeError\n +at /),
    })
  })
})
