/** Checks docs/algorithms.md: its configs are valid, its bounds are the real ones, and its examples give the stated results. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { replay, shown } from '../../docs/programs/plots/scenario.ts'
import { type AlgorithmName, ALGORITHM_NAMES as NAMES } from '../../src/algorithms/index.ts'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { NumbersInput } from '../../src/config/check/rule-schema.ts'
import type { RuleInput } from '../../src/config/check/schema.ts'
import { toDecision } from '../../src/limiter/decision.ts'
import type { Verdict } from '../../src/script/evaluation.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import { bound } from '../support/bound.ts'
import { describeOnEngines, type Engine, ModelEngine, rulesOf } from '../support/engines.ts'
import { ALGORITHMS_OVER_TIME } from '../support/numbers.ts'
import { randomFrom, SEED } from '../support/random.ts'

const PAGE = readFileSync(new URL('../../docs/algorithms.md', import.meta.url), 'utf8')

/** The start of a window for every period up to an hour. With 7d, a window starts on a Thursday at midnight. */
const NOON = Date.UTC(2026, 10, 20, 12) * 1e3
const ACME = consumerStateKey('acme')

const TEN = { limit: 10, period: '10s' } as const
const PER_MINUTE = { limit: 120, period: '1m' } as const

describe('the page', () => {
  it('has each algorithm in the first table, with a section of its own', () => {
    const [, table = ''] = /## Which one\n(.*?)\n!\[/s.exec(PAGE) ?? []
    const named = [...table.matchAll(/\[`(.+?)`\]\(#(.+?)\)/g)].map(([, name, anchor]) => [name, anchor])
    expect(new Set(named.flat())).toEqual(new Set(NAMES))
    for (const [name, anchor] of named) expect(anchor).toBe(name)
    const sections = [...PAGE.matchAll(/^## (.+)$/gm)].map(([, title]) => title)
    expect(sections).toEqual(expect.arrayContaining(NAMES))
  })

  const blocks = [...PAGE.matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code!)

  it.each(blocks)('shows a config: %s', code => {
    const config = new Function(`return { origin: 'https://api.example.com', ${code} }`)()
    expect(checkedConfig(config).rules.length).toBeGreaterThan(0)
  })

  it('states the bounds: larger numbers are refused', () => {
    const wrong: NumbersInput[] = [
      { algorithm: 'sliding-window', limit: 8_388_608, period: '1h' },
      { algorithm: 'sliding-log', limit: 100_001, period: '1h' },
      { algorithm: 'gcra', limit: 26_063, period: '1d' },
      { algorithm: 'sliding-window', limit: 8_000_000, period: '8640000.001s' },
      { algorithm: 'gcra', limit: 1, period: '1d', burst: 733 },
      { algorithm: 'leaky-bucket', limit: 10, period: '1s', queue: 601 },
      { algorithm: 'gcra', limit: 5, period: '1s', ...{ cost: 6 } },
    ]
    for (const numbers of wrong) expect(messageOf(numbers)).toMatch(/^rules\[0\]\.(limit|burst|queue|cost): /)
    for (const bound of ['8,388,607', '100,000', '26,062', '732 days', '60 s']) expect(PAGE).toContain(bound)
  })

  it('states the largest numbers that are valid', () => {
    const right: NumbersInput[] = [
      { algorithm: 'fixed-window', limit: 1e9, period: '366d' },
      { algorithm: 'sliding-window', limit: 8_388_607, period: '366d' },
      { algorithm: 'sliding-log', limit: 100_000, period: '366d' },
      { algorithm: 'gcra', limit: 1e9, period: '1s' },
      { algorithm: 'gcra', limit: 7, period: '1d' },
      { algorithm: 'gcra', limit: 1_000_000, period: '1d' },
      { algorithm: 'gcra', limit: 26_063, period: '1d', burst: 26_062 },
      { algorithm: 'token-bucket', limit: 1, period: '1d', burst: 732 },
      { algorithm: 'leaky-bucket', limit: 10, period: '1s', queue: 600 },
      { algorithm: 'leaky-bucket', limit: 10, period: '1m' },
    ]
    for (const numbers of right) rulesOf(ruleOf(numbers))
    expect(messageOf({ algorithm: 'leaky-bucket', limit: 10, period: '61s' })).toMatch(/^rules\[0\]\.queue/)
    const [fine, coarse] = [PER_MINUTE, { limit: 1_000_000, period: '1h' } as const].map(numbers =>
      rulesOf(ruleOf({ algorithm: 'sliding-window', ...numbers })),
    )
    expect([fine![0]!.quota.step, coarse![0]!.quota.step]).toEqual([1, 10])
  })

  it('states how many requests each picture admits', async () => {
    const model = new ModelEngine()
    for (const input of shown) {
      const answers = await replay(input, model.evaluate)
      const admitted = answers.filter(({ allowed }) => allowed).length
      const own = 'burst' in input ? ' with burst 1' : 'queue' in input ? ' with a queue of 9' : ''
      expect(PAGE).toContain(`![${input.algorithm}${own} admits ${admitted} of ${answers.length}`)
    }
  })
})

describe('the guarantee', () => {
  it(`of sliding-window: at most limit × (1 + d / period) in any stretch d (SEED=${SEED})`, async () => {
    const times = await admittedTimes({ algorithm: 'sliding-window', ...TEN })
    for (const [units, seconds] of stretches(times, 10)) {
      expect(units).toBeLessThanOrEqual(10 * (1 + seconds / 10))
    }
  })

  it(`of sliding-log: at most the limit in any period (SEED=${SEED})`, async () => {
    const times = await admittedTimes({ algorithm: 'sliding-log', ...TEN })
    for (const [units, seconds] of stretches(times, 9.999999))
      expect(units, `${seconds}`).toBeLessThanOrEqual(10)
  })

  it(`of gcra, token-bucket and leaky-bucket: they admit the same requests (SEED=${SEED})`, async () => {
    const times = await admittedTimes({ algorithm: 'gcra', ...TEN, burst: 7 })
    expect(await admittedTimes({ algorithm: 'token-bucket', ...TEN, burst: 7 })).toEqual(times)
    expect(await admittedTimes({ algorithm: 'leaky-bucket', ...TEN, queue: 6 })).toEqual(times)
  })
})

describeOnEngines('the examples', fresh => {
  describe('the worst case', () => {
    it('of fixed-window: 240 in a second', async () => {
      const ask = asking(await fresh(), { algorithm: 'fixed-window', ...PER_MINUTE })
      expect(await spendAll(ask, 59.5)).toBe(120)
      expect(await spendAll(ask, 60.4)).toBe(120)
    })

    it('of fixed-window: 100 an hour by the clock admits 200 around the hour, from the first request it does not', async () => {
      const hour = { algorithm: 'fixed-window', limit: 100, period: '1h' } as const
      const byClock = asking(await fresh(), hour)
      expect(await spendAll(byClock, 3599)).toBe(100)
      expect(await spendAll(byClock, 3601)).toBe(100)
      const fromFirst = asking(await fresh(), { ...hour, start: 'first-request' })
      expect(await spendAll(fromFirst, 3599)).toBe(100)
      expect(await spendAll(fromFirst, 3601)).toBe(0)
      expect(await spendAll(fromFirst, 7198.999999)).toBe(0)
      expect(await spendAll(fromFirst, 7199)).toBe(100)
    })

    it('of fixed-window from the first request: 199 in 2 s, if a window is nearly over', async () => {
      const numbers = { algorithm: 'fixed-window', limit: 100, period: '1h', start: 'first-request' } as const
      const ask = asking(await fresh(), numbers)
      await ask(60)
      expect(await spendAll(ask, 3659)).toBe(99)
      expect(await spendAll(ask, 3661)).toBe(100)
    })

    it('of fixed-window with 7d: the window ends on a Thursday', async () => {
      const ask = asking(await fresh(), { algorithm: 'fixed-window', limit: 1, period: '7d' })
      expect((await ask(0)).resetAfter).toBe(Date.UTC(2026, 10, 26) * 1e3 - NOON)
    })

    it('of sliding-window: 239 in less than a minute', async () => {
      const ask = asking(await fresh(), { algorithm: 'sliding-window', ...PER_MINUTE })
      expect(await spendAll(ask, 59.999)).toBe(120)
      expect(await spendAll(ask, 60)).toBe(0)
      expect(await spendAll(ask, 60.5)).toBe(1)
      expect(await spendAll(ask, 119.5)).toBe(118)
    })

    it('of sliding-window: refused early, where sliding-log admits', async () => {
      const ask = asking(await fresh(), { algorithm: 'sliding-window', ...TEN })
      await ask(0.1, 10)
      expect(await ask(10.2)).toMatchObject({ allowed: false, retryAfter: 0.8e6 })
      const exactly = asking(await fresh(), { algorithm: 'sliding-log', ...TEN })
      await exactly(0.1, 10)
      expect(await exactly(10.1, 10)).toMatchObject({ allowed: true })
    })

    it('of sliding-log: the limit, to the microsecond', async () => {
      const ask = asking(await fresh(), { algorithm: 'sliding-log', ...PER_MINUTE })
      expect(await spendAll(ask, 59.5)).toBe(120)
      expect(await spendAll(ask, 119.499999)).toBe(0)
      expect(await spendAll(ask, 119.5)).toBe(120)
    })

    it.each([
      ['token-bucket', 10, 19],
      ['gcra', 10, 19],
      ['token-bucket', 50, 59],
      ['gcra', 50, 59],
      ['gcra', 1, 10],
    ] as const)('of %s with burst %i: %i in a second', async (algorithm, burst, most) => {
      const ask = asking(await fresh(), { algorithm, limit: 10, period: '1s', burst })
      let sum = 0
      for (let i = 0; i < 10; i++) sum += await spendAll(ask, i / 10)
      expect(sum).toBe(most)
      expect((await ask(0.999999)).allowed).toBe(false)
    })

    it('of leaky-bucket: 21 at once, the last after 2 s', async () => {
      const ask = asking(await fresh(), { algorithm: 'leaky-bucket', limit: 10, period: '1s', queue: 20 })
      const verdicts = []
      for (let i = 0; i < 22; i++) verdicts.push(await ask(0))
      expect(verdicts[0]).toMatchObject({ allowed: true, delay: 0 })
      expect(verdicts[20]).toMatchObject({ allowed: true, delay: 2e6 })
      expect(verdicts[21]).toMatchObject({ allowed: false, retryAfter: 0.1e6 })
    })
  })

  describe('spent units', () => {
    it.each(ALGORITHMS_OVER_TIME)('are available again after a reset: %s', async algorithm => {
      const engine = await fresh()
      const ask = asking(engine, { algorithm, ...TEN })
      const full = (await ask(0, 0)).remaining
      await ask(1, 7)
      await engine.reset({ rules: [boundOf({ algorithm, ...TEN })], now: NOON + 2e6 })
      expect(await ask(2, 0)).toMatchObject({ remaining: full, resetAfter: 0 })
      expect((await ask(2, 10)).allowed).toBe(true)
    })

    it('that are refunded after 4 s come back as far as the table states', async () => {
      const given = async (algorithm: AlgorithmName, spentAt: number, [units, spent] = [4, 6]) => {
        const engine = await fresh()
        const ask = asking(engine, { algorithm, ...TEN })
        await ask(1, 6)
        await ask(4, 2)
        const { remaining: before } = await ask(5, 0)
        const rule = { ...boundOf({ algorithm, ...TEN }), units, spent }
        const refund = { rules: [rule], spentAt: NOON + spentAt * 1e6, now: NOON + 5e6 }
        return (await engine.refund(refund)).verdicts[0]!.remaining - before
      }
      // Four units have come back since: the two that are not refunded, and two of the four that are. So the refund adds two.
      for (const algorithm of ['token-bucket', 'gcra'] as const) expect(await given(algorithm, 1)).toBe(2)
      expect(await given('leaky-bucket', 1)).toBe(0)
      expect(await given('sliding-log', 1)).toBe(4)
      expect(await given('sliding-log', 4, [2, 2])).toBe(2)
      expect(await given('sliding-log', 3)).toBe(0)
      expect(await given('fixed-window', 1)).toBe(4)
      expect(await given('fixed-window', -1)).toBe(0)
      expect(await given('sliding-window', 1)).toBe(4)
      expect(await given('sliding-window', -11)).toBe(0)
    })
  })

  describe('changed numbers', () => {
    it.each([
      { algorithm: 'fixed-window', period: '1h' },
      { algorithm: 'fixed-window', period: '1h', start: 'first-request' },
      { algorithm: 'sliding-window', period: '1h' },
      { algorithm: 'sliding-log', period: '1h' },
    ] as const)('keep the spent units of %j', async numbers => {
      const engine = await fresh()
      await asking(engine, { ...numbers, limit: 200 })(0, 100)
      expect((await asking(engine, { ...numbers, limit: 150 })(0, 0)).remaining).toBe(50)
      expect((await asking(engine, { ...numbers, limit: 80 })(0, 0)).remaining).toBe(0)
    })

    it('keep the units in flight; a changed ttl does not', async () => {
      const engine = await fresh()
      await asking(engine, { algorithm: 'concurrency', limit: 5 })(0, 5)
      expect((await asking(engine, { algorithm: 'concurrency', limit: 8 })(0, 0)).remaining).toBe(3)
      expect((await asking(engine, { algorithm: 'concurrency', limit: 4 })(0, 0)).remaining).toBe(0)
      const other = asking(engine, { algorithm: 'concurrency', limit: 4, ttl: '30s' })
      expect((await other(0, 0)).remaining).toBe(4)
    })

    it.each(['gcra', 'token-bucket'] as const)(
      'let the callers of %s spend one more burst',
      async algorithm => {
        const engine = await fresh()
        const before = await spendAll(asking(engine, { algorithm, limit: 10, period: '1s' }), 0)
        const after = await spendAll(asking(engine, { algorithm, limit: 20, period: '1s' }), 0)
        expect(before + after).toBe(30)
      },
    )

    it('of other settings, such as cost and mode, keep the state', async () => {
      const engine = await fresh()
      const numbers = { algorithm: 'gcra', limit: 10, period: '1s' } as const
      await asking(engine, { ...numbers, ...{ mode: 'shadow', cost: 4 } })(0, 4)
      expect((await asking(engine, { ...numbers, ...{ enforce: 0.5, cost: 2 } })(0, 0)).remaining).toBe(6)
    })
  })

  describe('a clock that is set back', () => {
    it('from 21 s to 19 s makes fixed-window from the first request wait 12 s', async () => {
      const ask = asking(await fresh(), { algorithm: 'fixed-window', ...TEN, start: 'first-request' })
      await ask(21, 10)
      expect(await ask(19)).toMatchObject({ allowed: false, retryAfter: 12e6 })
    })

    it.each([
      ['fixed-window', 11],
      ['sliding-window', 12],
      ['sliding-log', 12],
      ['token-bucket', 3],
      ['gcra', 3],
    ] as const)('from 21 s to 19 s makes %s wait %i s', async (algorithm, seconds) => {
      const ask = asking(await fresh(), { algorithm, ...TEN })
      await ask(21, 10)
      expect(await ask(19)).toMatchObject({ allowed: false, retryAfter: seconds * 1e6 })
    })

    it('from 21 s to 19 s holds units in flight 2 s longer; by more than the ttl, it frees them', async () => {
      const ask = asking(await fresh(), { algorithm: 'concurrency', limit: 1, ttl: '10s' })
      await ask(21)
      expect(await ask(19)).toMatchObject({ allowed: false, retryAfter: 12e6 })
      expect((await ask(10)).allowed).toBe(true)
    })

    it.each(ALGORITHMS_OVER_TIME)('from 41 s to 10 s makes %s ignore its record', async algorithm => {
      const ask = asking(await fresh(), { algorithm, ...TEN })
      await ask(41, 10)
      expect((await ask(10, 10)).allowed).toBe(true)
    })
  })

  describe('modes', () => {
    const replaced = { name: 'minute', by: 'consumer', algorithm: 'fixed-window', ...PER_MINUTE } as const
    const candidate = {
      ...replaced,
      name: 'next',
      algorithm: 'sliding-window',
      candidateFor: 'minute',
    } as const

    it('shadow: a refusal has no effect on the request and charges nothing; a candidate is compared with the replaced rule', async () => {
      const engine = await fresh()
      const ask = async (at: number, cost: number) => {
        const rules = rulesOf(replaced, candidate).map(rule => bound(rule, ACME, cost))
        return engine.evaluate({ rules, plans: [], now: NOON + at * 1e6 })
      }
      const both = (verdicts: readonly Verdict[]) =>
        verdicts.map(({ allowed, remaining }) => [allowed, remaining])
      const first = await ask(59, 120)
      expect(both(first.verdicts)).toEqual([
        [true, 0],
        [true, 0],
      ])
      expect(first.verdicts[1]!.agrees).toBe(true)
      const second = await ask(75, 60)
      expect(second.status).toBe('admitted')
      expect(both(second.verdicts)).toEqual([
        [true, 60],
        [false, 30],
      ])
      expect(second.verdicts[1]!.agrees).toBe(false)
      // The replaced rule refuses, so nothing is charged to the shadow rule, which would have admitted the request.
      const third = await ask(119, 80)
      expect(third.status).toBe('refused')
      expect(both(third.verdicts)[1]).toEqual([true, 118])
    })

    it('enforce: a larger share includes the callers of a smaller one; each rule selects its own callers', () => {
      const enforcedFor = (name: string, enforce: number) => {
        const [rule] = rulesOf({ name, by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s', enforce })
        const callers = Array.from({ length: 10_000 }, (_, i) => `caller-${i}`)
        return new Set(callers.filter(caller => bound(rule!, consumerStateKey(caller)).mode === 'enforce'))
      }
      const [tenth, half, other] = [enforcedFor('a', 0.1), enforcedFor('a', 0.5), enforcedFor('b', 0.1)]
      expect(tenth.size / 10_000).toBeCloseTo(0.1, 1)
      expect(half.size / 10_000).toBeCloseTo(0.5, 1)
      expect(tenth.isSubsetOf(half)).toBe(true)
      expect(tenth.intersection(other).size).toBeLessThan(tenth.size / 4)
    })
  })

  describe('several rules', () => {
    it('refuse with the longest time to wait, or with -1 if a rule can never admit the cost', async () => {
      const engine = await fresh()
      const rules = rulesOf(
        { name: 'second', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' },
        { name: 'hour', by: 'consumer', algorithm: 'fixed-window', limit: 20, period: '1h' },
      )
      const ask = async (cost: number) =>
        toDecision(
          await engine.evaluate({ rules: rules.map(rule => bound(rule, ACME, cost)), plans: [], now: NOON }),
        )
      await ask(10)
      expect(await ask(10)).toMatchObject({ kind: 'denied', retryAfter: 1e6 })
      expect(await ask(11)).toMatchObject({ kind: 'denied', retryAfter: -1 })
    })
  })
})

type Ask = (at: number, cost?: number) => Promise<Verdict>

/** Returns a function that decides one rule for one caller, at a time in seconds after noon. */
function asking(engine: Engine, numbers: NumbersInput): Ask {
  return async (at, cost = 1) => {
    const now = NOON + Math.round(at * 1e6)
    const { verdicts } = await engine.evaluate({ rules: [boundOf(numbers, cost)], plans: [], now })
    return verdicts[0]!
  }
}

function boundOf(numbers: NumbersInput, cost = 1) {
  const [rule] = rulesOf(ruleOf(numbers))
  return bound(rule!, ACME, cost)
}

/** Spends all remaining units at one time, and returns their number. One more unit must be refused. */
async function spendAll(ask: Ask, at: number): Promise<number> {
  const { remaining } = await ask(at, 0)
  if (remaining > 0) expect((await ask(at, remaining)).allowed).toBe(true)
  expect((await ask(at)).allowed).toBe(false)
  return remaining
}

/** The times of the admitted requests. Requests come at once, after a pause, just before a window ends, or as soon as they may. */
async function admittedTimes(numbers: NumbersInput): Promise<number[]> {
  const random = randomFrom(SEED)
  const ask = asking(new ModelEngine(), numbers)
  const times: number[] = []
  let at = 0
  for (let i = 0; i < 1000; i++) {
    const { allowed, retryAfter } = await ask(at)
    if (allowed) times.push(at)
    const toNextWindow = 9.999999 - (at % 10)
    const step = random.pick([0, 0, 0, 0, 0.5, 1.7, toNextWindow])
    const waits = random.chance(0.5)
    at = Math.round((at + (waits ? retryAfter / 1e6 : step)) * 1e6) / 1e6
  }
  return times
}

/** For any two admitted requests at most `longest` seconds apart: the number admitted from one to the other, and their distance. */
function stretches(times: readonly number[], longest: number): [number, number][] {
  return times.flatMap((from, i) =>
    times.flatMap((to, j): [number, number][] =>
      j < i || to - from > longest ? [] : [[j - i + 1, Math.round((to - from) * 1e6) / 1e6]],
    ),
  )
}

function ruleOf(numbers: NumbersInput): RuleInput {
  return { name: 'a', by: 'consumer', ...numbers }
}

/** The first mistake, as `npx sluicegate check` prints it. */
function messageOf(numbers: NumbersInput): string {
  try {
    rulesOf(ruleOf(numbers))
    return 'no mistake'
  } catch (error) {
    return (error as Error).message.split('\n')[1]!.trim()
  }
}
