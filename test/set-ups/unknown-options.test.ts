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

const CONFIG = {
  plans: ['free'],
  credentials: { accept: ['api-key' as const] },
  rules: [
    { name: 'minute', by: 'consumer' as const, algorithm: 'gcra' as const, limit: 9, period: '1m' as const },
  ],
}
const admin = createAdmin(CONFIG, { env })
const typo = { expire: '24h', untl: '24h' } as object

it.each<[string, () => Promise<unknown>]>([
  ['keys.create', () => admin.keys.create({ consumer: 'acme', ...typo })],
  ['keys.import', () => admin.keys.import({ digest: '0'.repeat(64) }, { consumer: 'acme', ...typo })],
  ['tokens.create', () => admin.tokens.create({ name: 'ci', scopes: ['stats:read'], ...typo })],
  ['consumers.block', () => admin.consumers.block('acme', typo)],
  ['switches.kill', () => admin.switches.kill(typo)],
  ['switches.setRule', () => admin.switches.setRule('minute', { mode: 'off', ...typo })],
  ['setOverride', () => admin.consumers.setOverride('acme', 'minute', { limit: 3, ...typo })],
])('%s of createAdmin refuses a misspelled end, and writes nothing', async (_, call) => {
  await expect(call()).rejects.toMatchObject({ kind: 'usage', message: expect.stringMatching(/expire/) })
})
