/** `sluicegate/admin`: the functions of the command line, from plain values to its JSON. */
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, beforeEach, expect, it, vi } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import type { Environment } from '../../src/config/environment.ts'
import { KEY_SECRET, newKeySecret } from '../../src/credentials/key-signature.ts'
import { type Admin, createAdmin } from '../../src/ops/admin/index.ts'
import { type FastStore, startFastStore } from '../support/fast-store.ts'

const CONFIG: ConfigInput = {
  origin: 'route',
  plans: ['free', 'pro'],
  credentials: { opaqueKeys: {} },
  rules: [
    { name: 'hour', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1h' },
    { name: 'route', by: ['consumer', 'route'], algorithm: 'gcra', limit: 10, period: '1h' },
  ],
  limits: { mails: [{ name: 'day', by: ['user'], algorithm: 'fixed-window', limit: 5, period: 'day' }] },
}
const AT = expect.stringMatching(/^20\d\d-\d\d-\d\dT[\d:.]+Z$/)

let store: FastStore
let variables: Environment
let admin: Admin
beforeAll(async () => {
  store = await startFastStore()
  variables = { ...store.env, [KEY_SECRET]: newKeySecret() }
  admin = createAdmin(CONFIG, { env: variables, by: 'sign-up' })
})
afterAll(() => store?.close())
beforeEach(() => store.clear())

it('creates, shows, changes, rotates and revokes keys', async () => {
  const { key, ...created } = await admin.keys.create({ consumer: 'acme', label: 'ci', expires: '90d' })
  const { id } = created
  expect(created).toEqual({
    signedBy: expect.any(String),
    ...{ id, consumer: 'acme', kind: 'api-key', mode: 'live', label: 'ci', hint: key.slice(-4) },
    ...{ createdAt: AT, expiresAt: AT },
  })
  expect(await admin.keys.show(key)).toEqual(created)
  expect(await admin.keys.list('acme')).toEqual([created])
  expect(await admin.keys.setPlan(id, 'pro')).toEqual({ id, plan: 'pro' })
  expect(await admin.keys.setLabel(id, null)).toEqual({ id, label: null })
  expect(await admin.keys.expire(id, 'never')).toEqual({ id, expiresAt: null })
  const rotated = await admin.keys.rotate(id, '1h')
  expect(rotated).toMatchObject({ plan: 'pro', replaces: { id, expiresAt: AT } })
  expect(await admin.keys.revoke(id)).toEqual({ id, revoked: true })
  const imported = await admin.keys.import({ key: 'a-key-of-another-system' }, { consumer: 'acme' })
  expect(await admin.keys.show(imported.id)).toEqual(imported)
  const signed = { [rotated.signedBy!]: 1 }
  expect(await admin.keys.stats()).toEqual({ signed, unsigned: [], allSignedAt: AT })
})

it('creates, shows, rotates and revokes service tokens', async () => {
  const scopes = ['limits:use:mails', 'consumers:block']
  const { token, ...created } = await admin.tokens.create({ name: 'support', scopes, expires: '90d' })
  const { id } = created
  expect(created).toEqual({ ...{ id, name: 'support', scopes, by: 'sign-up' }, createdAt: AT, expiresAt: AT })
  expect(await admin.tokens.show(token)).toEqual(created)
  expect(await admin.tokens.list()).toEqual([created])
  const rotated = await admin.tokens.rotate(id, '1h')
  expect(rotated).toMatchObject({ name: 'support', scopes, replaces: { id, expiresAt: AT } })
  expect(await admin.tokens.revoke(id)).toEqual({ id, revoked: true })
  await expect(admin.tokens.create({ name: 'a', scopes: ['limits:use:mail!'] })).rejects.toThrow(
    "Did you mean 'limits:use:mails'?",
  )
})

it('sets plans, blocks and overrides of consumers, with their author', async () => {
  expect(await admin.consumers.setPlan('acme', 'pro')).toEqual({
    ...{ consumer: 'acme', plan: 'pro', blockedAt: null, overrides: [], keysOnOtherPlans: [] },
  })
  const until = new Date(Date.now() + 3600e3)
  expect(await admin.consumers.block('acme', { until, reason: 'unpaid' })).toEqual({
    ...{ consumer: 'acme', plan: 'pro', overrides: [], blockedAt: AT, blockedUntil: until.toISOString() },
    ...{ blockedBy: 'sign-up', reason: 'unpaid' },
  })
  expect(await admin.consumers.unblock('acme')).toMatchObject({ blockedAt: null })
  const override = { rule: 'hour', limit: 99, burst: 99, until: AT, at: AT, by: 'ops', status: 'applies' }
  expect(await admin.consumers.setOverride('acme', 'hour', { limit: 99, until: '24h', by: 'ops' })).toEqual({
    ...{ consumer: 'acme', ...override, removed: [] },
  })
  const shown = { consumer: 'acme', plan: 'pro', blockedAt: null, keys: [], overrides: [override] }
  expect(await admin.consumers.show('acme')).toEqual(shown)
  expect(await admin.consumers.list()).toEqual([shown])
  expect(await admin.consumers.removeOverride('acme', 'hour')).toMatchObject({ overrides: [] })
  expect(await admin.consumers.remove('acme')).toEqual({ consumer: 'acme', removed: true, keys: 0 })
})

it('changes and shows live switches', async () => {
  const { rules } = await admin.switches.setRule('hour', { mode: 'shadow', until: '1h' })
  const config = { mode: 'enforce', share: 1 }
  expect(rules).toEqual([
    { rule: 'hour', mode: 'shadow', at: AT, until: AT, by: 'sign-up', config, status: 'applies' },
  ])
  expect(await admin.switches.kill({ reason: 'incident', by: 'ops' })).toMatchObject({
    kill: { by: 'ops', reason: 'incident', at: AT, status: 'applies' },
  })
  await admin.consumers.block('acme')
  expect(await admin.switches.show()).toMatchObject({ rules, blocked: [{ consumer: 'acme' }], overrides: [] })
  expect((await admin.switches.restore()).kill).toBeNull()
  expect((await admin.switches.resetRule('hour')).rules).toEqual([])
})

it('shows what is left of limits, and resets it', async () => {
  const { rules } = await admin.limits.peek('mails', { user: 7 })
  expect(rules).toMatchObject([{ rule: 'day', unit: 'requests', remaining: 5, retryAfterMs: 0 }])
  expect(await admin.limits.reset('mails', { user: 7 })).toEqual({
    ...{ limit: 'mails', by: { user: 7 }, reset: true },
  })
  expect(await admin.limits.peekCaller({ consumer: 'acme' }, 'pro')).toMatchObject({
    ...{ consumer: 'acme', plan: 'pro', blockedAt: null, isKnown: false, off: [], notShown: ['route'] },
    rules: [{ rule: 'hour', remaining: 10 }],
  })
  expect(await admin.limits.resetCaller({ consumer: 'acme' })).toEqual({
    ...{ consumer: 'acme', reset: true, rules: ['hour'], notReset: ['route'] },
  })
  expect(await admin.limits.load()).toEqual({})
})

it('reads statistics, top callers, and why a caller is refused', async () => {
  expect(await admin.stats({ since: '1h' })).toMatchObject({ unit: 'minute', since: AT, rules: [] })
  expect(await admin.topCallers()).toEqual({ since: AT, rules: [] })
  expect(await admin.top()).toMatchObject({ at: AT, switches: { kill: null, rules: {} } })
  await admin.consumers.block('acme', { reason: 'unpaid' })
  const why = await admin.why('acme')
  expect(why).toMatchObject({ caller: 'acme', state: 'refused', blockedAt: AT })
  expect(why.sentence).toMatch(/^acme is refused with a 403: blocked since .*: unpaid/)
})

it.each<[string, (admin: Admin) => Promise<unknown>, RegExp]>([
  ['usage', admin => admin.keys.create({ consumer: 'a b' }), /is not a consumer name/],
  ['usage', admin => admin.keys.create({ consumer: 'acme', plan: 'por' }), /Did you mean 'pro'/],
  ['usage', admin => admin.keys.rotate('acme/0123abcd', 'soon'), /^overlap: 'soon' is not a duration/],
  ['usage', admin => admin.consumers.block('acme', { until: new Date(0) }), /is in the past/],
  ['usage', admin => admin.consumers.block('acme', { until: new Date(Number.NaN) }), /^'Invalid Date' is/],
  ['usage', admin => admin.switches.setRule('hour', { mode: 'of' as 'off' }), /^'of' is not a mode .* 'off'/],
  [
    'usage',
    admin => admin.consumers.setOverride('acme', 'hour', { mode: 'none' as 'off' }),
    /^'none' is not a mode/,
  ],
  ['usage', admin => admin.switches.setRule('hour', {}), /^No change is given/],
  ['usage', admin => admin.switches.setRule('hour', { share: 2 }), /from 0 to 1/],
  ['usage', admin => admin.switches.setRule('hour', { mode: 'off', share: 1 }), /cannot be combined/],
  ['not-found', admin => admin.switches.resetRule('huor'), /Did you mean 'hour'/],
  ['not-found', admin => admin.consumers.remove('acme'), /The store has no consumer/],
  ['usage', admin => admin.limits.resetCaller({}), /^No caller is given/],
  ['usage', admin => admin.limits.correct('mails', { user: 1 }, 'day', 0), /^The units are not valid/],
  ['refused', admin => admin.limits.correct('mails', { user: 1 }, 'day', 1), /no settlement to correct/],
  ['usage', admin => admin.stats({ since: '1s' }), /from 1m to 400d/],
  ['usage', admin => admin.topCallers({ since: '30d' }), /at most 7d/],
])('throws an AdminError %s for %s', async (kind, call, message) => {
  const error = await call(admin).catch(error => error)
  expect(error).toMatchObject({ name: 'AdminError', kind, message: expect.stringMatching(message) })
})

it('does not create a key that the gateway would refuse', async () => {
  const { SLUICE_KEY_SECRET: _, ...env } = variables
  const strict = createAdmin({ ...CONFIG, credentials: { apiKeys: { signature: 'require' } } }, { env })
  await expect(strict.keys.create({ consumer: 'acme' })).rejects.toMatchObject({ kind: 'refused' })
})

it('works on the environment of the deployment', async () => {
  const other = createAdmin(CONFIG, { env: { ...variables, SLUICE_ENVIRONMENT: 'staging' } })
  const { key } = await other.keys.create({ consumer: 'acme' })
  expect(key).toMatch(/^slk_.*staging/)
  expect(await admin.keys.list()).toEqual([])
})

it('without the variables of the store, it says which are missing', () => {
  expect(() => createAdmin(CONFIG, { env: {} })).toThrow(/UPSTASH_REDIS_REST_URL/)
})

it('runs the example of docs/operations.md', async () => {
  const page = readFileSync(new URL('../../docs/operations.md', import.meta.url), 'utf8')
  const [, code] = /```ts\n(import \{ createAdmin \}[\s\S]*?)```/.exec(page)!
  const body = code!.replaceAll(/^import .*\n/gm, '')
  const run = Object.getPrototypeOf(async () => {}).constructor(
    'createAdmin',
    'config',
    `${body}\nreturn key`,
  )
  const bound = vi.fn((config: ConfigInput, options: object) =>
    createAdmin(config, { env: variables, ...options }),
  )
  const rule = { ...CONFIG.rules![0]!, name: 'consumer-minute' }
  const key = await run(bound, { ...CONFIG, rules: [rule] })
  expect(await admin.keys.show(key)).toMatchObject({ consumer: 'acme' })
  expect(bound).toHaveBeenCalledTimes(1)
})
