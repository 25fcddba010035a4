/** Keys, consumers, overrides, switches and statistics over HTTP. */
import { beforeEach, describe, expect, it } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { sha256 } from '../../src/sha256.ts'
import { type ApiCall, apiOf, tokenWith } from '../support/api.ts'
import { useGateway } from '../support/gateway.ts'
import { describeOnRedis } from '../support/redis.ts'

const CONFIG: Partial<ConfigInput> = {
  plans: ['free', 'pro'],
  credentials: { opaqueKeys: {} },
  rules: [
    { name: 'minute', by: 'consumer', algorithm: 'gcra', limit: 60, period: '1m' },
    { name: 'day', by: 'consumer', algorithm: 'fixed-window', limit: 100, period: 'day' },
    { name: 'queue', by: 'consumer', algorithm: 'leaky-bucket', limit: 10, period: '1s', queue: 5 },
    { name: 'address', by: 'address', algorithm: 'gcra', limit: 1000, period: '1m' },
  ],
  limits: { sms: [{ name: 'day', algorithm: 'fixed-window', limit: 5, period: '1d' }] },
}
const ALL = [
  'keys:write',
  'consumers:block',
  'consumers:write',
  'overrides:write',
  'switches:write',
  'stats:read',
  'tokens:write',
]

describeOnRedis('administration over HTTP', (_, kind) => {
  const gateway = useGateway(kind)
  let api: ApiCall
  let token: string

  beforeEach(async () => {
    api = apiOf(gateway, CONFIG)
    token = await tokenWith(gateway, ALL, { name: 'backend' })
  })

  const create = async (body: object) => (await api('POST keys', { token, body })).body

  it('changes leave entries with the token, the reason and the request, which audit:read can read', async () => {
    const reader = await tokenWith(gateway, ['audit:read'])
    const headers = { 'sluice-reason': 'ticket 42' }
    const blocked = await api('PUT consumers/acme/block', { token, body: {}, headers })
    expect(blocked.status).toBe(200)
    const limited = await tokenWith(gateway, ['limits:use', 'limits:reset'], { name: 'sms' })
    await api('POST limits/sms', { token: limited, body: {} })
    expect((await api('POST limits/sms/reset', { token: limited, body: {}, headers })).status).toBe(200)
    expect((await api('GET audit', { token })).status).toBe(403)
    const { body } = await api('GET audit?limit=2', { token: reader })
    expect(body.items).toMatchObject([
      { action: 'limits.reset', target: 'sms', actor: { kind: 'token', name: 'sms' }, reason: 'ticket 42' },
      {
        ...{ action: 'consumers.block', target: 'acme', actor: { kind: 'token', name: 'backend' } },
        requestId: blocked.headers.get('x-request-id'),
      },
    ])
    const acme = await api('GET audit?target=acme', { token: reader })
    expect(acme.body.items).toHaveLength(1)
    expect((await api('GET audit?cursor=x', { token: reader })).status).toBe(400)
  })

  it.each([
    ['UTF-8, a character for each byte', Buffer.from('À für 封').toString('latin1'), 'À für 封'],
    ['Latin-1', 'caf\u00e9', 'caf\u00e9'],
    ['with a percent sign', '5%41 \u00fc', '5%41 \u00fc'],
  ])('have the reason of the header: %s', async (_, header, reason) => {
    const headers = { 'sluice-reason': header }
    await api('PUT consumers/acme/overrides/minute', { token, body: { limit: 5 }, headers })
    const reader = await tokenWith(gateway, ['audit:read'])
    const { body } = await api('GET audit?target=acme', { token: reader })
    expect(body.items[0]).toMatchObject({ action: 'overrides.set', reason })
  })

  describe('keys', () => {
    it('are created, shown, changed, rotated and revoked', async () => {
      const made = await api('POST keys', {
        token,
        body: { consumer: 'acme', label: 'ci', expiresAt: '90d' },
      })
      expect(made.status).toBe(201)
      const { key, id } = made.body
      expect(key).toMatch(/^slk_acme_/)
      const path = `keys/${id}`
      const shown = await api(`GET ${path}`, { token })
      expect(shown.body).toMatchObject({ id, consumer: 'acme', kind: 'api-key', mode: 'live', label: 'ci' })
      expect(JSON.stringify(shown.body)).not.toContain(key)
      const changed = await api(`PATCH ${path}`, {
        token,
        body: { label: null, plan: 'pro', expiresAt: null },
      })
      expect(changed.body).toEqual({ ...shown.body, plan: 'pro', label: undefined, expiresAt: undefined })
      const rotated = await api(`POST ${path}/rotate`, { token, body: { overlap: '1h' } })
      expect(rotated).toMatchObject({ status: 201, body: { plan: 'pro', replaces: { id } } })
      expect((await api(`POST ${path}/rotate`, { token, body: {} })).status).toBe(422)
      expect((await api(`DELETE ${path}`, { token })).body).toEqual({ id, revoked: true })
      expect((await api(`DELETE ${path}`, { token })).status).toBe(404)
    })

    it('are imported by their digest, once', async () => {
      const digest = sha256('a key that was made elsewhere')
      const body = { consumer: 'acme', sha256: digest }
      expect(await api('POST keys/import', { token, body })).toMatchObject({
        status: 201,
        body: { kind: 'opaque-key', id: `acme/${digest.slice(0, 12)}` },
      })
      expect((await api('POST keys/import', { token, body })).status).toBe(422)
      expect((await api('POST keys/import', { token, body: { consumer: 'acme' } })).status).toBe(400)
    })

    it('are not imported where the config accepts no imported keys', async () => {
      const without = apiOf(gateway, {})
      const body = { consumer: 'acme', sha256: sha256('x') }
      const { status, body: problem } = await without('POST keys/import', { token, body })
      expect([status, problem.detail]).toEqual([404, expect.stringContaining('credentials.opaqueKeys')])
      expect((await without('GET keys', { token })).body).toEqual({ items: [] })
    })

    it('have no plan without the scope for plans', async () => {
      const keysOnly = await tokenWith(gateway, ['keys:write'])
      const reply = await api('POST keys', { token: keysOnly, body: { consumer: 'acme', plan: 'pro' } })
      expect(reply).toMatchObject({
        status: 403,
        body: { scope: 'consumers:write', detail: 'A plan needs a token with the scope consumers:write.' },
      })
      const { id } = (await api('POST keys', { token: keysOnly, body: { consumer: 'acme' } })).body
      expect((await api(`PATCH keys/${id}`, { token: keysOnly, body: { plan: 'pro' } })).status).toBe(403)
      expect((await api(`PATCH keys/${id}`, { token: keysOnly, body: { label: 'x' } })).status).toBe(200)
    })

    it('are listed in pages that lose and repeat nothing while keys come and go', async () => {
      for (const consumer of ['acme', 'beta', 'corp']) for (let i = 0; i < 3; i++) await create({ consumer })
      const seen: string[] = []
      let cursor: string | undefined
      do {
        const page = await api(`GET keys?limit=2${cursor ? `&cursor=${cursor}` : ''}`, { token })
        seen.push(...page.body.items.map(({ id }: { id: string }) => id))
        cursor = page.body.cursor
        // Before the cursor and after it.
        if (seen.length === 4) await create({ consumer: 'aaa' })
        if (seen.length === 4) await create({ consumer: 'zeta' })
      } while (cursor)
      expect(new Set(seen).size).toBe(seen.length)
      expect(seen.map(id => id.split('/')[0]).join(' ')).toBe(
        'acme acme acme beta beta beta corp corp corp zeta',
      )
      const own = await api('GET keys?consumer=beta', { token })
      expect(own.body.items).toHaveLength(3)
      expect(own.body.cursor).toBeUndefined()
    })

    it('are created once for an Idempotency-Key', async () => {
      const headers = { 'idempotency-key': 'order-17' }
      const first = await api('POST keys', { token, headers, body: { consumer: 'acme' } })
      const again = await api('POST keys', { token, headers, body: { consumer: 'acme' } })
      const detail = expect.stringContaining(`used before, for ${first.body.id}. If its secret was lost`)
      expect(again).toMatchObject({ status: 409, body: { id: first.body.id, detail } })
      expect(JSON.stringify(again.body)).not.toContain(first.body.key)
      const other = await tokenWith(gateway, ALL)
      expect((await api('POST keys', { token: other, headers, body: { consumer: 'acme' } })).status).toBe(201)
      expect((await api('GET keys', { token })).body.items).toHaveLength(2)
    })

    it('can be created with an Idempotency-Key whose first request was refused', async () => {
      const headers = { 'idempotency-key': 'order-18' }
      const { id } = await create({ consumer: 'acme' })
      await api(`POST keys/${id}/rotate`, { token, body: {} })
      expect((await api(`POST keys/${id}/rotate`, { token, headers, body: {} })).status).toBe(422)
      expect((await api('POST keys', { token, headers, body: { consumer: 'acme' } })).status).toBe(201)
    })

    it.each([
      [{ consumer: 'no/slash' }, '/consumer'],
      [{ consumer: '{stats}' }, '/consumer'],
      [{ consumer: 'a'.repeat(65) }, '/consumer'],
      [{}, '/consumer'],
      [{ consumer: 'acme', plan: 'gold' }, '/plan'],
      [{ consumer: 'acme', label: '\u202e' }, '/label'],
      [{ consumer: 'acme', mode: 'prod' }, '/mode'],
      [{ consumer: 'acme', expiresAt: '2001-01-01' }, '/expiresAt'],
      [{ consumer: 'acme', expires: '1d' }, '/expires'],
      [['acme'], ''],
    ])('are not created from %j', async (body, pointer) => {
      const reply = await api('POST keys', { token, body })
      expect(reply).toMatchObject({ status: 400, body: { errors: [{ pointer }] } })
      expect(await gateway.redis.connection.send(['KEYS', 'sluice:{c*'])).toEqual([])
    })
  })

  describe('consumers', () => {
    it('are not unblocked by a request with a body, whose reason would be lost', async () => {
      await api('PUT consumers/acme/block', { token, body: {} })
      const text = '{"reason":"paid"}'
      const headers = { 'content-length': String(text.length) }
      const { status, body } = await api('DELETE consumers/acme/block', { token, text, headers })
      expect([status, body.errors[0].detail]).toEqual([400, expect.stringContaining('Sluice-Reason')])
      expect((await api('GET consumers/acme', { token })).body.blockedAt).not.toBeNull()
    })

    it('override limits by name', async () => {
      const limits = {
        ...{
          mail: [
            {
              name: 'day',
              by: ['user'],
              algorithm: 'fixed-window',
              limit: 5,
              period: '300d',
              overridable: true,
            },
          ],
        },
        ...{ plain: [{ name: 'day', algorithm: 'fixed-window', limit: 5, period: '300d' }] },
      } as ConfigInput['limits']
      const some = apiOf(gateway, { limits: limits! })
      const token = await tokenWith(gateway, ['overrides:write', 'limits:use'])
      const identity = { user: 'ada' }
      const path = 'limits/mail/overrides/day'
      const set = await some(`PUT ${path}`, { token, body: { identity, limit: 7, until: '1d' } })
      expect(set.body).toMatchObject({
        ...{ limit: 7, identity, rule: 'day', status: 'applies', by: expect.any(String), removed: [] },
      })
      const decided = await some('POST limits/mail', { token, body: { identity, cost: 6 } })
      expect(decided.body).toMatchObject({ allowed: true, rules: [{ limit: 7, remaining: 1 }] })
      expect((await some('GET limits/mail/overrides', { token })).body.overrides).toMatchObject([
        { identity, rule: 'day', limit: 7 },
      ])
      const removed = await some(`POST ${path}/remove`, { token, body: { identity } })
      expect(removed.body).toEqual({ limit: 'mail', identity, overrides: [] })
      const wrong = await some(`PUT ${path}`, { token, body: { limit: 7 } })
      expect([wrong.status, wrong.body.errors[0].detail]).toEqual([
        400,
        expect.stringContaining('user is missing'),
      ])
      const refused = await some('PUT limits/plain/overrides/day', { token, body: { limit: 7 } })
      expect(refused).toMatchObject({
        status: 422,
        body: { detail: expect.stringContaining('overridable: true') },
      })
      expect((await some(`PUT limits/none/overrides/day`, { token, body: { limit: 7 } })).status).toBe(404)
    })

    it('get a plan, a block and overrides', async () => {
      await create({ consumer: 'acme' })
      expect((await api('PATCH consumers/acme', { token, body: { plan: 'pro' } })).body.plan).toBe('pro')
      const block = { until: '1h', reason: 'unpaid' }
      expect((await api('PUT consumers/acme/block', { token, body: block })).body).toMatchObject({
        ...{ blockedBy: 'backend', reason: 'unpaid' },
        blockedUntil: expect.any(String),
      })
      const override = await api('PUT consumers/acme/overrides/minute', {
        token,
        body: { limit: 600, until: '1d' },
      })
      expect(override.body).toMatchObject({
        rule: 'minute',
        limit: 600,
        burst: 600,
        status: 'applies',
        by: 'backend',
      })
      const shown = (await api('GET consumers/acme', { token })).body
      expect(shown).toMatchObject({
        plan: 'pro',
        keys: [{ consumer: 'acme' }],
        overrides: [{ rule: 'minute' }],
      })
      expect((await api('DELETE consumers/acme/block', { token })).body.blockedAt).toBeNull()
      expect((await api('DELETE consumers/acme/overrides/minute', { token })).body.overrides).toEqual([])
      expect((await api('GET consumers', { token })).body.items).toHaveLength(1)
      expect((await api('DELETE consumers/acme', { token })).body).toEqual({
        consumer: 'acme',
        removed: true,
        keys: 1,
      })
      expect((await api('GET consumers/acme', { token })).status).toBe(404)
    })

    it('have the same overrides as the command line sets', async () => {
      const { compileOverride } = await import('../../src/ops/overrides.ts')
      const input = { ...CONFIG, origin: 'route' } as ConfigInput
      for (const [rule, numbers] of [
        ['minute', { limit: 7 }],
        ['minute', { limit: 7, burst: 3 }],
        ['day', { limit: 7 }],
        ['queue', { limit: 7, queue: 0 }],
        ['day', { mode: 'off' }],
      ] as const) {
        await api(`PUT consumers/acme/overrides/${rule}`, { token, body: numbers })
        const [, record] = /override=(\S+)/.exec(
          String(await gateway.redis.connection.send(['GET', 'sluice:{c:acme}:consumer'])),
        )!
        const { family, numbers: compiled } = compileOverride(input, { rule, ...numbers })
        const { tag, rate, period, burstOrStep, limit, burst } = compiled ?? {}
        const mode = 'mode' in numbers ? '-1' : ''
        expect(record).toMatch(
          new RegExp(
            `^${family},,${mode},${[tag, rate, period, burstOrStep, limit, burst].map(x => x ?? '').join(',')},${rule},`,
          ),
        )
        await api(`DELETE consumers/acme/overrides/${rule}`, { token })
      }
    })

    it.each([
      ['PUT consumers/acme/overrides/minute', { queue: 3 }, 400],
      ['PUT consumers/acme/overrides/minute', {}, 400],
      ['PUT consumers/acme/overrides/minute', { limit: 0 }, 400],
      ['PUT consumers/acme/overrides/minute', { limit: 1.5 }, 400],
      ['PUT consumers/acme/overrides/queue', { limit: 1, queue: 1e6 }, 400],
      ['PUT consumers/acme/overrides/none', { limit: 5 }, 404],
      ['PUT consumers/acme/overrides/address', { limit: 5 }, 422],
      ['PATCH consumers/acme', { plan: 'gold' }, 400],
      ['PATCH consumers/a%2Fb', { plan: null }, 400],
      ['PUT consumers/acme/block', { until: 'soon' }, 400],
      ['PUT switches/none', { mode: 'off' }, 404],
      ['PUT switches/minute', {}, 400],
      ['PUT switches/minute', { mode: 'off', share: 0.5 }, 400],
    ])('%s %j: %i', async (what, body, status) => {
      expect((await api(what, { token, body })).status).toBe(status)
    })

    it('of tokens have names with two parts', async () => {
      const path = `consumers/${encodeURIComponent('auth0~user|1')}`
      expect((await api(`PUT ${path}/block`, { token, body: {} })).body.consumer).toBe('auth0~user%7C1')
      const again = `consumers/${encodeURIComponent('auth0~user%7C1')}`
      expect((await api(`GET ${again}`, { token })).body.blockedAt).toEqual(expect.any(String))
    })
  })

  it('switches are set, shown and removed', async () => {
    const set = await api('PUT switches/minute', {
      token,
      body: { mode: 'shadow', until: '1h', reason: 'test' },
    })
    expect(set.body.rules).toMatchObject([
      { rule: 'minute', mode: 'shadow', by: 'backend', status: 'applies' },
    ])
    const named = await api('PUT switches/sms%2Fday', { token, body: { mode: 'off' } })
    expect(named.body.rules).toHaveLength(2)
    expect((await api('PUT kill-switch', { token, body: { until: '10m' } })).body.kill.status).toBe('applies')
    expect((await api('DELETE kill-switch', { token })).body.kill).toBeNull()
    await api('DELETE switches/sms%2Fday', { token })
    expect((await api('DELETE switches/minute', { token })).body.rules).toEqual([])
    expect((await api('GET switches', { token })).body).toEqual({ kill: null, rules: [] })
  })

  it('a change that other writers always disturb gets a 409, and changes nothing', async () => {
    let writes = 0
    gateway.store.fault = (_, __, passOn) => {
      const text = `sluice-${++writes}`
      void gateway.redis.connection.send(['SET', 'sluice:{switches}', text]).then(() => passOn())
    }
    const reply = await api('PUT switches/minute', { token, body: { mode: 'off' } })
    gateway.store.fault = undefined
    expect(reply).toMatchObject({ status: 409, body: { type: 'urn:sluice:problem:conflict' } })
    expect(reply.body.detail).toContain('Nothing was changed. Try again.')
    expect((await api('GET switches', { token })).body.rules).toEqual([])
  })

  it('statistics and reasons are shown', async () => {
    await create({ consumer: 'acme' })
    expect((await api('GET stats?since=10m', { token })).body).toMatchObject({ unit: 'minute', requests: [] })
    expect((await api('GET stats?since=10m&rule=none', { token })).status).toBe(404)
    expect((await api('GET stats?since=1s', { token })).status).toBe(400)
    expect((await api('GET stats/top?since=2h', { token })).body.rules).toEqual([])
    const why = await api('GET why/acme', { token })
    expect(why.body).toMatchObject({ caller: 'acme', kind: 'consumer', state: 'admitted', plan: 'free' })
    expect(why.body.rules.map(({ rule }: { rule: string }) => rule)).toEqual(['minute', 'day', 'queue'])
    expect((await api('GET why/192.0.2.7', { token })).body.kind).toBe('address')
    const { id, key } = await create({ consumer: 'acme' })
    expect((await api(`GET why/${encodeURIComponent(id)}`, { token })).body).toMatchObject({
      kind: 'key',
      caller: id,
    })
    const secret = await api(`GET why/${key}`, { token })
    expect(secret).toMatchObject({ status: 400, body: { errors: [{ pointer: '{caller}' }] } })
    expect(JSON.stringify(secret.body)).not.toContain(key)
  })

  describe('tokens', () => {
    const support = { name: 'support', scopes: ['consumers:block'], expiresAt: '30d' }

    it('are made by tokens with the same scopes, and end when they are revoked', async () => {
      const made = await api('POST tokens', { token, body: support })
      expect(made).toMatchObject({
        status: 201,
        body: { name: 'support', by: 'backend', scopes: support.scopes },
      })
      const { token: own, id } = made.body
      expect((await api('PUT consumers/acme/block', { token: own, body: {} })).status).toBe(200)
      expect((await api('PATCH consumers/acme', { token: own, body: { plan: 'pro' } })).status).toBe(403)
      const shown = await api(`GET tokens/${id}`, { token })
      expect(JSON.stringify(shown.body)).not.toContain(own)
      expect((await api('GET tokens', { token })).body.items).toHaveLength(2)
      expect((await api(`DELETE tokens/${id}`, { token })).body).toEqual({ id, revoked: true })
      // This isolate forgets it at once.
      expect((await api('GET consumers', { token: own })).status).toBe(401)
      expect((await api(`GET tokens/${id}`, { token })).status).toBe(404)
    })

    it('change nothing once they are revoked, also where an isolate has checked them within the last second', async () => {
      const { send } = gateway.redis.connection
      // Isolates write statistics in the background.
      const keys = async () =>
        ((await send(['KEYS', '*'])) as Buffer[])
          .map(String)
          .filter(key => !key.includes('{stats}'))
          .sort()
      const { body: key } = await api('POST keys', { token, body: { consumer: 'acme' } })
      const { body: made } = await api('POST tokens', { token, body: support })
      const record = `sluice:{t:${sha256(token)}}`
      const text = String(await send(['GET', record]))
      await send(['DEL', 'sluice:{audit}'])
      const before = await keys()
      const headers = { 'idempotency-key': 'a' }
      for (const [what, body] of [
        ['POST keys', { consumer: 'other' }],
        ['POST keys/import', { consumer: 'other', sha256: sha256('x') }],
        [`POST keys/${key.id}/rotate`, {}],
        [`DELETE keys/${key.id}`, undefined],
        ['POST tokens', support],
        [`POST tokens/${made.id}/rotate`, { overlap: '0s' }],
        [`DELETE tokens/${made.id}`, undefined],
        ['PUT consumers/new/block', {}],
        ['PUT consumers/new/overrides/day', { limit: 5 }],
        ['PUT switches/day', { mode: 'off' }],
        ['DELETE consumers/acme', undefined],
      ] as const) {
        // It has checked the token before the revocation.
        const isolate = apiOf(gateway, CONFIG, { clock: { now: () => 0 } })
        await send(['SET', record, text])
        expect((await isolate('GET stats', { token })).status).toBe(200)
        await send(['DEL', record])
        const reply = await isolate(what, { token, body, headers })
        expect([what, reply.status, reply.body.type]).toEqual([
          what,
          401,
          'urn:sluice:problem:unauthenticated',
        ])
        expect([what, (await isolate('GET stats', { token })).status]).toEqual([what, 401])
      }
      // An import begins with the pointer, which another import replaces as long as no key belongs to it.
      await send(['DEL', `sluice:{k:${sha256('x')}}`])
      expect(await keys()).toEqual(before.filter(name => name !== record))
      expect(String(await send(['ZRANGE', 'sluice:{consumers}:names', '0', '-1']))).toBe('acme')
    })

    it('are rotated, with an overlap', async () => {
      const { id, token: old } = (await api('POST tokens', { token, body: support })).body
      const rotated = await api(`POST tokens/${id}/rotate`, { token, body: { overlap: '1h' } })
      expect(rotated).toMatchObject({ status: 201, body: { scopes: support.scopes, replaces: { id } } })
      for (const each of [old, rotated.body.token])
        expect((await api('GET consumers', { token: each })).status).toBe(200)
      expect((await api(`POST tokens/${id}/rotate`, { token, body: {} })).status).toBe(422)
    })

    it('have no scope that their maker lacks, and end no later', async () => {
      const maker = await tokenWith(gateway, ['tokens:write', 'stats:read'], {
        expiresAt: new Date(Date.now() + 86_400e3),
      })
      const post = (body: object) => api('POST tokens', { token: maker, body: { name: 'x', ...body } })
      expect((await post({ scopes: ['stats:read'], expiresAt: '1h' })).status).toBe(201)
      expect((await post({ scopes: ['stats:read'] })).status).toBe(403)
      expect((await post({ scopes: ['stats:read'], expiresAt: '2d' })).status).toBe(403)
      expect((await post({ scopes: ['keys:write'], expiresAt: '1h' })).status).toBe(403)
      const none = await post({ scopes: ['stats:read', 'everything'], expiresAt: '1h' })
      expect(none).toMatchObject({ status: 400, body: { errors: [{ pointer: '/scopes/1' }] } })
      const stronger = (await api('POST tokens', { token, body: support })).body.id
      expect((await api(`DELETE tokens/${stronger}`, { token: maker })).status).toBe(403)
      expect((await api(`POST tokens/${stronger}/rotate`, { token: maker, body: {} })).status).toBe(403)
    })

    it('are made once for an Idempotency-Key, and a refusal does not use it up', async () => {
      const headers = { 'idempotency-key': 'deploy' }
      const many = { ...support, scopes: ['audit:read'] }
      expect((await api('POST tokens', { token, headers, body: many })).status).toBe(403)
      const { id } = (await api('POST tokens', { token, headers, body: support })).body
      const again = await api('POST tokens', { token, headers, body: support })
      expect(again).toMatchObject({ status: 409, body: { id } })
    })
  })

  it('a secret that is pasted into a name or a reason is refused, and stored nowhere', async () => {
    const { key } = await create({ consumer: 'acme' })
    for (const secret of [key, token]) {
      const replies = [
        await api('POST keys', { token, body: { consumer: secret } }),
        await api('POST keys', { token, body: { consumer: 'acme', label: secret } }),
        await api(`PUT consumers/${secret}/block`, { token, body: {} }),
        await api('PUT consumers/acme/block', { token, body: { reason: `leaked: ${secret}` } }),
        await api('PUT consumers/acme/block', { token, headers: { 'sluice-reason': secret }, body: {} }),
        await api('POST tokens', { token, body: { name: secret, scopes: ['stats:read'], expiresAt: '1d' } }),
      ]
      expect(replies.map(({ status }) => status)).toEqual(replies.map(() => 400))
      expect(JSON.stringify(replies.map(({ body }) => body))).not.toContain(secret)
      const keys = String(await gateway.redis.connection.send(['KEYS', '*']))
      const audit = String(await gateway.redis.connection.send(['XRANGE', 'sluice:{audit}', '-', '+']))
      expect(keys + audit).not.toContain(secret)
    }
  })

  it('the cursor of a list is refused by every other list', async () => {
    const reader = await tokenWith(gateway, [...ALL, 'audit:read'])
    for (const consumer of ['acme', 'beta']) await create({ consumer })
    const lists = ['consumers', 'keys', 'tokens', 'audit']
    for (const from of lists) {
      const { cursor } = (await api(`GET ${from}?limit=1`, { token: reader })).body
      for (const to of lists) {
        const { status, body } = await api(`GET ${to}?limit=1&cursor=${cursor}`, { token: reader })
        expect([from, to, status]).toEqual([from, to, from === to ? 200 : 400])
        if (from !== to) expect(body.errors).toMatchObject([{ pointer: '?cursor' }])
      }
    }
  })

  it('the reason of a change comes from a header', async () => {
    const headers = { 'sluice-reason': 'ticket 7' }
    expect((await api('PUT consumers/acme/block', { token, headers, body: {} })).body.reason).toBe('ticket 7')
    const bad = await api('PUT consumers/acme/block', {
      token,
      headers: { 'sluice-reason': 'x'.repeat(101) },
      body: {},
    })
    expect(bad).toMatchObject({ status: 400, body: { errors: [{ pointer: 'Sluice-Reason' }] } })
  })
})
