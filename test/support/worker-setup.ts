/** What the Worker's tests inside workerd need outside of it: a store, an origin and a key. */
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestProject } from 'vitest/node'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { storeKey } from '../../src/node/cli/key-store.ts'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { startDemoOrigin } from '../../src/node/start/demo-origin.ts'
import { startGuardian } from '../../src/node/start/guardian.ts'
import { embeddedRedis } from '../../src/node/start/redis.ts'

declare module 'vitest' {
  interface ProvidedContext {
    restUrl: string
    restToken: string
    originUrl: string
    apiKey: string
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const guardian = startGuardian()
  const redis = await embeddedRedis('for tests', {
    guardian,
    directory: mkdtempSync(join(tmpdir(), 'sluice-')),
  })
  const token = 'a token for tests'
  const bridge = await startBridge({ redisUrl: redis.url, token, port: 0 })
  const origin = await startDemoOrigin(0)
  const apiKey = mintApiKey('acme')
  await storeKey({ url: bridge.url, token }, apiKey, { consumer: 'acme', plan: 'pro' })

  project.provide('restUrl', bridge.url)
  project.provide('restToken', token)
  project.provide('originUrl', origin.url)
  project.provide('apiKey', apiKey)
  return async () => {
    await origin.close()
    await bridge.close()
    await redis.close()
    await guardian.dismiss()
  }
}
