/** The receipts of the service binding: what they contain, and which ones are refused. */
import { beforeEach, describe, expect, it } from 'vitest'
import type { Limiter } from '../../src/set-ups/limits/limiter.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { createReceipts, type Receipt, type Receipts } from '../../src/set-ups/rpc/receipt.ts'
import type { Store } from '../../src/store/store.ts'
import { configOf, describeOnRedisEngine } from '../support/engines.ts'
import { storeOf } from '../support/stores.ts'
import { NOON } from '../support/traffic.ts'

const ANY = { name: 'any', by: 'address', algorithm: 'gcra', limit: 1, period: '1s' } as const
const CONFIG = configOf({
  rules: [ANY],
  limits: {
    mails: [
      { name: 'day', by: ['account'], algorithm: 'fixed-window', limit: 10, period: '1d' },
      { name: 'pace', by: ['account'], algorithm: 'gcra', limit: 5, period: '1h', burst: 20 },
      { name: 'trial', by: ['account'], algorithm: 'fixed-window', limit: 3, period: '1d', mode: 'shadow' },
      { name: 'at-once', algorithm: 'concurrency', limit: 50 },
    ],
    exports: [{ name: 'at-once', algorithm: 'concurrency', limit: 2 }],
  },
})
const A = { account: 'a' }
const UUID = '01234567-89ab-4cde-8f01-23456789abcd'

interface Isolate {
  limiter: Limiter
  receipts: Receipts
  refund(receipt: unknown, cost?: number): Promise<Record<string, number>>
}

/** All isolates of a test share one store. */
function isolateOn(store: Store, size?: number, { limits } = CONFIG): Isolate {
  const limiter = createLimiterOnStore({ limits }, store, {
    clock: { now: () => NOON, sleep: async () => {} },
  })
  const receipts = createReceipts(limits, { now: () => NOON / 1e3, ...(size !== undefined && { size }) })
  return {
    ...{ limiter, receipts },
    async refund(receipt, cost) {
      const decision = receipts.decisionOf(receipt)
      const { rules } = await limiter.refund(decision, cost === undefined ? {} : { cost })
      return Object.fromEntries(rules.map(({ name, remaining }) => [name, remaining]))
    },
  }
}

const TEXT = expect.stringMatching(/^[\dA-Za-z]{6}$/)
const GONE: Store = { run: () => Promise.reject(new Error()), ping: async () => {} }

describeOnRedisEngine('a receipt', fresh => {
  let store: Store
  let one: Isolate
  let two: Isolate
  beforeEach(async () => {
    store = storeOf(await fresh())
    one = isolateOn(store)
    two = isolateOn(store)
  })

  const left = async () => {
    const { rules } = await one.limiter.limit('mails', A, { cost: 0 })
    return rules[0]!.remaining
  }
  const spend = async (cost: number) => one.receipts.receiptOf(await one.limiter.limit('mails', A, { cost }))

  it('is plain data with the units that each rule has spent', async () => {
    const receipt = await spend(2)
    expect(receipt).toEqual({
      id: expect.stringMatching(/^[\dA-Za-z]{12}$/),
      ...{ limit: 'mails', identity: A, at: expect.any(Number) },
      costs: { day: 2, pace: 2, trial: 2 },
      records: { day: TEXT, pace: TEXT, trial: TEXT },
    })
    expect(structuredClone(receipt)).toEqual(receipt)
    expect(JSON.parse(JSON.stringify(receipt))).toEqual(receipt)
    // The second call spends nothing under the shadow, which would have refused it.
    expect((await spend(2)).costs).toEqual({ day: 2, pace: 2 })
  })

  it('has no costs if the store has spent nothing', async () => {
    const receipts = [
      one.receipts.receiptOf(await one.limiter.limit('mails', A, { cost: 11 })),
      one.receipts.receiptOf(await one.limiter.limit('mails', A, { cost: 0 })),
      one.receipts.receiptOf(await one.limiter.peek('mails', A)),
      one.receipts.receiptOf(await isolateOn(GONE).limiter.limit('mails', A)),
    ]
    for (const receipt of receipts) {
      expect(receipt.costs).toEqual({})
      expect(await two.refund(receipt)).toEqual({})
    }
  })

  it('is refunded in any isolate, and only once there', async () => {
    const receipt = await spend(4)
    expect(await two.refund(structuredClone(receipt), 3)).toMatchObject({ day: 9, pace: 19 })
    expect(await two.refund(structuredClone(receipt), 3)).toMatchObject({ day: 10, pace: 20 })
    await spend(5)
    expect(await two.refund(structuredClone(receipt))).toEqual({})
    expect(await left()).toBe(5)
  })

  it('is refunded only once if two calls use it at the same time', async () => {
    const receipt = await spend(4)
    await spend(4)
    await Promise.all([one.refund(structuredClone(receipt)), one.refund(structuredClone(receipt))])
    expect(await left()).toBe(6)
  })

  it('can be refunded once, in whichever isolate', async () => {
    const receipt = await spend(4)
    await spend(2)
    await one.refund(receipt)
    expect(await two.refund(receipt)).toMatchObject({ day: 8, pace: 18 })
  })

  it('is recognized as refunded while it is one of the latest, and forgotten later', async () => {
    const small = isolateOn(store, 2)
    const receipts: Receipt[] = []
    for (let i = 0; i < 5; i++) receipts.push(await spend(1))
    for (const receipt of receipts) await small.refund(receipt)
    const [first, last] = [small.receipts.decisionOf(receipts[0]), small.receipts.decisionOf(receipts[4])]
    expect(last).toBe(small.receipts.decisionOf(receipts[4]))
    expect(await small.limiter.refund(last)).toMatchObject({ rules: [] })
    expect((await small.limiter.refund(first)).rules).not.toEqual([])
  })

  it('gives back no units that have come back by themselves since', async () => {
    const receipt = await spend(4)
    await spend(4)
    const yesterday = { ...receipt, at: receipt.at - 86_400e6 }
    expect(await two.refund(yesterday)).toMatchObject({ day: 2, pace: 12 })
  })
})

describeOnRedisEngine('a receipt of an earlier deployment', fresh => {
  const DAY = { algorithm: 'fixed-window', limit: 10, period: '1d' } as const
  const [account, region] = [
    { ...DAY, name: 'account', by: ['account'] },
    { ...DAY, name: 'region', by: ['account', 'region'] },
  ]
  const WHO = { account: 'a', region: 'eu' }
  type Rules = NonNullable<Parameters<typeof configOf>[0]['limits']>[string]
  const deployed = (store: Store, mails: Rules) =>
    isolateOn(store, undefined, configOf({ rules: [ANY], limits: { mails } }))
  let store: Store
  /** The deployment that writes the receipt. */
  let old: Isolate
  beforeEach(async () => {
    store = storeOf(await fresh())
    old = deployed(store, [account, region])
  })
  const spend = async (cost = 4) => old.receipts.receiptOf(await old.limiter.limit('mails', WHO, { cost }))
  const left = async () => {
    const { rules } = await old.limiter.peek('mails', WHO)
    return rules.map(({ remaining }) => remaining)
  }

  it.each<[change: string, rules: Rules, left: number[]]>([
    ['removes the rule that its identity names most of', [account], [10, 6]],
    ['removes the first rule', [region], [6, 10]],
    ['renames a rule', [{ ...account, name: 'each' }, region], [6, 10]],
    [
      'adds a rule with a part that the receipt lacks',
      [{ ...DAY, name: 'user', by: ['user'] }, account, region],
      [10, 10],
    ],
    ['counts a rule by a further part', [account, { ...region, by: ['account', 'region', 'user'] }], [10, 6]],
    [
      'makes a rule count units in flight',
      [{ name: 'account', algorithm: 'concurrency', limit: 2 }, region],
      [6, 10],
    ],
    ['lowers a limit', [{ ...account, limit: 3 }, region], [10, 10]],
  ])('gives back, once, what still exists after one that %s', async (_, rules, expected) => {
    const receipt = await spend()
    await deployed(store, rules).refund(receipt)
    expect(await left()).toEqual(expected)
    await deployed(store, rules).refund(receipt)
    expect(await left()).toEqual(expected)
  })

  it('gives back a part of what still exists, by the names of its rules', async () => {
    const receipt = await spend()
    const now = deployed(store, [region])
    const decision = now.receipts.decisionOf(receipt)
    await now.limiter.refund(decision, { cost: { account: 1, region: 3 } })
    expect(await left()).toEqual([6, 9])
    await expect(now.limiter.refund(decision, { cost: { regoin: 1 } })).rejects.toThrow("no rule 'regoin'")
  })

  it('gives back nothing, without an error, if none of its rules exists', async () => {
    expect(await deployed(store, [{ ...DAY, name: 'new', by: ['user'] }]).refund(await spend())).toEqual({})
  })

  it('is still wrong if its identity fits none of the rules that it names', async () => {
    const { identity: _, ...rest } = await spend()
    expect(() => old.receipts.decisionOf({ ...rest, identity: { region: 'eu' } })).toThrow(
      'counts by account and region: account is missing.',
    )
    expect(() => old.receipts.decisionOf({ ...rest, identity: { ...WHO, account: {} } })).toThrow(
      'account is {}, not text or a number up to ±(2^53 - 1)',
    )
  })
})

describe('a wrong receipt', () => {
  const { receipts } = isolateOn(GONE)

  const RANGE = 'It must be a whole number from 1 to 1000000000.'
  const UNCHANGED = 'Pass the receipt of a decision unchanged.'

  it.each<[wrong: object, message: string]>([
    [{ id: undefined }, 'receipt.id is undefined. It must be the id of a decision.'],
    [{ id: 'x'.repeat(36) }, `receipt.id is '${'x'.repeat(36)}'. It must be the id of a decision.`],
    [{ limit: 'mail' }, "receipt.limit is 'mail'. Limits of the config: mails, exports."],
    [{ limit: ['mails'] }, "receipt.limit is ['mails']. Limits of the config: mails, exports."],
    [{ identity: null }, 'receipt.identity is null. It must be an object.'],
    [{ identity: {} }, "receipt.identity is {}. The limit 'mails' counts by account: account is missing."],
    [
      { identity: { account: ['a'] } },
      `receipt.identity is { account: ['a'] }. The limit 'mails' counts by account: account is ['a'], not text or a number up to ±(2^53 - 1).`,
    ],
    ...[-1, 1.5, Number.NaN, '1', NOON + 86_400e6].map((at): [object, string] => [
      { at },
      `receipt.at is ${typeof at === 'string' ? `'${at}'` : at}. It must be a time in the past, in whole microseconds since 1970.`,
    ]),
    [{ costs: 3 }, 'receipt.costs is 3. It must be an object.'],
    ...[0, -1, 0.5, 1e9 + 1, Number.POSITIVE_INFINITY, null].flatMap((units): [object, string][] => [
      [{ costs: { day: units } }, `receipt.costs.day is ${units}. ${RANGE}`],
      [{ costs: { gone: units } }, `receipt.costs.gone is ${units}. ${RANGE}`],
      [{ reserved: { day: units } }, `receipt.reserved.day is ${units}. ${RANGE}`],
    ]),
  ])('has a wrong field: %j', (wrong, message) => {
    const receipt = { id: UUID, limit: 'mails', identity: A, at: NOON, costs: { day: 1 } }
    expect(() => receipts.decisionOf({ ...receipt, ...wrong })).toThrow(
      new TypeError(`${message} ${UNCHANGED}`),
    )
  })

  it.each([undefined, null, UUID, 7])('that is not an object is rejected: %j', receipt => {
    const shown = typeof receipt === 'string' ? `'${receipt}'` : String(receipt)
    expect(() => receipts.decisionOf(receipt)).toThrow(
      new TypeError(`receipt is ${shown}. It must be an object. ${UNCHANGED}`),
    )
  })
})
