/**
 * What the Worker's tests inside workerd need outside of it: a store, an origin and a key. A process of its own:
 * the one that runs those tests resolves packages as a Worker does, and Redis' Lua would be loaded as in a browser.
 */

import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ProvidedContext } from 'vitest'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { startDemoOrigin } from '../../src/node/start/demo-origin.ts'
import { startGuardian } from '../../src/node/start/guardian.ts'
import { embeddedRedis } from '../../src/node/start/redis.ts'
import { adminStore } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { PATIENT_MS } from './patience.ts'

const guardian = startGuardian()
const redis = await embeddedRedis('for tests', {
  guardian,
  directory: mkdtempSync(join(tmpdir(), 'sluice-')),
})
const restToken = 'a token for tests'
const bridge = await startBridge({ redisUrl: redis.url, token: restToken, port: 0, deadlineMs: PATIENT_MS })
const origin = await startDemoOrigin(0)
const admin = adminStore({ url: bridge.url, token: restToken })
const { key: apiKey } = await createKey(admin, { consumer: 'acme', plan: 'pro' })
const { key: burstKey } = await createKey(admin, { consumer: 'burst', plan: 'pro' })
// The embedded Redis reads the time here: it stands still, so that no budget comes back however busy the machine is.
const startedAt = Date.now()
Date.now = () => startedAt
process.send!({
  restUrl: bridge.url,
  restToken,
  originUrl: origin.url,
  apiKey,
  burstKey,
} satisfies ProvidedContext)

process.on('disconnect', async () => {
  await guardian.dismiss()
  process.exit(0)
})
