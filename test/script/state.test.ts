/** States in Redis: their layout, their lifetime, and the treatment of values that are not states. */
import { expect, it } from 'vitest'
import type { Rule } from '../../src/config/compile.ts'
import type { BoundRule } from '../../src/script/evaluation.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import { bound } from '../support/bound.ts'
import { describeInBothForms, type RedisEngine, rulesOf } from '../support/engines.ts'
import { randomFrom, SEED } from '../support/random.ts'
import { record } from '../support/state-record.ts'
import { evaluationOf, NOON } from '../support/traffic.ts'

const STATE = consumerStateKey('acme')

const counted = (rules: readonly Rule[]): BoundRule[] => rules.map(rule => bound(rule, STATE))

const gcra = (name: string, limit = 2, period: '1s' | '1h' = '1s') =>
  rulesOf({ name, by: 'consumer', algorithm: 'gcra', limit, period })[0]!

/** Reads records as in src/script/prelude.lua: 3 bytes tag, 42 bits idle_at (ms, counted back from May 15, 2109), 46 bits n. */
async function recordsOf(redis: RedisEngine): Promise<Record<string, [number, number]>> {
  const state = ((await redis.send(['GET', STATE])) as Buffer | null) ?? Buffer.alloc(0)
  const records: Record<string, [number, number]> = {}
  for (let at = 0; at < state.length; at += 14) {
    const bits = BigInt(`0x${state.toString('hex', at + 3, at + 14)}`)
    records[state.toString('latin1', at, at + 3)] = [
      (2 ** 42 - 1 - Number(bits >> 46n)) * 1000,
      Number(bits & (2n ** 46n - 1n)),
    ]
  }
  return records
}

/** The most that is added to the life of a key, so that keys that become idle together do not expire together (s). */
const SPREAD = 60

/** Expects that the key expires this many seconds after the work, or up to a minute later, by the clock of Redis. */
async function expectLife(redis: RedisEngine, key: string, seconds: number, work: () => Promise<unknown>) {
  const nowMs = async () => {
    const [seconds, microseconds] = (await redis.send(['TIME'])) as Buffer[]
    return Number(seconds) * 1000 + Math.floor(Number(microseconds) / 1000)
  }
  const before = await nowMs()
  await work()
  const after = await nowMs()
  const end = Number(await redis.send(['PEXPIRETIME', key]))
  expect(end).toBeGreaterThanOrEqual(before + seconds * 1000)
  expect(end).toBeLessThan(after + (seconds + SPREAD) * 1000)
}

describeInBothForms('the state in Redis', fresh => {
  const put = (redis: RedisEngine, state: Buffer) => redis.send(['SET', STATE, state])
  const decide = (redis: RedisEngine, rules: readonly Rule[], now = NOON) =>
    redis.evaluate(evaluationOf(counted(rules), now))

  it('takes a time in proportion to its records, such as those of numbers that each call varies', async () => {
    const redis = await fresh()
    async function fastestOf(records: number): Promise<number> {
      const tags = Array.from(
        { length: records },
        (_, i) => `a${String.fromCharCode(48 + (i >> 7), i & 127)}`,
      )
      await put(redis, Buffer.concat(tags.map(tag => record(tag, NOON + 3600e6, 1))))
      const times: number[] = []
      for (let i = 0; i < 5; i++) {
        const startedAt = performance.now()
        await decide(redis, [gcra('second', 1000)])
        times.push(performance.now() - startedAt)
      }
      return Math.min(...times)
    }
    const few = await fastestOf(500)
    // In quadratic time: a hundred times as long.
    expect(await fastestOf(5000)).toBeLessThan(40 * few)
  })

  it('is one string per identity, with 14 bytes per rule', async () => {
    const redis = await fresh()
    const [second, hour] = rulesOf(
      { name: 'second', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' },
      { name: 'hour', by: 'consumer', algorithm: 'fixed-window', limit: 10, period: '1h' },
    )
    await decide(redis, [second!, hour!])
    expect(Object.keys(await redis.snapshot())).toEqual([STATE])
    expect(await redis.send(['STRLEN', STATE])).toBe(28)
    expect(await recordsOf(redis)).toEqual({
      [second!.tag]: [NOON + 100_000, 0],
      [hour!.tag]: [NOON + 3600e6, 1],
    })
  })

  /** One call writes all records, or records are written one by one because the state has another record. */
  const WAYS = [
    ['without other records', Buffer.alloc(0)],
    ['with another record', record('zzz', NOON + 1e6, 0)],
  ] as const

  /** The record of the rule with the longest period is in the first, the second or the third chunk that one call writes. */
  it.each(
    WAYS.flatMap(([way, before]) => [
      ...[0, 1].map(at => ({ way, before, at, count: 2 })),
      ...[0, 7, 8, 16].map(at => ({ way, before, at, count: 17 })),
    ]),
  )(
    'lives 10 s longer than its longest rule (rule $at of $count, in a state $way)',
    async ({ before, at, count }) => {
      const redis = await fresh()
      if (before.length > 0) await put(redis, before)
      const rules = rulesOf(
        ...Array.from({ length: count }, (_, i) => ({
          ...{ name: `r-${i}`, by: 'consumer' as const, algorithm: 'fixed-window' as const, limit: 10 },
          period: i === at ? ('1h' as const) : ('1s' as const),
        })),
      )
      await expectLife(redis, STATE, 3610, () => decide(redis, rules))
    },
  )

  it.each([
    ['1s', 11, 2],
    ['1m', 70, 17],
    ['1h', 3610, SPREAD],
  ] as const)(
    'expires at different seconds with a period of %s: up to a quarter of its life later, and at most a minute',
    async (period, life, spread) => {
      const redis = await fresh()
      const [rule] = rulesOf({ name: 'a', by: 'consumer', algorithm: 'fixed-window', limit: 1e6, period })
      const lives = new Set<number>()
      for (let i = 0; i < 120; i++) {
        await decide(redis, [rule!], NOON + i)
        lives.add(Number(await redis.send(['TTL', STATE])))
      }
      // TTL rounds to whole seconds.
      expect(Math.min(...lives)).toBeGreaterThanOrEqual(life - 1)
      expect(Math.max(...lives)).toBeLessThan(life + spread)
      expect(lives.size).toBeGreaterThanOrEqual(spread)
    },
  )

  it('lives as long as a record of another rule that is kept', async () => {
    const redis = await fresh()
    await put(redis, record('zzz', NOON + 7200e6, 0))
    await expectLife(redis, STATE, 7210, () => decide(redis, [gcra('a')]))
  })

  it('has logs whose life is extended by each entry', async () => {
    const redis = await fresh()
    const [rule] = rulesOf({ name: 'log', by: 'consumer', algorithm: 'sliding-log', limit: 10, period: '1h' })
    const { sideKey } = counted([rule!])[0]!
    await expectLife(redis, sideKey!, 3610, () => decide(redis, [rule!]))
    await redis.send(['EXPIRE', sideKey!, '5'])
    await expectLife(redis, sideKey!, 3610, () => decide(redis, [rule!], NOON + 1e6))
  })

  it('keeps a record whose tag also occurs inside another record', async () => {
    const redis = await fresh()
    const rule = gcra('a', 2, '1h')
    await put(redis, record('zzz', NOON + 1e6, 0))
    await decide(redis, [rule])
    const written = (await redis.send(['GET', STATE])) as Buffer
    expect(written.toString('latin1', 0, 3)).toBe(rule.tag)
    // The record of the rule will have these bytes inside, because it will have the same numbers. No reservation begins like this.
    const tag = written.toString('latin1', 2, 5)
    expect(tag.charCodeAt(0)).toBeLessThan(128)
    await put(redis, record(tag, NOON + 60e6, 7))
    await decide(redis, [rule])
    expect(await recordsOf(redis)).toEqual({
      [rule.tag]: [NOON + 1800e6, 0],
      [tag]: [NOON + 60e6, 7],
    })
  })

  it('keeps a reservation of an earlier config until it ends, and no longer than its own rules need', async () => {
    const redis = await fresh()
    const rule = gcra('a', 2, '1s')
    // The second record has a part of an id where others have an instant.
    const [first, second] = [record('\x80id', NOON + 20e6, 1), record('\xa0id', NOON + 300 * 86400e6, 2)]
    const lengthOf = async () => ((await redis.send(['GET', STATE])) as Buffer).length
    await put(redis, Buffer.concat([first, second]))
    await expectLife(redis, STATE, 30, () => decide(redis, [rule]))
    expect(await lengthOf()).toBe(42)
    await expectLife(redis, STATE, 11, () => decide(redis, [rule], NOON + 21e6))
    expect(await lengthOf()).toBe(14)
  })

  it('can contain the largest possible numbers', async () => {
    const redis = await fresh()
    const rules = rulesOf(
      { name: 'many', by: 'consumer', algorithm: 'fixed-window', limit: 1e9, period: '366d', cost: 1e9 },
      { name: 'fast', by: 'consumer', algorithm: 'gcra', limit: 999_999_937, period: '1s', cost: 1 },
      { name: 'slow', by: 'consumer', algorithm: 'gcra', limit: 1, period: '366d', burst: 2, cost: 2 },
    )
    const { verdicts } = await decide(redis, rules)
    expect(verdicts.map(({ remaining }) => remaining)).toEqual([0, 999_999_936, 0])
    const records = await recordsOf(redis)
    expect(records[rules[0]!.tag]![1]).toBe(1e9)
    expect(records[rules[1]!.tag]).toEqual([NOON + 1000, 999_999_937 * 1000 - 1e6])
    expect(records[rules[2]!.tag]![0]).toBe(NOON + 2 * 366 * 86400e6)
    expect((await decide(redis, [rules[2]!], NOON + 1)).verdicts[0]!.retryAfter).toBe(2 * 366 * 86400e6 - 1)
  })

  it('keeps the records of rules that are not part of the request', async () => {
    const redis = await fresh()
    const [a, b, c] = [gcra('a', 2, '1h'), gcra('b', 2, '1h'), gcra('c', 2, '1h')]
    await decide(redis, [a, b])
    // The request has as many rules as the state has records, but other ones.
    await decide(redis, [b, c])
    expect(Object.keys(await recordsOf(redis)).sort()).toEqual([a.tag, b.tag, c.tag].sort())
    expect((await decide(redis, [a])).verdicts[0]!.remaining).toBe(0)
  })

  it('drops the records of removed rules once they are idle', async () => {
    const redis = await fresh()
    const [old, young] = [gcra('old', 1), gcra('young', 1)]
    await decide(redis, [old])
    await decide(redis, [young], NOON + 500_000)
    expect(await recordsOf(redis)).toHaveProperty(old.tag)
    await decide(redis, [young], NOON + 1_500_000)
    expect(await recordsOf(redis)).toEqual({ [young.tag]: [NOON + 2_500_000, 0] })
  })

  it('finds a tag only where a record begins', async () => {
    const redis = await fresh()
    const rule = gcra('a')
    // An earlier live record, in which the bytes of the count are equal to the tag.
    const decoy = record('zzz', NOON + 60e6, Buffer.from(`\0${rule.tag}`).readUInt32BE(0))
    await put(redis, Buffer.concat([decoy, record(rule.tag, NOON + 1e6, 0)]))
    expect((await decide(redis, [rule])).status).toBe('refused')
    await put(redis, decoy)
    expect((await decide(redis, [rule])).verdicts[0]!.remaining).toBe(1)
    expect(Object.keys(await recordsOf(redis)).sort()).toEqual([rule.tag, 'zzz'].sort())
  })

  it.each([
    '',
    'x',
    'not a state',
    '\0',
    'twentyeight characters here!',
    'x'.repeat(14_000),
    `{"json":true}`,
  ])('with the text %j counts as idle, and is replaced', async text => {
    const redis = await fresh()
    const rule = gcra('a')
    await put(redis, Buffer.from(text, 'latin1'))
    expect((await decide(redis, [rule])).verdicts[0]).toMatchObject({ allowed: true, remaining: 1 })
    expect(await recordsOf(redis)).toEqual({ [rule.tag]: [NOON + 500_000, 0] })
  })

  it.each(['gcra', 'fixed-window'] as const)(
    'with impossible numbers of %s counts as idle',
    async algorithm => {
      const redis = await fresh()
      const [rule] = rulesOf({ name: 'a', by: 'consumer', algorithm, limit: 2, period: '1s' })
      for (const [idleAt, n] of [
        [2 ** 52, 0],
        [NOON + 3600e6, 1],
        [1, 2 ** 32 - 1],
        [NOON + 1, 7],
      ] as const) {
        await put(redis, record(rule!.tag, idleAt, n))
        expect((await decide(redis, [rule!])).verdicts[0]!.allowed, `${idleAt}, ${n}`).toBe(true)
      }
    },
  )

  it(`with random bytes never makes a decision fail (SEED=${SEED})`, async () => {
    const redis = await fresh()
    const random = randomFrom(SEED)
    const rules = [
      gcra('a'),
      ...rulesOf({ name: 'b', by: 'consumer', algorithm: 'fixed-window', limit: 2, period: '1h' }),
    ]
    for (let i = 0; i < 300; i++) {
      const bytes = Buffer.from(Array.from({ length: random.int(0, 60) }, () => random.int(0, 255)))
      const hasTag = random.chance(0.5)
      await put(
        redis,
        hasTag ? Buffer.concat([record(random.pick(rules).tag, random.int(0, 2 ** 52), 9), bytes]) : bytes,
      )
      const { status } = await decide(redis, rules)
      expect(['admitted', 'refused']).toContain(status)
    }
  })

  it('replaces a value of another type', async () => {
    const redis = await fresh()
    await redis.send(['LPUSH', STATE, 'x'])
    expect((await decide(redis, [gcra('a')])).status).toBe('admitted')
    expect(String(await redis.send(['TYPE', STATE]))).toBe('string')
  })

  it('uses the clock of Redis if the call has no time', async () => {
    const redis = await fresh()
    const rule = gcra('a', 1, '1h')
    await redis.evaluate({ rules: counted([rule]), plans: ['free'] } as never)
    const [seconds] = (await redis.send(['TIME'])) as Buffer[]
    const [idleAt] = (await recordsOf(redis))[rule.tag]!
    expect(Math.abs(idleAt / 1e6 - 3600 - Number(seconds))).toBeLessThan(5)
  })
})
