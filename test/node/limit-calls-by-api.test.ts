import { expect, it, vi } from 'vitest'
import type { ApiClient } from '../../src/node/cli/api-client.ts'
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
