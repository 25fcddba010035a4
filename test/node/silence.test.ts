/** The silence of a Redis is measured from the first command that it has not answered, with one timer for all commands. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { Silence } from '../../src/node/rest-bridge/silence.ts'

const LIMIT_MS = 1000

let onTooLong: ReturnType<typeof vi.fn<() => void>>
let silence: Silence
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  vi.stubGlobal('setImmediate', (run: () => void) => run())
  onTooLong = vi.fn<() => void>()
  silence = new Silence(LIMIT_MS, onTooLong)
})
afterEach(() => void vi.useRealTimers())

const send = () => silence.commandSent(performance.now())
const answer = () => silence.commandEnded(true)
const fail = () => silence.commandEnded(false)
const wait = (ms: number) => vi.advanceTimersByTime(ms)
/** The time (ms) from now until the silence is reported. */
const reportedAfter = () => {
  for (let ms = 0; ms < 3 * LIMIT_MS; ms++) {
    if (onTooLong.mock.calls.length > 0) return ms
    wait(1)
  }
  return undefined
}

it('a command that stays without an answer is reported at the limit, and once', () => {
  send()
  expect(reportedAfter()).toBe(LIMIT_MS)
  wait(5 * LIMIT_MS)
  expect(onTooLong).toHaveBeenCalledOnce()
})

it.each([1, 400, 999])(
  'counts from the first command after an answer, sent %d ms after the first one',
  ms => {
    send()
    answer()
    wait(ms)
    send()
    wait(100)
    send()
    expect(reportedAfter()).toBe(LIMIT_MS - 100)
  },
)

it('an answer ends the silence, also for the commands that were sent before it', () => {
  send()
  send()
  wait(LIMIT_MS - 1)
  answer()
  expect(reportedAfter()).toBeUndefined()
})

it('commands that fail with their connection do not count as waiting', () => {
  send()
  send()
  wait(500)
  fail()
  fail()
  wait(100)
  send()
  expect(reportedAfter()).toBe(LIMIT_MS)
})

it('a command that fails alone does not end the silence of the others', () => {
  send()
  wait(300)
  send()
  fail()
  expect(reportedAfter()).toBe(LIMIT_MS - 300)
})

it('reports nothing while no command waits, and has one timer for all commands', () => {
  for (let i = 0; i < 100; i++) {
    send()
    answer()
    send()
    expect(vi.getTimerCount()).toBe(1)
    answer()
    wait(50)
  }
  expect(reportedAfter()).toBeUndefined()
  expect(vi.getTimerCount()).toBe(0)
})

it('time in which the process is too busy to read does not count', () => {
  const unblocked = performance.now.bind(performance)
  let blockedMs = 0
  const now = vi.spyOn(performance, 'now').mockImplementation(() => unblocked() + blockedMs)
  send()
  for (let i = 0; i < 3; i++) {
    // Time passes, and no timer runs.
    blockedMs += 3 * LIMIT_MS
    wait(LIMIT_MS / 5)
  }
  expect(onTooLong).not.toHaveBeenCalled()
  expect(reportedAfter()).toBe((2 / 5) * LIMIT_MS)
  now.mockRestore()
})
