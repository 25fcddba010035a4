import { expect, it, vi } from 'vitest'
import { take } from '../../src/node/cli/acquire.ts'
import type { ApiClient } from '../../src/node/cli/api-client.ts'
import type { LimitCalls } from '../../src/node/cli/limit-calls.ts'
import { callsByApi } from '../../src/node/cli/limit-calls-by-api.ts'
import { AdminError } from '../../src/ops/admin-error.ts'
import { PATIENT } from '../support/patience.ts'

it('units are not taken again if their release overtakes a renewal', async () => {
  const sent: string[] = []
  const renewal = Promise.withResolvers<never>()
  const held = { ...{ allowed: true, delayMs: 0, retryAfterMs: 0, rules: [] }, renewWithinMs: 30 }
  const call = async (verb: string) => {
    sent.push(verb)
    return verb === 'renew'
      ? await renewal.promise
      : { ...held, receipt: { limit: 'exports', held: { 'at-once': 1 } } }
  }
  const calls = callsByApi({ call } as unknown as ApiClient)
  await calls.acquire({ limit: 'exports', by: {} }, 0)
  await vi.waitUntil(() => sent.includes('renew'), PATIENT)
  await calls.release()
  sent.length = 0
  renewal.reject(new AdminError('refused', 'The units have ended.'))
  await new Promise(setImmediate)
  expect(sent).toEqual([])
})

it('a wait of months is one wait', async () => {
  const retryAfterMs = 90 * 86_400e3
  const call = vi.fn(async () => ({ allowed: false, delayMs: 0, retryAfterMs, rules: [] }))
  const timer = vi.fn((_ms: number, _end: () => void) => () => {})
  void callsByApi({ call } as unknown as ApiClient, undefined, timer).acquire(
    { limit: 'sms', by: {} },
    Infinity,
  )
  for (const attempts of [1, 2]) {
    await vi.waitUntil(() => timer.mock.calls.length === attempts, PATIENT)
    expect(call).toHaveBeenCalledTimes(attempts)
    const [ms, end] = timer.mock.lastCall!
    expect(ms).toBe(retryAfterMs)
    end()
  }
})

it('a command says that the kill switch is on', async () => {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {})
  vi.spyOn(console, 'log').mockImplementation(() => {})
  const decision = { ...{ limit: 'sms', allowed: true, delayMs: 0, retryAfterMs: 0 }, rules: [] }
  const calls = { take: async () => ({ ...decision, degraded: 'kill-switch' }), release: async () => {} }
  await take(calls as unknown as LimitCalls, 'sms', {})
  expect(said.mock.calls).toEqual([['The kill switch is on: no limit counts.']])
  vi.restoreAllMocks()
})
