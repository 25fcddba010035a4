/** The gateway on Node, with the real client, the bridge and a Redis: everything except workerd. */

import { afterAll, beforeAll, beforeEach } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import type { Config } from '../../src/config/compile.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { connectRedisStore, type RedisStore } from '../../src/node/redis-store/redis-store.ts'
import { type AdminStore, createAdminStore } from '../../src/ops/admin-store.ts'
import type { RuleSets } from '../../src/ops/admin-store-shape.ts'
import { createKey } from '../../src/ops/keys.ts'
import { createGatewayRuleSet, createLimitRuleSet } from '../../src/script/rule-set.ts'
import type { RuleSetScripts, RuleSetShape } from '../../src/script/rule-set-shape.ts'
import { compileScripts } from '../../src/script/scripts.ts'
import { createApp, type GatewayPlatform } from '../../src/set-ups/gateway/app.ts'
import { METRICS_PARTS } from '../../src/set-ups/gateway/metrics.ts'
import { ALL_PARTS } from '../../src/set-ups/http/all-parts.ts'
import type { Parts } from '../../src/set-ups/http/parts.ts'
import type { DeadlineClock } from '../../src/store/deadline.ts'
import type { Store } from '../../src/store/store.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { createSwitchBoard } from '../../src/switches/live.ts'
import type { RedisKind } from '../selection.ts'
import { startCountedBridge } from './counted-bridge.ts'
import type { CountingProxy } from './counting-proxy.ts'
import { startOrigin, type TestOrigin } from './origin.ts'
import { startRedis, type TestRedis } from './redis.ts'

export const TOKEN = 'a token for tests'

/** With TEST_STORE=direct, gateways use the store over a direct connection. Then suites that make HTTP requests to the store fail do not pass. */
const IS_DIRECT = process.env.TEST_STORE === 'direct'

/** Keeps counters from being flushed, because tests count requests to the store. */
const NEVER = () => () => {}

export interface TestGateway<T = TestRedis> {
  redis: T
  origin: TestOrigin
  /** Counts the HTTP requests to the store. */
  store: CountingProxy
  /** The same store for administration. Its requests are not counted. */
  admin: AdminStore
  /** Creates an app, as in a new isolate. The clock of its live switches stands still, unless a clock is given. */
  app(config: Partial<ConfigInput> & Pick<ConfigInput, 'rules'>, platform?: TestPlatform): App
  /** Creates an app that has already read the live switches. It does not read them again, because its clock stands still. */
  informed(...of: Parameters<TestGateway['app']>): Promise<App>
  /** Creates an API key. */
  key(consumer: string, plan?: string): Promise<string>
  close(): Promise<void>
}

/**
 * `isCold`: the scripts of this config are not loaded before the first request. `parts` replace those of the gateway. `deadlineClock` is
 * the clock of the store's deadlines.
 */
export type TestPlatform = GatewayPlatform & {
  isCold?: boolean
  parts?: Partial<Parts>
  deadlineClock?: DeadlineClock
}

export type App = (path: string, init?: RequestInit & { key?: string; address?: string }) => Promise<Response>

/**
 * Provides a gateway to the tests of a file or of a `describe`. Call it there: it starts the gateway before the first test and closes it
 * after the last. Each test begins with an empty Redis, a store without a fault, and counts of 0.
 */
export function useGateway(kind?: RedisKind): TestGateway {
  const gateway = useGatewayOn(() => startRedis(kind))
  beforeEach(async () => {
    await gateway.redis.connection.send(['FLUSHALL'])
  })
  return gateway
}

/**
 * Like `useGateway`, on any Redis or Redis Cluster. Its data stays between tests.
 * @param start starts the Redis, which is closed together with the gateway
 * @param cluster whether it is a Redis Cluster, as `store.cluster` tells the command line
 */
export function useGatewayOn<T extends Pick<TestRedis, 'url' | 'close'>>(
  start: () => Promise<T>,
  cluster = false,
): TestGateway<T> {
  // The first hook fills it in, before tests and later hooks use it.
  const gateway = {} as TestGateway<T>
  beforeAll(async () => {
    Object.assign(gateway, await startGatewayOn(await start(), cluster))
  })
  // `close` is absent if the start has failed.
  afterAll(() => gateway.close?.())
  beforeEach(() => {
    gateway.store.fault = undefined
    gateway.store.count()
    gateway.origin.received.length = 0
  })
  return gateway
}

async function startGatewayOn<T extends Pick<TestRedis, 'url' | 'close'>>(
  redis: T,
  cluster: boolean,
): Promise<TestGateway<T>> {
  const bridge = await startCountedBridge(redis.url, TOKEN)
  const store = bridge.proxy
  const admin = { ...createAdminStore({ url: bridge.url, token: TOKEN, cluster }), ruleSets: RULE_SETS }
  const origin = await startOrigin()
  const loads = new Map<string, Promise<unknown>>()
  /** Loads both builds of the scripts of a config. Many tests have the same rules, so this Redis may already have them. */
  function loadScripts(config: Config): Promise<unknown> {
    const { rules, plans, limits } = config
    const key = JSON.stringify([rules, plans, [...limits.values()]])
    const load = loads.get(key) ?? loadAll(config).catch(() => loads.delete(key))
    loads.set(key, load)
    return load
  }
  const direct: Promise<RedisStore>[] = []
  let trips = 0
  const counted = () => {
    const made = trips
    trips = 0
    return made
  }
  /** The store opens while the app is made. */
  function directStoreOf(config: Config, clock?: DeadlineClock): Store {
    const { storeDeadlineMs: deadlineMs, environment } = config
    const opening = connectRedisStore({ url: redis.url, deadlineMs, environment, ...(clock && { clock }) })
    direct.push(opening)
    return {
      isCluster: cluster,
      async run(calls, listener) {
        trips += 1
        return await (await opening).store.run(calls, listener)
      },
      ping: async () => await (await opening).store.ping(),
    }
  }
  async function loadAll(config: Config): Promise<void> {
    await Promise.all(sourcesOf(config).map(source => admin.run('SCRIPT', 'LOAD', source)))
  }
  const gateway: TestGateway<T> = {
    redis,
    origin,
    store: IS_DIRECT ? { ...store, count: counted } : store,
    admin,
    app(input, platform = {}) {
      // The deadline is longer than in production, because test machines are busy.
      const config = checkedConfig({
        origin: origin.url,
        // Tests refuse many requests, and each would write a line.
        log: { perSecond: 0 },
        ...input,
        store: { deadline: '20s', ...input.store },
      })
      const reporting = { timer: NEVER, ...platform.reporting }
      // By default, the copy of the live switches never expires. Otherwise a slow test would read them again.
      const board = createSwitchBoard(platform.clock ?? { now: () => 0 })
      const app = createApp(
        config,
        IS_DIRECT
          ? directStoreOf(config, platform.deadlineClock)
          : storeOf(config, store.url, platform.deadlineClock),
        { ...ALL_PARTS, ...METRICS_PARTS, scriptsOf, ...platform.parts },
        { board, ...platform, reporting },
      )
      // Loads the scripts before the first request, as in a deployment that has been running for a moment.
      let loaded: Promise<unknown> | undefined
      return async (path, { key, address, ...init } = {}) => {
        loaded ??= platform.isCold ? Promise.resolve() : loadScripts(config)
        await loaded
        const headers = new Headers(init.headers)
        if (key) headers.set('authorization', `Bearer ${key}`)
        if (address) headers.set('cf-connecting-ip', address)
        return await app.request(`http://gateway.test${path}`, { ...init, headers })
      }
    },
    async informed(input, platform) {
      const app = gateway.app(input, platform)
      await app('/', { key: mintApiKey('nobody') })
      return app
    },
    async key(consumer, plan = 'free') {
      return (await createKey(admin, { consumer, plan })).key
    },
    async close() {
      await Promise.all(direct.map(async opening => await (await opening).close()))
      await origin.close()
      await bridge.close()
      await redis.close()
    },
  }
  return gateway
}

const compiledScripts = new Map<string, RuleSetScripts>()

/** Compiles the scripts of each rule set only once, because many tests have the same rules. */
function scriptsOf(shape: RuleSetShape): RuleSetScripts {
  const key = JSON.stringify(shape)
  const scripts = compiledScripts.get(key) ?? compileScripts(shape)
  compiledScripts.set(key, scripts)
  return scripts
}

const RULE_SETS: RuleSets = {
  ofGateway: config => createGatewayRuleSet(config, scriptsOf),
  ofLimit: rules => createLimitRuleSet(rules, scriptsOf),
}

/** The sources of all scripts of a config, in both builds. */
function sourcesOf(config: Config): string[] {
  const ruleSets = [RULE_SETS.ofGateway(config), ...[...config.limits.values()].map(RULE_SETS.ofLimit)]
  const scripts = ruleSets.flatMap(({ decide, refund, settle }) => [decide, refund, settle ?? []]).flat()
  return scripts.flatMap(({ keyLocking, plain }) => [keyLocking.source, plain.source])
}

function storeOf(config: Config, url: string, clock?: DeadlineClock) {
  const { storeDeadlineMs: deadlineMs, keyLocking, cluster, environment } = config
  return upstashStore({ url, token: TOKEN, deadlineMs, keyLocking, cluster, environment }, clock)
}
