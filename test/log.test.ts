/** A log with a limit on lines per second, which reports the number of skipped lines. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { createLog } from '../src/log.ts'
import { logException } from '../src/set-ups/http/unexpected.ts'

let lines: Record<string, unknown>[]
beforeEach(() => {
  lines = []
  for (const level of ['info', 'warn', 'error'] as const)
    vi.spyOn(console, level).mockImplementation(line => void lines.push(JSON.parse(line)))
})
afterEach(() => vi.restoreAllMocks())

describe('a log', () => {
  it('writes a limited number of lines per event and second, and the next line has the number of skipped lines', () => {
    let now = 1000
    const log = createLog(2, () => now)
    for (let i = 0; i < 10; i++) log('info', 'refused', { i })
    log('warn', 'degraded', {})
    now = 2000
    for (let i = 10; i < 12; i++) log('info', 'refused', { i })
    expect(lines).toEqual([
      { level: 'info', event: 'refused', i: 0, skipped: 0 },
      { level: 'info', event: 'refused', i: 1, skipped: 0 },
      { level: 'warn', event: 'degraded', skipped: 0 },
      { level: 'info', event: 'refused', i: 10, skipped: 8 },
      { level: 'info', event: 'refused', i: 11, skipped: 0 },
    ])
  })

  it('writes nothing with a limit of 0, but one line a second of each error', () => {
    let now = 0
    const log = createLog(0, () => now)
    for (const level of ['info', 'warn'] as const) log(level, 'refused', {})
    for (; now < 2000; now += 500) log('error', 'origin', {})
    expect(lines).toEqual([
      { level: 'error', event: 'origin', skipped: 0 },
      { level: 'error', event: 'origin', skipped: 1 },
    ])
  })

  it('has the first exception of each second, with its stack', () => {
    let now = 0
    const log = createLog(1, () => now)
    for (; now < 2000; now += 100) logException(log, new TypeError('private'))
    const stack = expect.stringMatching(/^TypeError\n\s+at .*log\.test\.ts/)
    expect(lines).toEqual([
      { level: 'error', event: 'exception', error: stack, skipped: 0 },
      { level: 'error', event: 'exception', error: stack, skipped: 9 },
    ])
  })

  it('says whether it has written a line', () => {
    const log = createLog(1, () => 0)
    expect([log('warn', 'usage', {}), log('warn', 'usage', {})]).toEqual([true, false])
  })
})
