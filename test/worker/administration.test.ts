/** src/ops runs wherever `fetch` is available. Here it runs inside workerd, where the command line (src/node) cannot run. */

import { afterEach, expect, inject, it, vi } from 'vitest'
import { ALL_ALGORITHMS } from '../../src/algorithms/all.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { compileConfig } from '../../src/config/compile.ts'
import * as SHEDDING_COMPILER from '../../src/config/compile-shedding.ts'
import { compileUnits } from '../../src/config/compile-units.ts'
import { prometheusText } from '../../src/metrics/prometheus.ts'
import { createAdmin } from '../../src/ops/admin/index.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { listConsumers } from '../../src/ops/consumers.ts'
import { explain } from '../../src/ops/explain.ts'
import { revokeKey } from '../../src/ops/key-changes.ts'
import { findKey } from '../../src/ops/key-reference.ts'
import { createKey, listKeys } from '../../src/ops/keys.ts'
import { peekCaller } from '../../src/ops/limits.ts'
import { compileOverride } from '../../src/ops/overrides.ts'
import { readStats } from '../../src/ops/stats.ts'
import { readSwitches } from '../../src/ops/switches.ts'

const CONFIG: ConfigInput = {
  origin: 'route',
  rules: [{ name: 'hour', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1h' }],
}
const consumer = 'worker-admin'
const store = createAdminStore({ url: inject('restUrl'), token: inject('restToken') })

afterEach(() => vi.restoreAllMocks())

it('makes a key, finds it and revokes it', async () => {
  const { key, id } = await createKey(store, { consumer })
  expect((await listKeys(store, consumer)).map(key => key.id)).toEqual([id])
  expect((await listConsumers(store)).map(({ consumer }) => consumer)).toContain(consumer)
  await revokeKey(store, await findKey(store, key))
  expect(await listKeys(store, consumer)).toEqual([])
})

it('is in sluicegate/admin, with the variables of the Worker', async () => {
  const env = { UPSTASH_REDIS_REST_URL: inject('restUrl'), UPSTASH_REDIS_REST_TOKEN: inject('restToken') }
  const admin = createAdmin(CONFIG, { env })
  const { id, key } = await admin.keys.create({ consumer })
  expect(await admin.keys.show(key)).toMatchObject({ id, consumer })
  expect(await admin.keys.revoke(id)).toEqual({ id, revoked: true })
})

it('reads what limits, switches and counters say', async () => {
  const config = compileConfig(CONFIG, ALL_ALGORITHMS, { ...SHEDDING_COMPILER, compileUnits })
  const { standings } = await peekCaller(store, config, { consumer })
  expect(standings.map(({ rule, remaining }) => [rule.name, remaining])).toEqual([['hour', 10]])
  expect([...(await readSwitches(store)).rules]).toEqual([])
  expect(prometheusText(await readStats(store, new Date()))).toContain('# TYPE')
  expect(compileOverride(CONFIG, { rule: 'hour', limit: 20 }).rule).toBe('hour')
  const { rules } = await explain(config, { method: 'GET', path: '/', consumer })
  expect(rules.map(({ name, applies }) => [name, applies])).toEqual([['hour', true]])
})

// The errors that workerd, browsers and Deno throw if a connection fails. Only the error of Node has a cause.
it.each([
  new Error('Network connection lost.'),
  new TypeError('Failed to fetch'),
  new TypeError('error sending request for url (http://store/)'),
])('says of a lost connection that the change may have been made: %s', async error => {
  vi.spyOn(globalThis, 'fetch').mockRejectedValue(error)
  await expect(createKey(store, { consumer })).rejects.toMatchObject({
    kind: 'store',
    message: expect.stringContaining(
      'broke the connection before it answered. If this was a change, it may have been made: check before you repeat it.',
    ),
  })
})
