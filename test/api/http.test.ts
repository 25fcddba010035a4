/** What holds for every request to the API: bounds, problems, headers, environments, and a store that fails. */
import { readFileSync } from 'node:fs'
import { gzipSync } from 'node:zlib'
import { beforeEach, describe, expect, it, vi } from 'vitest'
import { documentText, wholeDocument, withApiTables } from '../../docs/programs/api/make-openapi.ts'
import type { ApiRoutes, ConfigInput } from '../../src/config/check/schema.ts'
import { findToken, revokeToken } from '../../src/ops/tokens.ts'
import { api as apiParts } from '../../src/set-ups/api/index.ts'
import { openApiDocument } from '../../src/set-ups/api/openapi.ts'
import { API_OPERATIONS } from '../../src/set-ups/api/openapi-operations.ts'
import { PROBLEMS, problemType } from '../../src/set-ups/api/problems.ts'
import { MAX_BODY } from '../../src/set-ups/api/read-body.ts'
import { API_ROUTES, ROUTES } from '../../src/set-ups/api/routes.ts'
import { gateway as createWholeWorker } from '../../src/set-ups/gateway/whole-worker.ts'
import { type ApiCall, apiOf, EVERY_ROUTE, tokenWith } from '../support/api.ts'
import { TOKEN, useGateway } from '../support/gateway.ts'

const read = (path: string) => readFileSync(new URL(path, import.meta.url), 'utf8')
const SCOPES = [
  'keys:write',
  'consumers:block',
  'consumers:write',
  'overrides:write',
  'switches:write',
  'stats:read',
]
const RESERVING = ['limits/{name}/reserve', 'limits/{name}/settle']
const HOLDING = ['limits/{name}/renew', 'limits/{name}/release']
const WHY_LEFT_OUT: [string[], string][] = [
  [['keys/import'], 'keys/import needs credentials.opaqueKeys'],
  [RESERVING, 'reserve and settle need a limit with a unit'],
  [HOLDING, 'renew and release one with concurrency'],
]
const {
  units,
  limits: { sms, llm, jobs },
} = EVERY_ROUTE
const OF_UNIT = {
  name: 'tokens',
  by: 'consumer',
  algorithm: 'gcra',
  limit: 900,
  period: '1m',
  unit: 'tokens',
} as const
const RULES = [{ name: 'minute', by: 'consumer', algorithm: 'gcra', limit: 60, period: '1m' }] as const

describe('the API', () => {
  const gateway = useGateway()
  let api: ApiCall
  let token: string

  beforeEach(async () => {
    api = apiOf(gateway, { rules: [...RULES] })
    token = await tokenWith(gateway, SCOPES)
  })

  it('serves the usual parts, unless the config names others', async () => {
    const usual = apiOf(gateway, { api: {} })
    expect((await usual('GET keys', { token })).status).toBe(200)
    for (const path of ['stats', 'why/acme', 'openapi.json'])
      expect((await usual(`GET ${path}`, { token })).body.detail).toContain('api.routes')
  })

  it('does not exist without the setting', async () => {
    const app = gateway.app({ rules: [] })
    expect((await app('/_sluice/v1/openapi.json')).status).toBe(404)
    expect(gateway.origin.received).toEqual([])
  })

  it('is no part of what callers of the gateway spend', async () => {
    await api('GET consumers', { token })
    expect(gateway.origin.received).toEqual([])
  })

  it('serves its document', async () => {
    const { body, headers } = await apiOf(gateway, EVERY_ROUTE)('GET openapi.json')
    expect(body).toEqual(JSON.parse(documentText()))
    expect(headers.get('cache-control')).toBe('no-store')
  })

  it('serves a document of the parts that are served', async () => {
    const some = apiOf(gateway, { api: { routes: ['openapi', 'stats'] } })
    const { body } = await some('GET openapi.json')
    expect(Object.keys(body.paths)).toEqual(['/openapi.json', '/stats', '/stats/top'])
  })

  const OF_LIMITS = Object.keys(wholeDocument().paths).flatMap(
    path => /^\/(limits\/.*)/.exec(path)?.[1] ?? [],
  )

  it.each<[string, Partial<ConfigInput>, string[]]>([
    ['nothing', { credentials: {} }, ['keys/import', ...OF_LIMITS]],
    ['imported keys', { credentials: { opaqueKeys: {} } }, OF_LIMITS],
    ['limits of requests', { limits: { sms } }, ['keys/import', ...RESERVING, ...HOLDING]],
    ['limits of a unit', { units, limits: { sms, llm } }, ['keys/import', ...HOLDING]],
    ['limits in flight', { limits: { sms, jobs } }, ['keys/import', ...RESERVING]],
    ['rules of a unit', { units, rules: [...RULES, OF_UNIT] }, ['keys/import', ...OF_LIMITS]],
    ['all of it', EVERY_ROUTE, []],
  ])('serves the routes that its config needs, and the document lists them: %s', async (_, config, left) => {
    const some = apiOf(gateway, config)
    const { body } = await some('GET openapi.json')
    expect(
      Object.keys(wholeDocument().paths)
        .filter(path => !Object.hasOwn(body.paths, path))
        .sort(),
    ).toEqual(left.map(path => `/${path}`).sort())
    const limits = await tokenWith(gateway, [...SCOPES, 'limits:use'])
    for (const path of ['keys/import', ...RESERVING, ...HOLDING]) {
      const reply = await some(`POST ${path.replace('{name}', 'sms')}`, { token: limits, body: {} })
      const why = WHY_LEFT_OUT.find(([paths]) => paths.includes(path))![1]
      if (left.includes(path))
        expect(reply).toMatchObject({ status: 404, body: { detail: expect.stringContaining(why) } })
      else expect(reply.status).toBe(400)
    }
  })

  it.each([
    ['GET none', 404],
    ['GET keys/acme', 404],
    ['GET keys/', 404],
    ['GET keys/%E0%A4%A/abcd', 404],
    ['PUT keys', 405],
    ['OPTIONS keys', 405],
    ['DELETE openapi.json', 405],
  ])('%s: %i', async (what, status) => {
    const reply = await api(what, { token })
    expect(reply.status).toBe(status)
    if (status === 405) expect(reply.headers.get('allow')).toMatch(/^(GET|GET, POST)$/)
  })

  it.each([
    ['no token', {}, 'Bearer realm="sluice"'],
    ['another scheme', { headers: { authorization: 'Basic abc' } }, 'Bearer realm="sluice"'],
    ['a token without a right checksum', { token: `slt_${'a'.repeat(49)}` }, 'invalid_token'],
    ['an API key', { token: 'slk_acme_aaaa' }, 'invalid_token'],
    ['the token of the store', { token: TOKEN.replaceAll(' ', '') }, 'invalid_token'],
  ])('refuses %s without a trip', async (_, init, challenge) => {
    gateway.store.count()
    const reply = await api('GET consumers', init)
    expect(reply.status).toBe(401)
    expect(reply.headers.get('www-authenticate')).toContain(challenge)
    expect(gateway.store.count()).toBe(0)
  })

  it.each(['sms%00', 'sms%0A', 'sms%22', '%F0%9F%98%80', 'sms%2Cday'])(
    'repeats no name such as %s in a header, because no limit can have it',
    async name => {
      const user = await tokenWith(gateway, ['limits:use:sms'])
      const withLimits = apiOf(gateway, { limits: { sms } })
      for (const verb of ['', '/peek', '/pause']) {
        const reply = await withLimits(`POST limits/${name}${verb}`, { token: user, body: {} })
        expect(reply).toMatchObject({ status: 403, body: { scope: 'limits:use' } })
        expect(reply.headers.get('www-authenticate')).toMatch(/ scope="limits:use"$/)
      }
    },
  )

  it('refuses blocked addresses', async () => {
    const other = apiOf(gateway, { rules: [], block: { addresses: ['192.0.2.0/24'] } })
    for (const what of ['GET consumers', 'GET usage'])
      expect((await other(what, { token, address: '192.0.2.7' })).status).toBe(403)
    expect((await other('GET consumers', { token, address: '198.51.100.7' })).status).toBe(200)
  })

  it('refuses a token of another environment', async () => {
    const other = apiOf(gateway, { rules: [], environment: 'test' })
    expect((await other('GET consumers', { token })).status).toBe(401)
    const own = await tokenWith(gateway, SCOPES, { environment: 'test' })
    expect((await other('GET consumers', { token: own })).status).toBe(200)
    expect((await api('GET consumers', { token: own })).status).toBe(401)
  })

  it('changes only its own environment', async () => {
    const own = await tokenWith(gateway, SCOPES, { environment: 'test' })
    const other = apiOf(gateway, { rules: [...RULES], environment: 'test' })
    const { body } = await other('POST keys', { token: own, body: { consumer: 'acme' } })
    expect(body.key).toMatch(/^slk_test_acme_/)
    await other('PUT consumers/acme/overrides/minute', { token: own, body: { limit: 5 } })
    await other('PUT switches/minute', { token: own, body: { mode: 'off' } })
    const keys = (await gateway.redis.connection.send(['KEYS', '*'])) as Buffer[]
    const changed = keys.map(String).filter(key => !key.includes('{t') && !key.includes('{tokens}'))
    expect(changed.length).toBeGreaterThan(3)
    for (const key of changed) expect(key).toMatch(/^sluice:test:/)
    expect((await api('GET consumers', { token })).body.items).toEqual([])
  })

  it.each(['acme}:state', '../acme', 'acme%00', '{consumers}', 'test:acme', 'a b', '*'])(
    'takes no name such as %j into a key of the store',
    async name => {
      const before = await gateway.redis.connection.send(['KEYS', '*'])
      const path = encodeURIComponent(name)
      for (const what of ['PUT consumers/:/block', 'PUT consumers/:/overrides/minute'])
        expect((await api(what.replace(':', path), { token, body: { limit: 5 } })).status).toBe(400)
      expect((await api(`GET keys/${path}/abcd`, { token })).status).toBe(400)
      expect((await api('POST keys', { token, body: { consumer: name } })).status).toBe(400)
      expect((await gateway.redis.connection.send(['KEYS', '*'])) as unknown[]).toEqual(before)
    },
  )

  describe('bodies', () => {
    const post = (init: object) => api('POST keys', { token, ...init })

    it.each([
      ['no type', { 'content-type': '' }, 415],
      ['a form', { 'content-type': 'application/x-www-form-urlencoded' }, 415],
      ['text', { 'content-type': 'text/plain' }, 415],
      ['another charset', { 'content-type': 'application/json; charset=latin1' }, 415],
      ['UTF-8', { 'content-type': 'application/json; charset=utf-8' }, 201],
    ])('with %s', async (_, headers, status) => {
      expect((await post({ text: '{"consumer":"acme"}', headers })).status).toBe(status)
    })

    it.each(['gzip', 'br', 'x'])('in the coding %s get a 415 that says so', async coding => {
      const text = gzipSync('{"consumer":"acme"}') as unknown as string
      for (const body of [text, '{"consumer":"acme"}']) {
        const reply = await post({ text: body, headers: { 'content-encoding': coding } })
        expect(reply).toMatchObject({ status: 415, body: { type: problemType('not-json') } })
        expect(reply.body.detail).toContain('Content-Encoding')
        expect(reply.headers.get('accept-encoding')).toBe('identity')
      }
    })

    it.each([
      ['', 'The body is not JSON. Send an object, such as {}.'],
      ['{', 'The body is not JSON. Send an object, such as {}.'],
      ['{"consumer":"a","consumer":"b"}', 'The body has the member "consumer" twice. Send it once.'],
      ['{"consumer":"a","c\\u006fnsumer":"b"}', 'The body has the member "consumer" twice. Send it once.'],
    ])('that are %j are refused', async (text, detail) => {
      expect((await post({ text })).body.errors).toEqual([{ pointer: '', detail }])
    })

    it('of 64 kB are read, and of more are not, whatever their headers say', async () => {
      const text = (length: number) => `{"consumer":"acme"${' '.repeat(length - 19)}}`
      expect((await post({ text: text(MAX_BODY) })).status).toBe(201)
      expect((await post({ text: text(MAX_BODY + 1) })).status).toBe(413)
      let pulled = 0
      const app = gateway.app(
        { rules: [], api: { routes: 'all' } },
        {
          variables: { UPSTASH_REDIS_REST_URL: gateway.store.url, UPSTASH_REDIS_REST_TOKEN: TOKEN },
          parts: apiParts as never,
        },
      )
      const endless = new ReadableStream({
        pull(controller) {
          pulled += 1
          controller.enqueue(new Uint8Array(10_000).fill(32))
        },
      })
      const init = {
        method: 'POST',
        body: endless,
        duplex: 'half',
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      }
      expect((await app('/_sluice/v1/keys', init as RequestInit)).status).toBe(413)
      expect(pulled).toBeLessThan(12)
    })

    it('that end after the token was revoked change nothing', async () => {
      let seconds = 0
      const variables = { UPSTASH_REDIS_REST_URL: gateway.store.url, UPSTASH_REDIS_REST_TOKEN: TOKEN }
      const app = gateway.app(
        { rules: [], api: { routes: 'all' } },
        { variables, parts: apiParts as never, clock: { now: () => seconds * 1000 } },
      )
      const { readable, writable } = new TransformStream<Uint8Array>()
      const writer = writable.getWriter()
      const reply = app('/_sluice/v1/consumers/acme/block', {
        method: 'PUT',
        body: readable,
        duplex: 'half',
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      } as RequestInit)
      // The body is read only once the token was checked.
      await writer.write(new TextEncoder().encode('{'))
      await revokeToken(gateway.admin, await findToken(gateway.admin, token))
      seconds = 2
      await writer.write(new TextEncoder().encode('}'))
      await writer.close()
      expect((await reply).status).toBe(401)
      expect(await gateway.redis.connection.send(['KEYS', '*acme*'])).toEqual([])
    })

    it('have no unknown members, and name each mistake', async () => {
      const { body } = await post({ body: { consumer: 5, plans: 'x', mode: 'no', label: '' } })
      expect(body.errors).toEqual([
        { pointer: '/consumer', detail: 'Wrong type or value. Use string.' },
        { pointer: '/label', detail: 'Too short. The least length is 1.' },
        { pointer: '/mode', detail: 'Wrong type or value. Use "live" or "test".' },
        { pointer: '/plans', detail: 'Unknown member. Leave it out.' },
      ])
    })
  })

  it.each([
    ['GET keys?limit=0', '?limit'],
    ['GET keys?limit=101', '?limit'],
    ['GET keys?cursor=abc', '?cursor'],
    ['GET keys?page=2', '?page'],
    ['GET keys?limit=2&limit=3', '?limit'],
    ['GET consumers/acme?limit=2', '?limit'],
  ])('%s names %s', async (what, pointer) => {
    expect((await api(what, { token })).body.errors[0].pointer).toBe(pointer)
  })

  describe('for web pages', () => {
    const origin = { origin: 'https://admin.example.com' }

    it('answers no preflight, and lets no page read a reply', async () => {
      const { headers, status } = await api('GET consumers', { token, headers: origin })
      expect([status, headers.get('access-control-allow-origin')]).toEqual([200, null])
      expect((await api('OPTIONS consumers', { headers: origin })).status).toBe(405)
    })

    it('does both for the pages that are named', async () => {
      const open = gateway.app(
        { rules: [], api: { cors: { origins: ['https://admin.example.com'] } } },
        {
          variables: { UPSTASH_REDIS_REST_URL: gateway.store.url, UPSTASH_REDIS_REST_TOKEN: TOKEN },
          parts: apiParts as never,
        },
      )
      const asked = {
        ...origin,
        'access-control-request-method': 'PUT',
        'access-control-request-headers': 'authorization',
      }
      const preflight = await open('/_sluice/v1/consumers', { method: 'OPTIONS', headers: asked })
      expect(preflight.status).toBe(204)
      expect(preflight.headers.get('access-control-allow-headers')).toBe('authorization')
      const reply = await open('/_sluice/v1/consumers', {
        headers: { ...origin, authorization: `Bearer ${token}` },
      })
      expect(reply.headers.get('access-control-allow-origin')).toBe('https://admin.example.com')
      const other = await open('/_sluice/v1/consumers', {
        headers: { origin: 'https://evil.example', authorization: `Bearer ${token}` },
      })
      expect(other.headers.get('access-control-allow-origin')).toBeNull()
    })
  })

  describe('while the store', () => {
    const CHANGES = [
      ['POST keys', { consumer: 'acme' }],
      ['PATCH consumers/acme', { plan: 'free' }],
      ['PUT consumers/acme/block', {}],
      ['PUT consumers/acme/overrides/minute', { limit: 5 }],
      ['PUT switches/minute', { mode: 'off' }],
      ['DELETE consumers/acme', undefined],
      ['GET consumers', undefined],
      ['GET stats', undefined],
    ] as const

    it.each(CHANGES)('is away, %s says that nothing was changed', async (what, body) => {
      gateway.store.fault = (_, response) => void response.destroy()
      const reply = await api(what, { token, body })
      expect(reply).toMatchObject({
        status: 503,
        body: { type: problemType('store-unavailable'), change: 'none' },
      })
      expect(reply.headers.get('retry-after')).toBe('1')
      expect(JSON.stringify(reply.body)).not.toContain(gateway.store.url.slice(7))
    })

    it.each(['GET audit', 'GET tokens', 'GET consumers'])('is away, %s changes nothing', async what => {
      const reader = await tokenWith(gateway, ['audit:read', 'tokens:write', 'consumers:block'])
      await api(what, { token: reader })
      gateway.store.fault = (_, response) => void response.destroy()
      expect((await api(what, { token: reader })).body).toMatchObject({ status: 503, change: 'none' })
    })

    it.each(CHANGES)('lies, %s is a 503', async (what, body) => {
      await api('GET consumers', { token })
      gateway.store.fault = (_, response) => void response.end('{"result":{"a":1}}')
      expect((await api(what, { token, body })).status).toBe(503)
      gateway.store.fault = (_, response) => void response.end('<html>')
      expect((await api(what, { token, body })).status).toBe(503)
    })

    it.each([...CHANGES, ['GET audit', undefined], ['GET tokens', undefined]] as const)(
      'replies with something else, %s is no success and no 500',
      async (what, body) => {
        const all = await tokenWith(gateway, [...SCOPES, 'audit:read', 'tokens:write'])
        await api('GET consumers', { token: all })
        for (const result of ['null', '"OK"', '["a","b"]', '[null,null]', '[[null,null]]']) {
          gateway.store.fault = (_, response) => void response.end(`{"result":${result}}`)
          const { status } = await api(what, { token: all, body })
          if (body) expect([what, result, status]).toEqual([what, result, 503])
          else expect([what, result, status]).not.toContain(500)
        }
      },
    )

    it.each([0, 1, 2])(
      'loses the reply to request %i of a change, the reply says so, or it was made',
      async lost => {
        await api('GET consumers', { token })
        let requests = 0
        gateway.store.fault = (_, __, passOn) => {
          if (requests++ !== lost) return passOn()
          passOn((_answer, to) => void to.destroy())
        }
        const reply = await api('PUT consumers/acme/block', { token, body: { reason: 'x' } })
        gateway.store.fault = undefined
        const { status, body } = await api('GET consumers/acme', { token })
        const isBlocked = status === 200 && body.blockedAt !== null
        if (reply.status === 200) expect(isBlocked).toBe(true)
        else expect(reply).toMatchObject({ status: 503, body: { change: lost < 2 ? 'none' : 'unknown' } })
        if (reply.status === 503 && reply.body.change === 'none') expect(isBlocked).toBe(false)
      },
    )

    it('loses the reply to the creation of a key, the key can be found by the id of its Idempotency-Key', async () => {
      await api('GET consumers', { token })
      const headers = { 'idempotency-key': 'a' }
      gateway.store.fault = (incoming, _, passOn) => {
        let sent = ''
        incoming.on('data', chunk => {
          sent += chunk
        })
        passOn((answer, to) => {
          // The key has been written.
          if (sent.includes('keys.create')) to.destroy()
          else answer.pipe(to)
        })
      }
      const reply = await api('POST keys', { token, headers, body: { consumer: 'acme' } })
      gateway.store.fault = undefined
      expect(reply).toMatchObject({ status: 503, body: { change: 'unknown' } })
      const again = await api('POST keys', { token, headers, body: { consumer: 'acme' } })
      expect(again.status).toBe(409)
      expect((await api(`GET keys/${again.body.id}`, { token })).status).toBe(200)
    })
  })

  it('replies 503 if the store is too slow', async () => {
    const impatient = apiOf(gateway, { rules: [], store: { deadline: '20ms' } })
    gateway.store.fault = () => {}
    const reply = await impatient('GET consumers', { token })
    expect(reply).toMatchObject({
      status: 503,
      body: { detail: expect.stringContaining('within the deadline') },
    })
  })

  it('is a part of a gateway without a build that has to be passed in', async () => {
    expect(() => createWholeWorker({ origin: 'route', api: {} })).toThrow(
      "import { api } from 'sluicegate/api'",
    )
    const worker = createWholeWorker({ origin: 'route', api: { routes: ['openapi'] } }, apiParts)
    const env = { UPSTASH_REDIS_REST_URL: gateway.store.url, UPSTASH_REDIS_REST_TOKEN: TOKEN }
    const get = async (path: string) =>
      (await worker.fetch(new Request(`https://a.test/_sluice/v1/${path}`), env, { waitUntil: () => {} }))
        .status
    expect([await get('openapi.json'), await get('keys')]).toEqual([200, 404])
  })

  it('replies 500 without details to an exception, and logs it', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const connection = { runEach: () => Promise.reject(new Error('secret')) } as never
    const broken = apiOf(gateway, { rules: [] }, { connection } as never)
    const reply = await broken('GET consumers', { token })
    expect(reply.status).toBe(500)
    expect(JSON.stringify(reply.body)).not.toContain('secret')
    expect(log).toHaveBeenCalledOnce()
  })
})

describe('the OpenAPI document', () => {
  it('is the one that npm run reference makes', () => {
    expect(
      read('../../docs/openapi.json') === documentText(),
      'docs/openapi.json is stale: npm run reference',
    ).toBe(true)
  })

  it('has the version of the package', () => {
    const { version } = JSON.parse(read('../../package.json')) as { version: string }
    expect(openApiDocument([], []).info.version).toBe(version)
  })

  it('and the page have the same tables', () => {
    const page = read('../../docs/api-reference.md')
    expect(page === withApiTables(page), 'docs/api-reference.md is stale: npm run reference').toBe(true)
  })

  it('has each route once, and no other operation', () => {
    for (const [part, routes] of Object.entries(API_ROUTES))
      expect([part, ...Object.keys(API_OPERATIONS[part as ApiRoutes].operations).sort()]).toEqual([
        part,
        ...routes.map(({ method, path }) => `${method} ${path}`).sort(),
      ])
    expect(new Set(ROUTES.map(({ method, path }) => `${method} ${path}`)).size).toBe(ROUTES.length)
  })

  it.each(Object.keys(API_ROUTES) as ApiRoutes[])('can be made for %s alone', part => {
    const { components, paths } = openApiDocument(API_ROUTES[part], [API_OPERATIONS[part]])
    const text = JSON.stringify({ paths, components })
    // All that is there is referred to: another tool would warn.
    for (const kind of ['schemas', 'parameters', 'responses'] as const)
      for (const name of Object.keys(components[kind]))
        expect(text).toContain(`"#/components/${kind}/${name}"`)
  })

  it('has a description for each status', () => {
    const { responses } = wholeDocument().components
    const statuses = Object.values(PROBLEMS).map(({ status }) => String(status))
    expect(Object.keys(responses).sort()).toEqual(
      [...new Set(statuses)].filter(status => status !== '405').sort(),
    )
  })
})
