/** The options of `acquire` over a service binding. */
import { expect, it } from 'vitest'
import { type RpcAcquireOptions, withinLongestWait } from '../../src/set-ups/rpc/longest-wait.ts'

it('a wait over a service binding is bounded, because a signal cannot cross the binding', () => {
  expect(withinLongestWait({})).toEqual({ timeoutMs: 30_000 })
  expect(withinLongestWait({ cost: 2, timeoutMs: Number.POSITIVE_INFINITY })).toEqual({
    cost: 2,
    timeoutMs: 30_000,
  })
  expect(withinLongestWait({ timeoutMs: 5 })).toEqual({ timeoutMs: 5 })
  const withSignal = { signal: new AbortController().signal } as RpcAcquireOptions
  expect(() => withinLongestWait(withSignal)).toThrow(
    new TypeError('A signal cannot cross a service binding. Use timeoutMs, up to 30000.'),
  )
})

it('leaves wrong options to the limiter, which says what is wrong', () => {
  for (const wrong of [null, 'x', { timeoutMs: 'abc' }])
    expect(withinLongestWait(wrong as RpcAcquireOptions)).toEqual(wrong)
})
