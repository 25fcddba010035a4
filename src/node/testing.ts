/** What `sluicegate/testing` exports: a store for tests, which needs no Redis server and no network. */
import { randomBytes } from 'node:crypto'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { didYouMean } from '../config/check/did-you-mean.ts'
import type { ConfigInput } from '../config/check/schema.ts'
import type { Environment } from '../config/environment.ts'
import { KEY_SECRET, newKeySecret, readKeySecrets } from '../credentials/key-signature.ts'
import { createAdminStore } from '../ops/admin-store.ts'
import { createKey } from '../ops/keys.ts'
import { checkOptions } from '../set-ups/limits/arguments.ts'
import { startBridge } from './rest-bridge/bridge.ts'
import { startGuardian } from './start/guardian.ts'
import { startEmbeddedRedis } from './start/redis.ts'

/** The settings of a config that determine the form of its API keys. */
type KeySettings = Pick<ConfigInput, 'environment' | 'credentials'>

/** Options of `startTestStore`. */
export interface TestStoreOptions {
  /** The config under test: keys have its environment and prefix, and a plan that it does not have is refused. */
  config?: KeySettings & Pick<ConfigInput, 'plans'>
}

/** A running store for tests. Its data is lost when it is closed. */
export interface TestStore {
  /** For `guard(config, { env })`, `sluice(config, { env })`, `createLimiter(config, { env })`, or the bindings of a Worker. */
  env: Environment & { UPSTASH_REDIS_REST_URL: string; UPSTASH_REDIS_REST_TOKEN: string }
  /**
   * Makes an API key.
   * @param plan default: the plan of the consumer, which is the first of the config unless a test sets another one
   * @param config the key has its `environment` and key prefix; default: the config of the store
   * @throws TypeError for a plan that the config of the store does not have
   */
  createKey(consumer: string, plan?: string, config?: KeySettings): Promise<string>
  /** Deletes all data of the store: counters, keys, switches. */
  clear(): Promise<void>
  /** Stops the store and frees its port. */
  close(): Promise<void>
}

/**
 * Starts an embedded Redis behind the REST bridge, on a free port of this machine. The scripts of the limits run in it as they do in
 * production.
 *
 *     const store = await startTestStore({ config })
 *     const handler = guard(config, { env: store.env })(request => new Response('Hello'))
 *     const key = await store.createKey('acme')
 *
 * @throws Error if the embedded Redis or its bridge cannot be started; TypeError for an unknown option
 */
export async function startTestStore(options: TestStoreOptions = {}): Promise<TestStore> {
  checkOptions('startTestStore', options, ['config'])
  const { config: own } = options
  const plans = own && (own.plans ?? [DEFAULT_PLAN])
  const guardian = startGuardian()
  const directory = mkdtempSync(join(tmpdir(), 'sluice-test-'))
  const redis = await startEmbeddedRedis('for tests', { guardian, directory })
  const token = randomBytes(24).toString('base64url')
  // A machine that runs many tests at once is slow.
  const bridge = await startBridge({ redisUrl: redis.url, token, port: 0, deadlineMs: 20_000 })
  const rest = { url: bridge.url, token }
  const keySecret = newKeySecret()
  return {
    env: {
      UPSTASH_REDIS_REST_URL: rest.url,
      UPSTASH_REDIS_REST_TOKEN: token,
      [KEY_SECRET]: keySecret,
    },
    async createKey(consumer, plan, config = own ?? {}) {
      if (plan !== undefined) mustBePlan(plan, plans)
      const keyPrefix = config.credentials?.apiKeys?.prefix
      const store = createAdminStore({
        ...rest,
        environment: config.environment,
        ...(keyPrefix !== undefined && { keyPrefix }),
        ...(isSigned(config) && { keySecret: readKeySecrets(keySecret)[0] }),
      })
      return (await createKey(store, { consumer, ...(plan !== undefined && { plan }) })).key
    },
    async clear() {
      await createAdminStore(rest).run('FLUSHALL')
    },
    async close() {
      await bridge.close()
      await redis.close()
      await guardian.dismiss()
    },
  }
}

/** Whether keys are signed: not by default, because few set-ups have the secret. */
const isSigned = ({ credentials }: KeySettings) =>
  credentials?.apiKeys?.signature !== undefined || credentials?.onStoreFailure === 'signed'

/** The plan of a config without `plans`. */
const DEFAULT_PLAN = 'free'

/** For a plan that is not in the config, the gateway uses the first plan. So a test with a misspelled plan would test another limit. */
function mustBePlan(plan: string, plans: readonly string[] | undefined): void {
  if (!plans || plans.includes(plan)) return
  throw new TypeError(
    `The config has no plan '${plan}'.${didYouMean(plan, plans)} Plans: ${plans.join(', ')}.`,
  )
}
