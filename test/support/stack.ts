/** Everything that `npm start` runs, with an origin of the tests. */
import { afterAll, beforeAll } from 'vitest'
import { type Stack, startStack } from '../../src/node/start/stack.ts'
import { startOrigin, type TestOrigin } from './origin.ts'

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
      started.stack = await startStack({
        redis: 'auto',
        origin: started.origin.url,
        ports: { gateway: 0, bridge: 0, origin: 0 },
        watch: false,
        configFile: new URL(configFile, import.meta.url).pathname,
      })
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
