/** Both gateways as users start them, with one config, each in front of a hostile origin. */
import { randomBytes } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { startRedis } from '../support/redis.ts'
import { serveInProcess, startServer } from '../support/serve.ts'
import { startTestStack } from '../support/stack.ts'
import config from './hostile.config.ts'
import { type HostileOrigin, startHostileOrigin } from './origin.ts'

/** `in-process` is `serve` without its processes. */
export type GatewayName = 'serve' | 'workerd' | 'in-process'

export interface HostileBed {
  gateway: GatewayName
  url: string
  origin: HostileOrigin
  /** The API keys of two consumers. */
  keys: { attacker: string; victim: string }
  /** @throws Error if a process of the gateway was replaced, or if `serve` has written anything but JSON lines */
  mustBeWell(): void
  close(): Promise<void>
}

interface Running {
  url: string
  mustBeWell(): void
  close(): Promise<void>
}

const CONFIG = '../hostile/hostile.config.ts'

export async function startHostileBed(gateway: GatewayName): Promise<HostileBed> {
  const token = randomBytes(12).toString('hex')
  const redis = await startRedis()
  const bridge = await startBridge({ redisUrl: redis.url, token, port: 0, deadlineMs: PATIENT_MS })
  const origin = await startHostileOrigin()
  const rest = { url: bridge.url, token }
  const store = createAdminStore(rest)
  const [attacker, victim] = await Promise.all(
    ['mallory', 'alice'].map(async consumer => (await createKey(store, { consumer })).key),
  )
  const start = {
    serve: () => startServe({ REDIS_URL: redis.url, ORIGIN_URL: origin.url }),
    workerd: () => startWorkerd(origin.url, rest),
    'in-process': () => startInProcess(origin.url, redis.url),
  }
  const running = await start[gateway]()
  return {
    ...{ gateway, url: running.url, origin, keys: { attacker: attacker!, victim: victim! } },
    mustBeWell: running.mustBeWell,
    async close() {
      await running.close()
      await origin.close()
      await bridge.close()
      await redis.close()
    },
  }
}

async function startInProcess(origin: string, redisUrl: string): Promise<Running> {
  const isolate = await serveInProcess({ ...config, origin, credentials: {} }, { REDIS_URL: redisUrl })
  return { url: isolate.url, mustBeWell() {}, close: async () => void (await isolate.stop(0, true)) }
}

async function startServe(env: Record<string, string>): Promise<Running> {
  const file = fileURLToPath(new URL('./hostile.config.ts', import.meta.url))
  const server = await startServer(env, ['--workers', '1'], file)
  const [worker] = server.workers()
  return {
    url: server.url,
    mustBeWell() {
      // It throws if a line is not JSON.
      server.events()
      if (server.errors() !== '')
        throw new Error(`serve has written to its standard error: ${server.errors()}`)
      if (server.workers()[0] !== worker) throw new Error('The worker process of serve has died.')
    },
    async close() {
      server.kill('SIGKILL')
      await server.exited
    },
  }
}

async function startWorkerd(origin: string, rest: { url: string; token: string }): Promise<Running> {
  const problems: string[] = []
  const stack = await startTestStack(CONFIG, {
    ...{ origin, rest },
    onMessage(message) {
      if (message.type === 'restarted') problems.push('workerd has died.')
    },
  })
  return {
    url: stack.url,
    mustBeWell() {
      if (problems.length > 0) throw new Error(problems.splice(0).join('\n'))
    },
    close: stack.close,
  }
}
