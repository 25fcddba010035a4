/** The headers of several APIs, and broken ones. */
import { describe, expect, it } from 'vitest'
import { policiesOf, retryAfterOf } from '../../src/client/fields.ts'

const NOW = Date.UTC(2026, 10, 26, 12, 0, 0)
const DATE = new Date(NOW).toUTCString()

const read = (headers: Record<string, string>, wallMs = NOW) => policiesOf(new Headers(headers), wallMs)

describe('RateLimit fields', () => {
  it('of draft 11: quota, window, unit and partition', () => {
    expect(
      read({
        'ratelimit-policy': '"burst";q=100;w=60, "peruser";q=65535;qu="content-bytes";w=10;pk=:c2RmakxKVU8=:',
        ratelimit: '"burst";r=50;t=30, "peruser";r=7;t=2;pk=:c2RmakxKVU8=:',
      }),
    ).toEqual([
      {
        key: 'burst;',
        name: 'burst',
        unit: 'requests',
        quota: 100,
        windowMs: 60_000,
        left: 50,
        resetMs: 30_000,
      },
      {
        ...{ key: 'peruser;c2RmakxKVU8=', name: 'peruser', unit: 'content-bytes' },
        ...{ quota: 65_535, windowMs: 10_000, left: 7, resetMs: 2000 },
      },
    ])
  })

  it('of its successor: a and w', () => {
    expect(read({ ratelimit: '"default";a=50;w=30;c=1' })).toMatchObject([{ left: 50, resetMs: 30_000 }])
  })

  it('tell partitions of one policy apart', () => {
    const [one, other] = ['YQ==', 'Yg=='].map(pk => read({ ratelimit: `"user";r=1;t=1;pk=:${pk}:` })[0]!.key)
    expect(one).not.toBe(other)
  })

  it.each([
    '"a";r=-1;t=5',
    '"a";r=0.5x;t=5',
    '"a";r=9999999999999999;t=5',
    '"a";t=5',
    '"a";r="0";t=5',
    'r=0, t=5',
    '0',
  ])('without a valid state say nothing: %s', ratelimit =>
    expect(read({ ratelimit })[0]?.left).toBeUndefined(),
  )

  it.each(['-5', '99999999999', 'soon'])('ignore an invalid time: %s', t => {
    expect(read({ ratelimit: `"a";r=0;t=${t}` })[0]).toMatchObject({ left: 0, resetMs: undefined })
  })

  it('are read up to 20 policies', () => {
    expect(read({ ratelimit: Array.from({ length: 300 }, (_, i) => `"${i}";r=1`).join(', ') })).toHaveLength(
      20,
    )
  })
})

describe('X-RateLimit', () => {
  const SECONDS = NOW / 1e3
  it.each([
    [
      'GitHub',
      {
        'x-ratelimit-limit': '60',
        'x-ratelimit-remaining': '42',
        'x-ratelimit-reset': `${SECONDS + 90}`,
        'x-ratelimit-resource': 'core',
      },
      'core',
      90_000,
    ],
    [
      'Discord',
      {
        'x-ratelimit-limit': '5',
        'x-ratelimit-remaining': '42',
        'x-ratelimit-reset': `${SECONDS + 3}.25`,
        'x-ratelimit-reset-after': '1.5',
        'x-ratelimit-bucket': 'abcd',
      },
      'abcd',
      1500,
    ],
    ['seconds', { 'x-ratelimit-remaining': '42', 'x-ratelimit-reset': '7' }, '', 7000],
    ['ms since the epoch', { 'x-ratelimit-remaining': '42', 'x-ratelimit-reset': `${NOW + 2500}` }, '', 2500],
    ['a date', { 'x-ratelimit-remaining': '42', 'x-ratelimit-reset': '2026-11-26T12:00:05Z' }, '', 5000],
    ['a past time', { 'x-ratelimit-remaining': '42', 'x-ratelimit-reset': `${SECONDS - 5}` }, '', 0],
    ['Twitter', { 'x-rate-limit-remaining': '42', 'x-rate-limit-reset': `${SECONDS + 1}` }, '', 1000],
    [
      'older drafts',
      { 'ratelimit-limit': '100', 'ratelimit-remaining': '42', 'ratelimit-reset': '12' },
      '',
      12_000,
    ],
  ])('of %s', (_, headers, name, resetMs) => {
    expect(read({ ...headers, date: DATE } as Record<string, string>)).toMatchObject([
      { name, left: 42, resetMs },
    ])
  })

  it('of draft 7 are members of RateLimit', () => {
    const headers = { 'ratelimit-policy': '100;w=60', ratelimit: 'limit=100, remaining=42, reset=12' }
    expect(read(headers)).toMatchObject([{ name: '', quota: 100, left: 42, resetMs: 12_000 }])
  })

  it.each(['limit=100, remaining=-1, reset=5', 'remaining=1e3', 'remaining=0.5x', 'remaining="0"'])(
    'of draft 7 with an invalid rest say nothing: %s',
    ratelimit => expect(read({ ratelimit })).toEqual([]),
  )

  it('compares times with the clock of the server', () => {
    const headers = { 'x-ratelimit-remaining': '1', 'x-ratelimit-reset': `${SECONDS + 90}`, date: DATE }
    expect(read(headers, NOW + 3_600_000)).toMatchObject([{ resetMs: 90_000 }])
  })

  it.each(['NaN', '-1', 'Infinity', '1e400', '1e3', '0x10', '', '99999999999999999', 'tomorrow 5'])(
    'ignores the reset %j',
    reset => {
      expect(read({ 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': reset })).toMatchObject([
        { resetMs: undefined },
      ])
    },
  )

  it('with a long name says nothing', () => {
    const named = (length: number) => ({
      'x-ratelimit-remaining': '9',
      'x-ratelimit-bucket': 'a'.repeat(length),
    })
    expect(read(named(99))).toHaveLength(1)
    expect(read(named(100))).toEqual([])
  })

  it('yields to RateLimit', () => {
    const headers = { ratelimit: '"a";r=1;t=1', 'x-ratelimit-remaining': '9' }
    expect(read(headers).map(({ left }) => left)).toEqual([1])
  })
})

describe('Retry-After', () => {
  it.each([
    ['12', 12_000],
    ['0.5', 500],
    ['0', 0],
    [new Date(NOW + 30_000).toUTCString(), 30_000],
    [new Date(NOW - 30_000).toUTCString(), 0],
    ['-1', undefined],
    ['NaN', undefined],
    ['1e20', undefined],
    ['1e3', undefined],
    ['0x10', undefined],
    ['+5', undefined],
    ['5.', undefined],
    ['never', undefined],
    ['soon 5', undefined],
    ['', undefined],
    ['99999999', undefined],
    [new Date(NOW + 400 * 86_400_000).toUTCString(), undefined],
  ])('%j is %s ms, by the clock of the server', (text, ms) => {
    expect(retryAfterOf(new Headers({ date: DATE, 'retry-after': text }), NOW + 777_000)).toBe(ms)
  })

  it('of several lines is the longest time', () => {
    const dates = [10, 30, 20].map(seconds => new Date(NOW + seconds * 1e3).toUTCString())
    const lines = (...values: string[]) => {
      const headers = new Headers({ date: DATE })
      for (const value of values) headers.append('retry-after', value)
      return retryAfterOf(headers, NOW)
    }
    expect(lines('5', '12', '7')).toBe(12_000)
    expect(lines(...dates)).toBe(30_000)
    expect(lines('5', ...dates, '7')).toBe(30_000)
    expect(lines('never', '7')).toBe(7000)
    expect(lines('never', '1e3')).toBeUndefined()
  })

  it.each([
    ['1234', 1234],
    ['0.5', 0.5],
    ['soon', 60_000],
    ['1e3', 60_000],
    ['-5', 60_000],
    ['99999999999', 60_000],
  ])('yields to a valid Retry-After-Ms: %s is %s ms', (text, ms) => {
    expect(retryAfterOf(new Headers({ 'retry-after': '60', 'retry-after-ms': text }), NOW)).toBe(ms)
  })
})
