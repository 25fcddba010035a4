/** Every function that takes options refuses one that it does not know: a misspelled option would change nothing in silence. */
import { expect, it } from 'vitest'
import { createClient } from '../../src/client/index.ts'
import { expressGuard } from '../../src/node/express.ts'
import { startTestStore } from '../../src/node/testing.ts'
import { createAdmin } from '../../src/ops/admin/index.ts'
import { guard } from '../../src/set-ups/guard/index.ts'
import { sluice } from '../../src/set-ups/hono/middleware.ts'
import { createLimiter } from '../../src/set-ups/limits/create-limiter.ts'

const env = { UPSTASH_REDIS_REST_URL: 'http://127.0.0.1:1', UPSTASH_REDIS_REST_TOKEN: 't' }

it.each<[string, (options: object) => unknown]>([
  ['guard', options => guard({}, options)],
  ['sluice', options => sluice({}, options)],
  ['expressGuard', options => expressGuard({}, options)],
  ['createLimiter', options => createLimiter({ limits: {} }, options)],
  ['createAdmin', options => createAdmin({}, options)],
  ['createClient', options => createClient(options)],
  ['startTestStore', options => startTestStore(options)],
])('%s refuses an unknown option, and names the ones it has', async (name, call) => {
  const made = async () => await call({ rediss: 'redis://127.0.0.1' })
  await expect(made()).rejects.toThrow(new RegExp(`^${name} has no option 'rediss'\\. Options: \\w+`))
})

it.each<[string, (options: object) => unknown]>([
  ['guard', options => guard({}, { env, address: () => '192.0.2.1', passPreflights: true, ...options })],
  ['sluice', options => sluice({}, { env, address: () => '192.0.2.1', passPreflights: true, ...options })],
  ['createLimiter', options => createLimiter({ limits: {} }, { env, waitUntil() {}, ...options })],
  ['createAdmin', options => createAdmin({}, { env, by: 'ci', ...options })],
  ['createClient', options => createClient({ maxRetries: 1, ...options })],
])('%s takes the options it has', (_, call) => {
  expect(() => call({})).not.toThrow()
})
