/**
 * The services that tests inside workerd need: a store, an origin and keys. They run in a separate process, because the process of those
 * tests resolves packages as for a Worker, and would load the Lua of the embedded Redis as for a browser.
 */

import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ProvidedContext } from 'vitest'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { startDemoOrigin } from '../../src/node/start/demo-origin.ts'
import { startGuardian } from '../../src/node/start/guardian.ts'
import { startEmbeddedRedis } from '../../src/node/start/redis.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { PATIENT_MS } from './patience.ts'

const guardian = startGuardian()
const redis = await startEmbeddedRedis('for tests', {
  guardian,
  directory: mkdtempSync(join(tmpdir(), 'sluice-')),
})
const restToken = 'a token for tests'
const bridge = await startBridge({ redisUrl: redis.url, token: restToken, port: 0, deadlineMs: PATIENT_MS })
const origin = await startDemoOrigin(0)
const admin = createAdminStore({ url: bridge.url, token: restToken })
const { key: apiKey } = await createKey(admin, { consumer: 'acme', plan: 'pro' })
const { key: burstKey } = await createKey(admin, { consumer: 'burst', plan: 'pro' })
// The embedded Redis uses this clock. It stands still, so that no budget comes back, even on a slow machine.
const startedAt = Date.now()
Date.now = () => startedAt
process.send!({
  restUrl: bridge.url,
  restToken,
  originUrl: origin.url,
  apiKey,
  burstKey,
} satisfies Omit<ProvidedContext, 'tarball'>)

process.on('disconnect', async () => {
  await guardian.dismiss()
  process.exit(0)
})
