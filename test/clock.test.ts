import { afterEach, expect, it, vi } from 'vitest'
import { timerOn } from '../src/clock.ts'

afterEach(() => void vi.useRealTimers())

const DAY_MS = 24 * 60 * 60_000

it('a timer of the system can be longer than those of the platform, and can be cancelled in each part of it', () => {
  vi.useFakeTimers()
  const start = timerOn(globalThis)
  const run = vi.fn()
  start(60 * DAY_MS, run)
  const cancel = start(60 * DAY_MS, run)
  vi.advanceTimersByTime(40 * DAY_MS)
  cancel()
  vi.advanceTimersByTime(20 * DAY_MS - 1)
  expect(run).not.toHaveBeenCalled()
  vi.advanceTimersByTime(1)
  expect(run).toHaveBeenCalledOnce()
  vi.advanceTimersByTime(100 * DAY_MS)
  expect(run).toHaveBeenCalledOnce()
})
