/**
 * The whole of Sluice on one machine: a Redis, the REST bridge in front of it, a demo origin, and the Worker in
 * workerd. `npm start` and the end-to-end tests both run this.
 */
import { randomBytes } from 'node:crypto'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Bridge, startBridge } from '../rest-bridge/bridge.ts'
import { type DemoOrigin, startDemoOrigin } from './demo-origin.ts'
import { type Guardian, startGuardian } from './guardian.ts'
import { type LocalRedis, type RedisEnd, startRedis } from './redis.ts'
import { type RunningWorker, startWorker } from './worker.ts'
import type { WorkerMessage } from './worker-messages.ts'

export interface StackOptions {
  /** `auto`, `embedded` or a URL; not used when `rest` is given. */
  redis: string
  /** An Upstash database, or a bridge that runs already: no Redis and no bridge are started. */
  rest?: { url: string; token: string }
  /** Default: the environment of the config. */
  environment?: string
  /** Where the gateway sends what it admits; absent: the demo origin is started. */
  origin?: string
  /** 0: any free one. */
  ports: { gateway: number; bridge: number; origin: number }
  watch: boolean
  /** Instead of sluice.config.ts (tests). */
  configFile?: string
  onMessage?: (message: WorkerMessage) => void
  /** Called when a Redis that the stack started exits unexpectedly. */
  onRedisEnd?: (end: RedisEnd) => void
  /** Called with a message when Redis stops answering the bridge, and again when it answers. */
  log?: (line: string) => void
  /** Called when Redis answers the bridge again. */
  onRedisBack?: () => void
}

export interface Stack {
  url: string
  origin: string
  rest: { url: string; token: string }
  /** For messages: which Redis was chosen, and why. */
  redis: string
  /** Ends everything that was started and removes its files. */
  close(): Promise<void>
}

/** A port is in use. The message names the option (`flag`) that selects another one. */
export class PortTaken extends Error {
  constructor(port: number, use: string, flag: string) {
    super(`Port ${port} for the ${use} is in use. Free it, or choose another one with ${flag}.`)
  }
}

/** @throws PortTaken, or the error of the part that cannot start, after all other parts are stopped */
export async function startStack(options: StackOptions): Promise<Stack> {
  const guardian = startGuardian()
  const parts: { close(): Promise<void> }[] = [{ close: () => guardian.dismiss() }]
  const close = async () => {
    for (const part of parts.splice(0).reverse()) await part.close()
  }
  const started = <T extends { close(): Promise<void> }>(part: T): T => {
    parts.push(part)
    return part
  }
  try {
    return await startParts(options, guardian, started, close)
  } catch (error) {
    await close()
    throw error
  }
}

async function startParts(
  options: StackOptions,
  guardian: Guardian,
  started: <T extends { close(): Promise<void> }>(part: T) => T,
  close: () => Promise<void>,
): Promise<Stack> {
  const { ports } = options
  const directory = mkdtempSync(join(tmpdir(), 'sluice-'))
  guardian.guard({ directory })

  let rest = options.rest
  let redis = rest ? `${new URL(rest.url).host}, over HTTP, because UPSTASH_REDIS_REST_URL is set` : ''
  if (!rest) {
    const local: LocalRedis = started(
      await startRedis(options.redis, {
        guardian,
        directory: join(directory, 'r'),
        ...(options.onRedisEnd && { onEnd: options.onRedisEnd }),
      }),
    )
    const token = randomBytes(24).toString('base64url')
    const bridge: Bridge = started(
      await withPortError(
        () =>
          startBridge({
            redisUrl: local.url,
            token,
            port: ports.bridge,
            ...(options.log && { log: options.log }),
            ...(options.onRedisBack && { onRedisBack: options.onRedisBack }),
          }),
        ports.bridge,
        'REST bridge',
        '--bridge-port',
      ),
    )
    rest = { url: bridge.url, token }
    redis =
      local.description +
      (bridge.isCluster ? '; it is a cluster, so the config needs store: { cluster: true }' : '')
  }

  let origin = options.origin
  if (!origin) {
    const demo: DemoOrigin = started(
      await withPortError(() => startDemoOrigin(ports.origin), ports.origin, 'demo origin', '--origin-port'),
    )
    origin = demo.url
  }

  await mustBeFree(ports.gateway)
  const worker: RunningWorker = started(
    await startWorker({
      guardian,
      directory: join(directory, 'w'),
      host: '127.0.0.1',
      port: ports.gateway,
      watch: options.watch,
      bindings: {
        UPSTASH_REDIS_REST_URL: rest.url,
        UPSTASH_REDIS_REST_TOKEN: rest.token,
        ORIGIN_URL: origin,
        ...(options.environment !== undefined && { SLUICE_ENVIRONMENT: options.environment }),
      },
      ...(options.configFile && { configFile: options.configFile }),
      ...(options.onMessage && { onMessage: options.onMessage }),
    }),
  )
  return { url: worker.url, origin, rest, redis, close }
}

/** Runs a start. If its port is in use, the error names the port, its use, and the flag that changes it. */
async function withPortError<T>(
  start: () => Promise<T>,
  port: number,
  use: string,
  flag: string,
): Promise<T> {
  try {
    return await start()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') throw new PortTaken(port, use, flag)
    throw error
  }
}

/** Tries the port before workerd does, because the error of workerd does not name the cause. */
async function mustBeFree(port: number): Promise<void> {
  if (port === 0) return
  const probe = await withPortError(() => startDemoOrigin(port), port, 'gateway', '--port')
  await probe.close()
}
