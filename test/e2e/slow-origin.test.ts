/** An origin that does not answer in time, with real parts. Apart from gateway.test.ts, whose origin may be as slow as a busy machine. */
import { expect, it } from 'vitest'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { useStack } from '../support/stack.ts'

const running = useStack('slow-origin.config.ts')

it('gets a 504 with problem details, and is counted', async () => {
  const { key } = await createKey(createAdminStore(running.stack.rest), { consumer: 'acme', plan: 'pro' })
  const slow = await fetch(`${running.stack.url}/hang`, { headers: { 'x-api-key': key } })
  expect([slow.status, slow.headers.get('content-type')]).toEqual([504, 'application/problem+json'])
  expect(await slow.json()).toMatchObject({ status: 504, title: 'Gateway Timeout' })
  expect(slow.headers.get('ratelimit')).toMatch(/^"consumer"/)
})
