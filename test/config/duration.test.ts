import { describe, expect, it } from 'vitest'
import { formatDuration, formatPeriod, formatWait, parseDuration } from '../../src/config/duration.ts'

describe('a duration', () => {
  it.each([
    ['1ms', '1 ms', '1 ms'],
    ['250ms', '250 ms', '250 ms'],
    ['1s', '1 second', 'second'],
    ['1.5s', '1500 ms', '1500 ms'],
    ['60s', '1 minute', 'minute'],
    ['90s', '90 seconds', '90 seconds'],
    ['15m', '15 minutes', '15 minutes'],
    ['1h', '1 hour', 'hour'],
    ['36h', '36 hours', '36 hours'],
    ['1d', '1 day', 'day'],
    ['300d', '300 days', '300 days'],
  ])('written as %s is shown as %s, and after `per` as %s', (written, duration, period) => {
    const microseconds = parseDuration(written)!
    expect([formatDuration(microseconds), formatPeriod(microseconds)]).toEqual([duration, period])
  })
})

describe('a wait', () => {
  it.each([
    [1, '1 ms'],
    [4.6e3, '5 ms'],
    [1.9e6, '1900 ms'],
    [1.999e6, '2 s'],
    [90e6, '90 s'],
    [119.8e6, '2 min'],
    [3600e6, '60 min'],
    [23.2 * 3600e6, '23 h'],
    [47.99 * 3600e6, '2 d'],
  ])('of %d µs is rounded to %s', (microseconds, text) => {
    expect(formatWait(microseconds)).toBe(text)
  })
})
