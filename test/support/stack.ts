/** Everything that `npm start` runs, with an origin of the tests, and with a bridge whose deadline a busy machine does not exceed. */
import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll } from 'vitest'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { type Stack, type StackOptions, startStack } from '../../src/node/start/stack.ts'
import { startOrigin, type TestOrigin } from './origin.ts'
import { PATIENT_MS } from './patience.ts'
import { startRedis } from './redis.ts'

/**
 * Starts a stack. The bridge of `npm start` gives up after 2 s, and then the gateway decides without the store.
 * @param configFile relative to test/support
 * @param origin absent: the demo origin is started
 * @param rest the store of another stack; absent: a Redis and a bridge are started
 * @param onMessage gets what the Worker logs and reports
 */
export async function startTestStack(
  configFile: string,
  {
    origin,
    rest,
    onMessage,
  }: Pick<StackOptions, 'onMessage'> & { origin?: string; rest?: Stack['rest'] } = {},
): Promise<Stack> {
  const parts: { close(): Promise<void> }[] = []
  const close = async () => {
    for (const part of parts.splice(0).reverse()) await part.close()
  }
  try {
    let store = rest
    if (!store) {
      const redis = await startRedis()
      parts.push(redis)
      const token = randomBytes(12).toString('hex')
      const bridge = await startBridge({ redisUrl: redis.url, token, port: 0, deadlineMs: PATIENT_MS })
      parts.push(bridge)
      store = { url: bridge.url, token }
    }
    const stack = await startStack({
      redis: 'auto',
      rest: store,
      ...(origin !== undefined && { origin }),
      ports: { gateway: 0, bridge: 0, origin: 0 },
      watch: false,
      configFile: new URL(configFile, import.meta.url).pathname,
      ...(onMessage && { onMessage }),
    })
    parts.push(stack)
    return { ...stack, close }
  } catch (error) {
    await close()
    throw error
  }
}

export interface TestStack {
  readonly stack: Stack
  readonly origin: TestOrigin
}

/**
 * Provides a stack to the tests of a file or of a `describe`. Call it there: it starts the stack before the first test and closes it
 * after the last.
 * @param configFile relative to test/support
 * @param variables environment variables for the Worker, including its secrets
 */
export function useStack(configFile: string, variables: Record<string, string> = {}): TestStack {
  const started: { stack?: Stack; origin?: TestOrigin } = {}
  beforeAll(async () => {
    const before = Object.keys(variables).map(name => [name, process.env[name]] as const)
    Object.assign(process.env, variables)
    try {
      started.origin = await startOrigin()
      started.stack = await startTestStack(configFile, { origin: started.origin.url })
    } finally {
      for (const [name, value] of before) {
        if (value === undefined) delete process.env[name]
        else process.env[name] = value
      }
    }
  })
  afterAll(async () => {
    await started.stack?.close()
    await started.origin?.close()
  })
  return {
    get stack() {
      return started.stack!
    },
    get origin() {
      return started.origin!
    },
  }
}
