/** Logs, replies and requests to the origin contain no secret, whatever fails. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { applyVariables } from '../../src/config/environment.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { jwt } from '../../src/credentials/jwt.ts'
import { createApp, type Platform } from '../../src/set-ups/gateway/app.ts'
import { ALL_PARTS } from '../../src/set-ups/http/all-parts.ts'
import { sha256 } from '../../src/sha256.ts'
import { credentialKey, pointerKey } from '../../src/store/keys.ts'
import type { Store } from '../../src/store/store.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { configOf, credentialOf } from '../support/engines.ts'
import { type TestGateway, useGateway } from '../support/gateway.ts'
import { type KeyServer, sign, signingKey, startKeyServer } from '../support/key-server.ts'

const STORE_TOKEN = 'a token for tests'
const JWT_SECRET = 'a secret of the tests, of 32 bytes and some more'
const OPAQUE = 'an-old-partner-key-4711'

const gateway = useGateway()
let issuer: KeyServer
let apiKey: string
let tokens: { internal: string; published: string }
/** All secrets, and the parts that identify or reveal them. */
let secrets: string[]

beforeAll(async () => {
  const signer = await signingKey('ES256', 'one')
  issuer = await startKeyServer(signer.jwk)
  const claims = { aud: 'api', sub: 'sub-that-is-secret', exp: Math.floor(Date.now() / 1e3) + 300 }
  const privateKey = new TextEncoder().encode(JWT_SECRET)
  tokens = {
    internal: await sign({ iss: 'internal', ...claims }, { kid: 'x', alg: 'HS256', privateKey }),
    published: await sign({ iss: 'published', ...claims }, signer),
  }
})
afterAll(() => issuer?.close())

const LEVELS = ['log', 'info', 'debug', 'warn', 'error', 'trace'] as const
let lines: string[]
beforeEach(async () => {
  lines = []
  for (const level of LEVELS) {
    vi.spyOn(console, level).mockImplementation((...args) => void lines.push(args.map(String).join(' ')))
  }
  apiKey = await gateway.key('acme')
  const digest = sha256(OPAQUE)
  await gateway.redis.connection.send(['SET', pointerKey(digest), 'partner'])
  await gateway.redis.connection.send(['SET', credentialKey('partner', digest), credentialOf()])
  const credentials = [apiKey, OPAQUE, ...Object.values(tokens)]
  secrets = [
    ...[STORE_TOKEN, JWT_SECRET, ...credentials, ...(await Promise.all(credentials.map(sha256)))],
    // The secret parts of keys and tokens, and the prefix of every key of the store.
    ...[apiKey.slice(-36), ...Object.values(tokens).flatMap(token => token.split('.').slice(1)), 'sluice:{'],
  ]
})
afterEach(() => vi.restoreAllMocks())

const config = (): Partial<ConfigInput> & Pick<ConfigInput, 'rules'> => ({
  // Every possible log line.
  log: { perSecond: 1000 },
  rules: [
    { name: 'consumer', by: 'consumer', algorithm: 'gcra', limit: 100, period: '1d' },
    { name: 'few', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1d', match: { path: '/few' } },
    { name: 'guesses', by: 'address', on: 'auth-failure', algorithm: 'gcra', limit: 100, period: '1d' },
  ],
  credentials: {
    opaqueKeys: {},
    jwt: {
      internal: jwt({ secret: 'JWT_SECRET', algorithms: ['HS256'], issuer: 'internal', audience: 'api' }),
      published: jwt({ jwks: issuer.url, algorithms: ['ES256'], issuer: 'published', audience: 'api' }),
    },
    accept: ['api-key', 'internal', 'published', 'opaque-key'],
  },
})

/** The deadline in tests that wait until it is over. In other tests, a busy machine would exceed it. */
const SHORT_MS = 100
const LONG_MS = 5000

const storeWithin = (deadlineMs: number) =>
  upstashStore({ url: gateway.store.url, token: STORE_TOKEN, deadlineMs, keyLocking: true })

interface Asking extends Platform {
  store?: Store
  /** Default: one credential of each kind. */
  credentials?: string[]
  originDeadlineMs?: number
}

/** Sends a request with each credential, in each header. Returns the replies as text. */
async function askAll(path: string, asking: Asking = {}) {
  const { store = storeWithin(LONG_MS), credentials, originDeadlineMs = LONG_MS, ...platform } = asking
  const app = createApp(
    { ...configOf(config()), origin: gateway.origin.url, originDeadlineMs },
    store,
    ALL_PARTS,
    {
      variables: { JWT_SECRET, UPSTASH_REDIS_REST_TOKEN: STORE_TOKEN },
      ...platform,
    },
  )
  const sent = credentials ?? [apiKey, OPAQUE, ...Object.values(tokens)]
  const headersSent = sent.flatMap(text => [{ authorization: `Bearer ${text}` }, { 'x-api-key': text }])
  const replies = headersSent.map(async headers => {
    const response = await app.request(`http://gateway.test${path}`, { headers })
    return { status: response.status, text: JSON.stringify([...response.headers]) + (await response.text()) }
  })
  const all = await Promise.all(replies)
  return { replies: all.map(({ text }) => text), statuses: new Set(all.map(({ status }) => status)) }
}

function expectNoSecret(replies: readonly string[]): void {
  const received = gateway.origin.received.map(({ url, headers }) => JSON.stringify({ url, headers }))
  for (const [where, texts] of Object.entries({ lines, replies, received })) {
    for (const secret of secrets) expect(texts.join('\n'), where).not.toContain(secret)
  }
}

describe('no secret is revealed', () => {
  it('without any failure', async () => {
    const { replies, statuses } = await askAll('/few')
    expect([...statuses].sort()).toEqual([200, 401, 429])
    expect(gateway.origin.received.length).toBeGreaterThan(3)
    const events = lines.map(line => JSON.parse(line).event)
    expect(new Set(events)).toEqual(new Set(['refused', 'unknown-address']))
    expectNoSecret(replies)
  })

  const quoting =
    (status: number, error: (body: string) => string) =>
    (request: IncomingMessage, response: ServerResponse) => {
      const chunks: Buffer[] = []
      request.on('data', chunk => chunks.push(chunk))
      request.on('end', () => {
        const quoted = `${Buffer.concat(chunks)} ${JSON.stringify(request.headers)}`
        response.writeHead(status, { 'content-type': 'application/json' }).end(error(quoted))
      })
    }

  it.each<[string, TestGateway['store']['fault']]>([
    ['is down', (_, response) => void response.destroy()],
    ['hangs', () => {}],
    [
      'quotes the command in its error',
      quoting(400, text => JSON.stringify({ error: `ERR unknown command ${text}` })),
    ],
    ['begins its error with the command', quoting(400, text => JSON.stringify({ error: text }))],
    ['quotes the command in capitals', quoting(500, text => JSON.stringify({ error: text.toUpperCase() }))],
    ['quotes the command on a web page', quoting(502, text => `<html>${text}</html>`)],
    ['quotes the command in a reply', quoting(200, text => JSON.stringify({ result: [1, text, 1] }))],
    ['quotes the command instead of a reply', quoting(200, text => JSON.stringify({ result: text }))],
    ['refuses the token', quoting(401, text => JSON.stringify({ error: `WRONGPASS ${text}` }))],
  ])('when the store %s', async (name, fault) => {
    gateway.store.fault = fault
    const { replies } = await askAll('/', { store: storeWithin(name === 'hangs' ? SHORT_MS : LONG_MS) })
    expect(lines.length).toBeGreaterThan(3)
    expectNoSecret(replies)
  })

  it.each(['/drop', '/hang', '/error', '/hop'])('whatever the origin does at %s', async path => {
    const { replies } = await askAll(path, path === '/hang' ? { originDeadlineMs: SHORT_MS } : {})
    expectNoSecret(replies)
  })

  it.each<[string, (response: ServerResponse) => void]>([
    ['is down', response => void response.destroy()],
    ['answers nonsense', response => void response.end('nonsense')],
    ['answers an error', response => void response.writeHead(500).end(tokens.published)],
    ['redirects', response => void response.writeHead(302, { location: `/${tokens.published}` }).end()],
  ])('when an issuer %s', async (_, answer) => {
    const before = issuer.answer
    issuer.answer = answer
    const { replies, statuses } = await askAll('/')
    issuer.answer = before
    expect(statuses).toContain(503)
    expect(lines.join()).toContain('"event":"issuer"')
    expectNoSecret(replies)
  })

  it('when an error of the platform quotes secrets, in any step', async () => {
    const all = () => [apiKey, OPAQUE, STORE_TOKEN, tokens.internal].join('\n    at ')
    const failing: Store = {
      isCluster: false,
      run: async () => Promise.reject(new TypeError(`cannot send ${all()}`, { cause: all() })),
      ping: async () => Promise.reject(new TypeError(all())),
    }
    const first = await askAll('/', { store: failing })
    expect(lines.join()).toContain('TypeError')
    const second = await askAll('/', {
      peerOf: () => {
        throw new TypeError(`cannot read ${apiKey}\n${STORE_TOKEN}`)
      },
    })
    expect([...second.statuses]).toEqual([503])
    expect(lines.at(-1)).toMatch(/"cause":"internal","detail":"TypeError\\n +at .*secrets\.test\.ts/)
    const health = await createApp(configOf({ rules: config().rules }), failing, ALL_PARTS).request(
      'http://gateway.test/_sluice/health',
    )
    expectNoSecret([...first.replies, ...second.replies, await health.text()])
  })

  it('when a token is invalid in any way', async () => {
    const [head, body, signature] = tokens.internal.split('.')
    const credentials = [
      ...[`${head}.${body}.`, `${head}.${body}.AAAA`, `${head}..${signature}`, `.${body}.${signature}`],
      ...[
        `${body}.${head}.${signature}`,
        `${tokens.internal}.${signature}`,
        `${tokens.internal}, ${tokens.published}`,
      ],
    ]
    const { replies, statuses } = await askAll('/', { credentials })
    expect([...statuses]).toEqual([401])
    expectNoSecret(replies)
  })
})

describe('no secret is revealed by a mistake of the config', () => {
  const PASSWORD = 'hunter2-and-more'
  const messageOf = (work: () => unknown): string => {
    try {
      work()
    } catch (error) {
      return `${(error as Error).message} ${(error as Error).stack} ${JSON.stringify(error)}`
    }
    throw new Error('The work did not throw.')
  }

  it.each<[string, Record<string, unknown>]>([
    ['a password in the origin', { origin: `https://user:${PASSWORD}@origin.test` }],
    ['a password alone in the origin', { origin: `https://${PASSWORD}@origin.test` }],
    ['the token of the store', { store: { token: PASSWORD } }],
    ['a variable of the store', { UPSTASH_REDIS_REST_TOKEN: PASSWORD }],
    [
      'a secret in place of its name',
      { jwt: { x: jwt({ secret: PASSWORD, algorithms: ['HS256'], issuer: 'a', audience: 'b' }) } },
    ],
    [
      'a password in the address of keys',
      {
        jwt: {
          x: jwt({
            jwks: `https://user:${PASSWORD}@a.test/`,
            algorithms: ['ES256'],
            issuer: 'a',
            audience: 'b',
          }),
        },
      },
    ],
  ])('%s', (_, { jwt: methods, ...wrong }) => {
    const input = {
      origin: 'https://origin.test',
      rules: config().rules,
      ...(methods ? { credentials: { jwt: methods } } : {}),
      ...wrong,
    }
    expect(messageOf(() => checkedConfig(input))).not.toContain(PASSWORD)
  })

  it('a variable of the environment', () => {
    const good = configOf({ rules: config().rules })
    for (const name of ['UPSTASH_REDIS_REST_URL', 'ORIGIN_URL', 'SLUICE_ENVIRONMENT']) {
      const env = { UPSTASH_REDIS_REST_URL: 'http://a', UPSTASH_REDIS_REST_TOKEN: STORE_TOKEN }
      const message = messageOf(() =>
        applyVariables(good, { ...env, [name]: `redis://user:${PASSWORD}@host` }),
      )
      expect(message).not.toContain(PASSWORD)
      expect(message).not.toContain(STORE_TOKEN)
      expect(message).toContain(name)
    }
  })
})

it('a key of another environment is not revealed either', async () => {
  const foreign = mintApiKey('acme', 'slk_test_')
  const app = gateway.app({ rules: config().rules, environment: 'live' })
  for (const headers of [
    { 'x-api-key': foreign },
    { authorization: `Bearer ${foreign}` },
    { authorization: foreign },
  ]) {
    const response = await app('/', { headers })
    expect(response.status).toBe(401)
    expect(JSON.stringify([...response.headers]) + (await response.text())).not.toContain(foreign)
  }
  expect([lines, gateway.origin.received]).toEqual([[], []])
})
