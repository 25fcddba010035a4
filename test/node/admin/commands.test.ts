/** What the commands tell of rules that the project's own config does not have. */
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { checkedConfig } from '../../../src/config/check/check.ts'
import type { ConfigInput } from '../../../src/config/check/schema.ts'
import { consumersCommand } from '../../../src/node/cli/consumers.ts'
import { limitsCommand } from '../../../src/node/cli/limits.ts'
import { type Bridge, startBridge } from '../../../src/node/rest-bridge/bridge.ts'
import { startRedis, type TestRedis } from '../../support/redis.ts'

const by = 'consumer'
const INPUT: ConfigInput = {
  origin: 'route',
  rules: [
    { name: 'second', by: ['consumer', 'route'], algorithm: 'gcra', limit: 10, period: '1s' },
    { name: 'minute', by, algorithm: 'sliding-window', limit: 100, period: '1m' },
    { name: 'queue', by, algorithm: 'leaky-bucket', limit: 10, period: '1s', queue: 5 },
    { name: 'steady', by, algorithm: 'gcra', limit: 10, period: '1s', burst: 20 },
    { name: 'wrong', by: 'address', on: 'auth-failure', algorithm: 'fixed-window', limit: 9, period: '1m' },
  ],
}

vi.mock('../../../src/node/cli/load-config.ts', () => ({
  loadConfig: () => Promise.resolve({ ...checkedConfig(INPUT), input: INPUT }),
}))

let redis: TestRedis
let bridge: Bridge
beforeAll(async () => {
  redis = await startRedis('embedded')
  bridge = await startBridge({ redisUrl: redis.url, token: 't', port: 0 })
})
afterAll(async () => {
  await bridge?.close()
  await redis?.close()
})

/** @returns what stands on standard output */
async function run(group: 'consumers' | 'limits', ...args: string[]): Promise<string> {
  const log = vi.spyOn(console, 'log').mockImplementation(() => {})
  const error = vi.spyOn(console, 'error').mockImplementation(() => {})
  try {
    const command = group === 'consumers' ? consumersCommand() : limitsCommand()
    await command.parseAsync([...args, '--url', bridge.url, '--token', 't'], { from: 'user' })
    return log.mock.calls.join('\n')
  } finally {
    log.mockRestore()
    error.mockRestore()
  }
}

it('a reset says which rules are whole again, and which are not', async () => {
  await expect(run('limits', 'reset', '--consumer', 'acme')).rejects.toMatchObject({
    message: expect.stringMatching(/^Reset minute, queue and steady of acme\? There is no terminal/),
  })
  expect(await run('limits', 'reset', '--consumer', 'acme', '--yes')).toBe(
    'Reset minute, queue and steady. Not reset: second (counted by more than the consumer).',
  )
  expect(await run('limits', 'reset', '--address', '192.0.2.7', '--yes')).toBe('Reset wrong.')
})

it('a look says when a rule counts, and a burst only where there is one', async () => {
  const table = await run('limits', 'peek', '--address', '192.0.2.7')
  expect(table).toMatch(/^wrong +enforce, on auth-failure +9 per 1 min /m)
  const { rules } = JSON.parse(await run('limits', 'peek', '--consumer', 'acme', '--json'))
  const [minute, queue, steady] = rules
  expect(minute).not.toHaveProperty('burst')
  expect(queue).toMatchObject({ queue: 5 })
  expect(queue).not.toHaveProperty('burst')
  expect(steady).toMatchObject({ burst: 20 })
})

it('overrides have one shape, and a burst only where there is one', async () => {
  for (const rule of ['minute', 'steady', 'queue'])
    await run('consumers', 'override', 'acme', rule, '--limit', '8')
  expect(await run('consumers', 'show', 'acme')).toMatch(/^minute +limit 8 +no end +applies$/m)
  const removal = ['override', 'acme', 'minute', '--remove', '--yes', '--json']
  const shown = async () => JSON.parse(await run('consumers', 'show', 'acme', '--json')).overrides
  const standing = { until: null, standing: 'applies' }
  const left = [
    { rule: 'steady', limit: 8, burst: 20, ...standing },
    { rule: 'queue', limit: 8, queue: 5, ...standing },
  ]
  expect(await shown()).toEqual([{ rule: 'minute', limit: 8, ...standing }, ...left])
  expect(JSON.parse(await run('consumers', ...removal))).toEqual({
    ...{ consumer: 'acme', plan: null, blockedAt: null },
    overrides: left,
  })
  expect(await shown()).toEqual(left)
})
