/** The measurements of an origin that isolates share: windows, the state of a controller, and the pushes of its machines. */
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  decodePush,
  decodeReport,
  encodePush,
  encodeReport,
  type SignalPush,
  type SignalReport,
} from '../../src/script/signal.ts'
import { signalScript } from '../../src/script/signal-text.ts'
import { reportersKey, signalKey } from '../../src/store/keys.ts'
import { describeOnRedisEngine, type RedisEngine } from '../support/engines.ts'
import { forEvery } from '../support/property.ts'
import { SEED } from '../support/random.ts'

const SECOND = 1_000_000
/** A time in window 1,800,000,000. */
const NOON = 1_800_000_000 * SECOND
const WINDOW = NOON / SECOND
const KEY = signalKey('origin')

const report = async (redis: RedisEngine, given: Partial<SignalReport> = {}) => {
  const whole = { signal: 'origin', windowMs: 1000, sums: [0, 0], now: NOON, ...given }
  return decodeReport(await redis.run(encodeReport(signalScript(), whole)), whole.sums.length)
}
const push = async (redis: RedisEngine, given: Partial<SignalPush> = {}) => {
  const whole = { signal: 'origin', reporter: 'api-1', value: 500, staleAfterMs: 5000, now: NOON, ...given }
  return decodePush(await redis.run(encodePush(signalScript(), whole)))
}

describeOnRedisEngine('a report', fresh => {
  it('returns nothing at first', async () => {
    expect(await report(await fresh(), { sums: [1, 2] })).toEqual({ at: NOON })
  })

  it('is added to the other reports of its window, and the window is returned after it has ended', async () => {
    const redis = await fresh()
    await report(redis, { sums: [700, 1] })
    expect(await report(redis, { sums: [900, 2], now: NOON + 999_999 })).toEqual({ at: NOON + 999_999 })
    const closed = { window: WINDOW, sums: [1600, 3] }
    expect(await report(redis, { sums: [5, 1], now: NOON + SECOND })).toEqual({ at: NOON + SECOND, closed })
    expect((await report(redis, { now: NOON + 1.9 * SECOND })).closed).toEqual(closed)
    const next = await report(redis, { now: NOON + 2 * SECOND })
    expect(next.closed).toEqual({ window: WINDOW + 1, sums: [5, 1] })
  })

  it('returns the last window with a report, also after windows without reports', async () => {
    const redis = await fresh()
    await report(redis, { sums: [7, 1] })
    const { closed } = await report(redis, { now: NOON + 60 * SECOND })
    expect(closed).toEqual({ window: WINDOW, sums: [7, 1] })
  })

  it('sets the length of its windows', async () => {
    const redis = await fresh()
    await report(redis, { sums: [1], windowMs: 250 })
    const { closed } = await report(redis, { sums: [0], windowMs: 250, now: NOON + 250_000 })
    expect(closed).toEqual({ window: 4 * WINDOW, sums: [1] })
  })

  it('uses the clock of Redis', async () => {
    const redis = await fresh()
    const { at } = await report(redis, { now: undefined })
    expect(Math.abs(at / 1000 - Date.now())).toBeLessThan(60_000)
  })

  it('never exceeds the integers that a double can represent', async () => {
    const redis = await fresh()
    for (let i = 0; i < 3; i++) await report(redis, { sums: [2 ** 52, 2 ** 51] })
    const { closed } = await report(redis, { now: NOON + SECOND })
    expect(closed?.sums).toEqual([2 ** 52, 2 ** 52])
  })

  it('lives for an hour', async () => {
    const redis = await fresh()
    await report(redis, { now: undefined })
    const seconds = Number(await redis.send(['TTL', KEY]))
    expect(seconds).toBeGreaterThan(3500)
    expect(seconds).toBeLessThanOrEqual(3600)
  })

  it('counts for its own signal only', async () => {
    const redis = await fresh()
    await report(redis, { sums: [1, 1] })
    expect(await report(redis, { signal: 'other', now: NOON + SECOND })).toEqual({ at: NOON + SECOND })
  })
})

describeOnRedisEngine('the state of a controller', fresh => {
  const at = (seconds: number) => NOON + seconds * SECOND
  const stateOf = (window: number, text: string) => ({ state: { window: WINDOW + window, text } })

  it('is stored with its window, and all isolates get it', async () => {
    const redis = await fresh()
    await report(redis)
    const sent = await report(redis, { now: at(1), ...stateOf(0, '28000 1') })
    expect(sent.state).toEqual({ window: WINDOW, text: '28000 1' })
    expect((await report(redis, { now: at(1.5) })).state).toEqual(sent.state)
  })

  it('is not replaced by a state of the same window or of an older one', async () => {
    const redis = await fresh()
    await report(redis)
    await report(redis, { now: at(3), ...stateOf(2, 'first') })
    for (const window of [2, 1, 0]) {
      const { state } = await report(redis, { now: at(3), ...stateOf(window, 'second') })
      expect(state).toEqual({ window: WINDOW + 2, text: 'first' })
    }
    expect((await report(redis, { now: at(4), ...stateOf(3, 'third') })).state?.text).toBe('third')
  })

  it('is ignored if its window has not ended', async () => {
    const redis = await fresh()
    for (const window of [0, 1, 1000])
      expect((await report(redis, stateOf(window, 'x'))).state).toBeUndefined()
  })

  it('may be an empty text', async () => {
    const redis = await fresh()
    await report(redis, { now: at(1), ...stateOf(0, '') })
    expect((await report(redis, { now: at(1) })).state).toEqual({ window: WINDOW, text: '' })
  })

  it('stays if the clock is set back, and is replaced in the next window', async () => {
    const redis = await fresh()
    await report(redis, { now: at(100), sums: [9, 9] })
    await report(redis, { now: at(101), ...stateOf(100, 'kept') })
    const back = await report(redis, { now: at(50), sums: [1, 1] })
    expect(back).toEqual({ at: at(50), state: { window: WINDOW + 49, text: 'kept' } })
    const next = await report(redis, { now: at(51), ...stateOf(100, 'of the old clock') })
    expect(next.closed).toEqual({ window: WINDOW + 50, sums: [1, 1] })
    expect(next.state?.text).toBe('kept')
    expect((await report(redis, { now: at(51), ...stateOf(50, 'moved') })).state?.text).toBe('moved')
  })

  it('stays if the clock is set forward and back again', async () => {
    const redis = await fresh()
    await report(redis)
    await report(redis, { now: at(1), ...stateOf(0, 'a') })
    await report(redis, { now: at(1e7), ...stateOf(1e7 - 1, 'b') })
    expect((await report(redis, { now: at(2) })).state).toEqual({ window: WINDOW + 1, text: 'b' })
    expect((await report(redis, { now: at(3), ...stateOf(2, 'c') })).state?.text).toBe('c')
  })

  it('stays if the number of sums changes', async () => {
    const redis = await fresh()
    await report(redis)
    await report(redis, { now: at(1), ...stateOf(0, 'a') })
    const other = await report(redis, { now: at(2), sums: [1, 2, 3] })
    expect(other).toEqual({ at: at(2), state: { window: WINDOW, text: 'a' } })
  })
})

describeOnRedisEngine('a push', (fresh, kind) => {
  const closing = async (redis: RedisEngine, now: number) => {
    await report(redis, { now: now - SECOND })
    return (await report(redis, { now })).closed?.pushed
  }

  it('returns the mean of the last values of all reporters', async () => {
    const redis = await fresh()
    expect(await push(redis, { reporter: 'a', value: 100 })).toEqual({ mean: 100, reporters: 1 })
    expect(await push(redis, { reporter: 'b', value: 1000 })).toEqual({ mean: 550, reporters: 2 })
    expect(await push(redis, { reporter: 'a', value: 0 })).toEqual({ mean: 500, reporters: 2 })
    expect(await push(redis, { reporter: 'c', value: 1 })).toEqual({ mean: 334, reporters: 3 })
  })

  it.skipIf(kind === 'embedded')('fails if Redis is full, and the other reporters stay', async () => {
    const redis = await fresh()
    await push(redis, { reporter: 'a', value: 100 })
    await redis.send(['CONFIG', 'SET', 'maxmemory', '1'])
    const refused = await push(redis, { reporter: 'b', value: 300 }).catch(String)
    await redis.send(['CONFIG', 'SET', 'maxmemory', '0'])
    expect(refused).toContain('OOM')
    expect(await push(redis, { reporter: 'b', value: 300 })).toEqual({ mean: 200, reporters: 2 })
  })

  it('is returned to all isolates with a window that closes while the push is fresh', async () => {
    const redis = await fresh()
    await push(redis, { value: 800 })
    expect(await report(redis)).toEqual({ at: NOON })
    const seen = await report(redis, { now: NOON + SECOND })
    expect(seen.closed).toEqual({ window: WINDOW, sums: [0, 0], pushed: { mean: 800, reporters: 1 } })
    await push(redis, { value: 900, now: NOON + 1.1 * SECOND })
    expect((await report(redis, { now: NOON + 1.2 * SECOND })).closed).toEqual(seen.closed)
    expect((await report(redis, { now: NOON + 2 * SECOND })).closed?.pushed?.mean).toBe(900)
  })

  it('counts until it is stale', async () => {
    const redis = await fresh()
    await push(redis)
    expect(await closing(redis, NOON + 4.9 * SECOND)).toEqual({ mean: 500, reporters: 1 })
    expect(await closing(redis, NOON + 6 * SECOND)).toBeUndefined()
    await push(redis, { reporter: 'b', value: 300, now: NOON + 6 * SECOND })
    expect(await closing(redis, NOON + 7 * SECOND)).toEqual({ mean: 300, reporters: 1 })
    expect(Number(await redis.send(['HLEN', reportersKey('origin')]))).toBe(1)
  })

  it('stays fresh if the clock is set back a little, and not if it is set back far', async () => {
    const redis = await fresh()
    await push(redis)
    expect(await closing(redis, NOON - 2 * SECOND)).toEqual({ mean: 500, reporters: 1 })
    expect(await closing(redis, NOON - 60 * SECOND)).toBeUndefined()
    expect(await push(redis, { reporter: 'b', value: 0, now: NOON - 60 * SECOND })).toEqual({
      mean: 0,
      reporters: 1,
    })
  })

  it('does not change the windows and the state', async () => {
    const redis = await fresh()
    await report(redis, { sums: [5, 6] })
    await push(redis, { now: NOON + 0.5 * SECOND })
    await report(redis, { now: NOON + SECOND, state: { window: WINDOW - 1, text: 's' } })
    await push(redis, { now: NOON + 1.5 * SECOND })
    const { closed, state } = await report(redis, { now: NOON + 1.6 * SECOND })
    expect([closed?.sums, state?.text]).toEqual([[5, 6], 's'])
  })

  it('updates the mean at most five times a second if there are many reporters', async () => {
    const redis = await fresh()
    const entries = Array.from({ length: 21 }, (_, i) => [`m-${i}`, `0 ${NOON}`]).flat()
    await redis.send(['HSET', reportersKey('origin'), ...entries])
    const at = (ms: number) => ({ reporter: `m-${ms % 21}`, value: 1000, now: NOON + ms * 1000 })
    const first = await push(redis, at(1))
    expect(first).toEqual({ mean: 48, reporters: 21 })
    for (const ms of [2, 3, 200]) expect(await push(redis, at(ms))).toEqual(first)
    expect(await push(redis, at(201))).toEqual({ mean: 238, reporters: 21 })
  })

  it('of a new reporter removes the oldest of a thousand, at the next mean or after 100 new ones', async () => {
    const redis = await fresh()
    const key = reportersKey('origin')
    const entries = Array.from({ length: 1000 }, (_, i) => [`m-${i}`, `400 ${NOON + i}`]).flat()
    await redis.send(['HSET', key, ...entries])
    const size = async () => Number(await redis.send(['HLEN', key]))
    const isThere = async (reporter: string) => (await redis.send(['HGET', key, reporter])) !== null
    const first = await push(redis, { reporter: 'm-0', value: 1000, now: NOON + 2000 })
    expect(first).toEqual({ mean: 401, reporters: 1000 })
    for (let i = 1; i <= 100; i++)
      await push(redis, { reporter: `new-${i}`, value: 400, now: NOON + 2000 + i })
    expect(await size()).toBe(1100)
    expect(await push(redis, { reporter: 'new-101', value: 400, now: NOON + 3000 })).toEqual(first)
    expect(await size()).toBe(1000)
    // m-0 has pushed again, so m-1 was the oldest.
    for (const there of ['m-0', 'm-102', 'new-1', 'new-101']) expect(await isThere(there), there).toBe(true)
    for (const gone of ['m-1', 'm-101']) expect(await isThere(gone), gone).toBe(false)
    await push(redis, { reporter: 'new-102', now: NOON + 4000 })
    expect(await size()).toBe(1001)
    await push(redis, { reporter: 'new-102', now: NOON + 203_000 })
    expect([await size(), await isThere('m-102')]).toEqual([1000, false])
  })

  it('expires after an hour, with the reporters', async () => {
    const redis = await fresh()
    await push(redis, { now: undefined })
    for (const key of [KEY, reportersKey('origin')]) expect(Number(await redis.send(['TTL', key]))).toBe(3600)
  })
})

/** Contents that the script cannot have written. */
const GARBAGE = [
  ...['', '|', '||', ';;;;;;;|', 'x', '\0\xff', '1', 'a'.repeat(5000), `${'9'.repeat(3000)}|`],
  ...[
    `${WINDOW};1 2;${WINDOW};1 2;-1;0;-1;|`,
    `${WINDOW};1 2 3;-1;1 2;-1;0;-1;|`,
    `${WINDOW};1;-1;1;-1;0;-1;|`,
  ],
  `${'9'.repeat(400)};1 2;-1;1 2;-1;0;-1;|`,
  `${WINDOW};${'9'.repeat(400)} 2;-1;1 2;-1;0;-1;|`,
  `${WINDOW - 1};1 2;-7;1 2;-9;0;-9;x|`,
  `${WINDOW - 1};1 2;${WINDOW - 2};1 2;5000;99999;${'9'.repeat(400)};x|5000 ${NOON} 1000 99999`,
  `${WINDOW - 1};1 2;${WINDOW - 2};1 2;1;1;${WINDOW + 5};future|1 ${NOON + 1e12} 5000000 1`,
  ...['|1 2 3', `|1 ${NOON} 5000000 1 1`, `|${'9'.repeat(400)} ${NOON} 5000000 1`, '|-1 -1 -1 -1'],
]

describeOnRedisEngine('foreign contents', fresh => {
  it.each(GARBAGE)('of the signal count as missing: %j', async content => {
    const redis = await fresh()
    await redis.send(['SET', KEY, content])
    await report(redis, { sums: [3, 1] })
    await redis.send(['SET', KEY, content])
    await push(redis, { value: 700 })
    await report(redis, { now: NOON + SECOND, sums: [4, 1] })
    const { closed } = await report(redis, { now: NOON + 2 * SECOND })
    expect(closed).toEqual({ window: WINDOW + 1, sums: [4, 1], pushed: { mean: 700, reporters: 1 } })
    expect(((await redis.send(['GET', KEY])) as Buffer).length).toBeLessThan(500)
  })

  it.each([
    ['their mean', undefined, 533],
    ['the busiest one', 0, 1000],
    ['the one that a third of them reach', 1 / 3, 1000],
    ['the one that half of them reach', 0.5, 300],
    ['the one that all of them reach', 1, 300],
  ])('are summed up as %s', async (_, busyShare, mean) => {
    const redis = await fresh()
    await push(redis, { reporter: 'api-1', value: 1000, busyShare })
    await push(redis, { reporter: 'api-2', value: 300, busyShare })
    expect(await push(redis, { reporter: 'api-3', value: 300, busyShare })).toEqual({ mean, reporters: 3 })
  })

  it('of another type are replaced', async () => {
    const redis = await fresh()
    for (const key of [KEY, reportersKey('origin')]) await redis.send(['RPUSH', key, 'x'])
    await report(redis, { sums: [3, 1] })
    expect((await report(redis, { now: NOON + SECOND })).closed?.sums).toEqual([3, 1])
    await redis.send(['DEL', KEY])
    await redis.send(['RPUSH', KEY, 'x'])
    expect(await push(redis)).toEqual({ mean: 500, reporters: 1 })
  })

  it('among the reporters are dropped', async () => {
    const redis = await fresh()
    const entries = [
      'x',
      '1',
      '1 1 1',
      '9999 1',
      `1001 ${NOON}`,
      `-1 ${NOON}`,
      `1 ${'9'.repeat(400)}`,
      `1 ${NOON + 1e12}`,
    ]
    await redis.send(['HSET', reportersKey('origin'), ...entries.flatMap((entry, i) => [`r${i}`, entry])])
    expect(await push(redis)).toEqual({ mean: 500, reporters: 1 })
    expect(Number(await redis.send(['HLEN', reportersKey('origin')]))).toBe(1)
  })

  it(`never lead to an invalid reply (SEED=${SEED})`, async () => {
    const redis = await fresh()
    const number = fc.oneof(
      fc.integer({ min: -3, max: 3000 }),
      fc.integer({ min: WINDOW - 5, max: WINDOW + 5 }),
    )
    const piece = fc.oneof(
      number.map(String),
      fc.constantFrom('', ' ', '1 2', 'x', '-', `1 ${NOON} 900000 5`),
    )
    const content = fc.array(fc.tuple(piece, fc.constantFrom(';', ';', ';', '|', ' ')), { maxLength: 14 })
    await forEvery(content, 60, async pieces => {
      await redis.send(['SET', KEY, pieces.flat().join('')])
      await report(redis)
      await push(redis)
      await report(redis, { now: NOON + SECOND })
    })
  })
})

describe('the wire format', () => {
  it.each([[[]], [[-1]], [[1.5]], [[Number.NaN]], [[2 ** 52 + 1]], [Array(17).fill(1)]])(
    'rejects a report with the sums %j',
    sums => {
      expect(() => encodeReport(signalScript(), { signal: 'a', windowMs: 1000, sums })).toThrow(TypeError)
    },
  )

  it.each([';', '|', '\n', 'a'.repeat(101), 'é', '\0'])('rejects a report with the state %j', text => {
    const state = { window: 1, text }
    expect(() => encodeReport(signalScript(), { signal: 'a', windowMs: 1000, sums: [1], state })).toThrow(
      TypeError,
    )
  })

  it.each([0, -1, 0.5, Number.NaN, Number.POSITIVE_INFINITY])('rejects a duration of %d ms', ms => {
    const report = { signal: 'a', windowMs: ms, sums: [1] }
    const push = { signal: 'a', reporter: 'r', value: 1, staleAfterMs: ms }
    expect(() => encodeReport(signalScript(), report)).toThrow(TypeError)
    expect(() => encodePush(signalScript(), push)).toThrow(TypeError)
  })

  it.each([-1, 1001, 0.5, Number.NaN])('rejects a push of %d thousandths', value => {
    const push = { signal: 'a', reporter: 'r', value, staleAfterMs: 1 }
    expect(() => encodePush(signalScript(), push)).toThrow(TypeError)
  })

  const GOOD = [NOON, 5, 1, 2, 5, 'x', 1000, 3]
  const changed = (at: number, value: unknown) => GOOD.map((field, i) => (i === at ? value : field))
  it.each([
    ...[undefined, null, 'x', 7, {}, [], GOOD.slice(0, 7), [...GOOD, 1]],
    ...[0, 1, 2, 3, 4, 6, 7].flatMap(at =>
      ['1', null, -2, 1.5, Number.NaN, 2 ** 60].map(bad => changed(at, bad)),
    ),
    ...[5, null, undefined, ';', 'a'.repeat(101), ['x']].map(bad => changed(5, bad)),
    ...[changed(6, 1001), changed(0, -1), changed(2, -1), changed(7, -1)],
  ])('rejects the reply %j to a report', reply => {
    expect(() => decodeReport(reply, 2)).toThrow(expect.objectContaining({ code: 'ERR_STORE_REPLY_INVALID' }))
  })

  it.each([undefined, 'x', [], [1], [1, 2], [1, -1, 1], [-1, 1, 1], [1, 1001, 1], [1, 1, '1'], [1, null, 1]])(
    'rejects the reply %j to a push',
    reply => {
      expect(() => decodePush(reply)).toThrow(expect.objectContaining({ code: 'ERR_STORE_REPLY_INVALID' }))
    },
  )

  it('declares the keys that the script uses', () => {
    const whole = { signal: 'a', windowMs: 1000, sums: [1] }
    expect(encodeReport(signalScript(), whole).keys).toEqual(['sluice:{signal:a}'])
    const pushed = { signal: 'a', reporter: 'r', value: 1, staleAfterMs: 1 }
    expect(encodePush(signalScript(), pushed).keys).toEqual([
      'sluice:{signal:a}',
      'sluice:{signal:a}:reporters',
    ])
  })
})
