/** The commands over a direct connection to Redis, as the users of `serve` have it. */
import { afterAll, beforeAll, expect, it } from 'vitest'
import { runInProcess, runProcess } from '../support/command-line.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'

const CONFIG = ['--config', 'test/support/set-up-limits.config.ts']

let redis: TestRedis
beforeAll(async () => {
  redis = await startRedis()
})
afterAll(() => redis?.close())

it('use REDIS_URL, and end', async () => {
  const env = { REDIS_URL: redis.url }
  const created = await runProcess(['keys', 'create', '--consumer', 'acme', '--json', ...CONFIG], env)
  expect([created.code, JSON.parse(created.stdout)]).toMatchObject([0, { consumer: 'acme' }])
  expect((await runInProcess(['audit', '--target', 'acme', ...CONFIG], env)).stdout).toMatch('keys.create')
  const why = await runInProcess(['why', 'acme', ...CONFIG], env)
  expect([why.code, why.stdout]).toEqual([0, expect.stringContaining('acme is admitted')])
})

it('use the URL of a Redis in --url', async () => {
  const listed = await runInProcess(['keys', 'list', '--json', '--url', redis.url, ...CONFIG])
  expect([listed.code, JSON.parse(listed.stdout)]).toMatchObject([0, [{ consumer: 'acme' }]])
})

it('use the REST variables if both are set, as beside a bridge', async () => {
  const rest = { UPSTASH_REDIS_REST_URL: 'http://127.0.0.1:9', UPSTASH_REDIS_REST_TOKEN: 'x' }
  const { code, stderr } = await runInProcess(['keys', 'list', ...CONFIG], { REDIS_URL: redis.url, ...rest })
  expect([code, stderr]).toEqual([1, expect.stringContaining('127.0.0.1:9')])
})

it('say how to test a Redis that cannot be reached, without its password', async () => {
  const REDIS_URL = 'redis://sluice:p4ssw0rd@127.0.0.1:9'
  const { code, stderr } = await runInProcess(['keys', 'list', ...CONFIG], { REDIS_URL })
  expect([code, stderr]).toEqual([1, expect.stringContaining('redis-cli -u redis://')])
  expect(stderr).not.toContain('p4ssw0rd')
})
