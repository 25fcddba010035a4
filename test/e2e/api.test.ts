/** The API with all real parts: a built Worker in workerd, the REST bridge and a Redis. */
import { beforeAll, describe, expect, it } from 'vitest'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createToken, findToken, revokeToken } from '../../src/ops/tokens.ts'
import { type ApiCall, apiClient } from '../support/api.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { useStack } from '../support/stack.ts'

const PATIENTLY = { timeout: PATIENT_MS, interval: 100 }

describe('the API of a built Worker', () => {
  const context = useStack('whole-api.config.ts')
  let api: ApiCall

  beforeAll(() => {
    api = apiClient((path, init) => fetch(`${context.stack.url}${path}`, init))
  })

  const admin = () => createAdminStore({ ...context.stack.rest, keyLocking: false })

  async function tokenWith(...scopes: string[]): Promise<string> {
    const { token } = await createToken(admin(), { name: 'saas', scopes })
    return token
  }

  const call = (key: string) =>
    fetch(`${context.stack.url}/anything`, { headers: { authorization: `Bearer ${key}` } })

  it('signs a user up, raises its limit for a day, blocks it and revokes its key', async () => {
    const token = await tokenWith('keys:write', 'consumers:block', 'overrides:write', 'tokens:write')
    const { body } = await api('POST keys', { token, body: { consumer: 'acme', label: 'first' } })
    const first = await call(body.key)
    expect(first.status).toBe(200)
    expect(first.headers.get('ratelimit')).toContain('"consumer-minute";r=119')
    const raised = { limit: 600, until: '1d' }
    const override = await api('PUT consumers/acme/overrides/consumer-minute', { token, body: raised })
    expect(override.body).toMatchObject({ limit: 600, status: 'applies' })
    expect((await call(body.key)).headers.get('ratelimit')).toContain('"consumer-minute";r=598')
    await api('PUT consumers/acme/block', { token, body: { reason: 'unpaid' } })
    await expect.poll(async () => (await call(body.key)).status, PATIENTLY).toBe(403)
    await api('DELETE consumers/acme/block', { token })
    await expect.poll(async () => (await call(body.key)).status, PATIENTLY).toBe(200)
    await api(`DELETE keys/${body.id}`, { token })
    await expect.poll(async () => (await call(body.key)).status, PATIENTLY).toBe(401)
    expect((await api('PATCH consumers/acme', { token, body: { plan: 'pro' } })).status).toBe(403)
  })

  it('decides limits by name, and gives back what was spent', async () => {
    const token = await tokenWith('limits:use', 'limits:reset', 'stats:read')
    const names = (await api('POST limits/none', { token, body: {} })).body.detail
    const [name] = /Limits: ([a-z-]+)/.exec(names)!.slice(1)
    const wrong = await api(`POST limits/${name}`, { token, body: { identity: { nothing: 1 } } })
    const parts =
      /counts (?:by ([a-z and]+)|all)/.exec(wrong.body.errors[0].detail)?.[1]?.split(' and ') ?? []
    const identity = Object.fromEntries(parts.map(part => [part, 'x']))
    const decided = await api(`POST limits/${name}`, { token, body: { identity } })
    expect(decided.body).toMatchObject({ allowed: true, limit: name, receipt: { identity } })
    const { receipt } = decided.body
    expect((await api(`POST limits/${name}/refund`, { token, body: { receipt } })).body.allowed).toBe(true)
    expect((await api(`POST limits/${name}/reset`, { token, body: { identity } })).body.allowed).toBe(true)
    expect((await api('GET why/acme', { token })).body.caller).toBe('acme')
  })

  it('keeps tokens that end from doing anything after a second', async () => {
    const token = await tokenWith('stats:read')
    expect((await api('GET switches', { token })).status).toBe(200)
    await revokeToken(admin(), await findToken(admin(), token))
    await expect.poll(async () => (await api('GET switches', { token })).status, PATIENTLY).toBe(401)
  })

  it('serves its document, and has no other path', async () => {
    expect((await api('GET openapi.json')).body.openapi).toBe('3.1.0')
    expect((await api('GET none')).status).toBe(404)
    expect((await api('PUT openapi.json')).status).toBe(405)
  })
})
