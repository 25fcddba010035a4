/** Rules that count by a field of the request's body, such as the account that a login names. */
import { createHash } from 'node:crypto'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import {
  createKeySigner,
  KEY_SECRET,
  newKeySecret,
  readKeySecrets,
} from '../../src/credentials/key-signature.ts'
import { peekCaller, resetCaller } from '../../src/ops/limits.ts'
import { configOf } from '../support/engines.ts'
import { type App, useGateway } from '../support/gateway.ts'

const gateway = useGateway()
beforeEach(() => vi.spyOn(console, 'warn').mockImplementation(() => {}))
afterEach(() => vi.restoreAllMocks())

const VARIABLE = newKeySecret()
const variables = { [KEY_SECRET]: VARIABLE }

const RULE: RuleInput = {
  ...{ name: 'logins', by: 'field:email', match: { path: '/login' } },
  ...{ algorithm: 'fixed-window', limit: 1, period: '300d' },
}
const accept = { accept: ['anonymous'] }

const app = (rule: Partial<RuleInput> = {}): App =>
  gateway.app(
    { rules: [{ ...RULE, ...rule } as RuleInput], credentials: accept, stats: { keep: false } },
    { variables },
  )

const sha256Of = (text: string) => createHash('sha256').update(text).digest('hex')

const JSON_TYPE = 'application/json'
const FORM_TYPE = 'application/x-www-form-urlencoded'

async function login(
  send: App,
  body: string | Uint8Array<ArrayBuffer>,
  type = JSON_TYPE,
  more = {},
): Promise<number> {
  const reply = await send('/login', { method: 'POST', body, headers: { 'content-type': type, ...more } })
  await reply.body?.cancel()
  return reply.status
}

/** Whether two bodies are counted together: the second one is then above the limit of 1. */
async function areOne(a: [body: string, type?: string], b: [body: string, type?: string]): Promise<boolean> {
  await gateway.redis.connection.send(['FLUSHALL'])
  const send = app()
  expect(await login(send, ...a)).toBe(200)
  return (await login(send, ...b)) === 429
}

describe('a body with the field', () => {
  it('is counted by its value, and reaches the origin as it was sent', async () => {
    const send = app()
    const body = '{ "email": "ada@example.com", "password": "é" }'
    const reply = await send('/login', { method: 'POST', body, headers: { 'content-type': JSON_TYPE } })
    expect(await reply.json()).toMatchObject({ bodySha256: sha256Of(body) })
    expect(await login(send, body)).toBe(429)
    expect(await login(send, '{"email":"bob@example.com"}')).toBe(200)
  })

  it.each([
    ['another case', '{"email":" ADA@Example.com "}', JSON_TYPE],
    ['escapes', '{"em\\u0061il":"\\u0061da@example.com"}', JSON_TYPE],
    ['accents', '{"email":"àda@example.com"}', JSON_TYPE],
    ['wide letters', '{"email":"ａda@example.com"}', JSON_TYPE],
    ['invisible characters', '{"email":"a\\u200bda@example.com"}', JSON_TYPE],
    ['dots and a tag, as Gmail has them', '{"email":"a.da+2@example.com"}', JSON_TYPE],
    ['a form', 'password=x&email=ada%40example.com', FORM_TYPE],
    ['a type with parameters', 'email=ada%40example.com', `${FORM_TYPE}; charset=UTF-8`],
    ['another type of JSON', '{"email":"ada@example.com"}', 'application/vnd.api+json'],
  ])('is counted with the same value in %s', async (_, body, type) => {
    expect(await areOne(['{"email":"ada@example.com"}'], [body, type])).toBe(true)
  })

  it('is counted by a whole number as by its text', async () => {
    expect(await areOne(['{"email":42}'], ['{"email":"42"}'])).toBe(true)
    expect(await areOne(['{"email":42}'], ['{"email":43}'])).toBe(false)
  })

  it('is counted by itself in scripts whose letters databases tell apart', async () => {
    expect(await areOne(['{"email":"ольга"}'], ['{"email":"ОЛЬГА"}'])).toBe(true)
    expect(await areOne(['{"email":"ольга"}'], ['{"email":"мария"}'])).toBe(false)
    expect(await areOne(['{"email":"王芳"}'], ['{"email":"李伟"}'])).toBe(false)
  })

  it('leaves only a digest in the store, which no one without the secret can compute', async () => {
    await login(app(), '{"email":"ada@example.com"}')
    const keys = String(await gateway.redis.connection.send(['KEYS', '*']))
    expect(keys).toMatch(/\{x:field\.email=[0-9A-Za-z]{22}\}/)
    expect(keys).not.toContain('ada')
    await gateway.redis.connection.send(['FLUSHALL'])
    const other = gateway.app(
      { rules: [RULE], credentials: accept, stats: { keep: false } },
      { variables: { [KEY_SECRET]: newKeySecret() } },
    )
    await login(other, '{"email":"ada@example.com"}')
    expect(String(await gateway.redis.connection.send(['KEYS', '*']))).not.toBe(keys)
  })
})

describe('a body that an origin could read in another way', () => {
  const LARGE = `{"pad":"${'x'.repeat(8200)}","email":"decoy@example.com"}`
  it.each([
    ['has the field twice', '{"email":"decoy","email":"ada"}', JSON_TYPE],
    ['has the field in another case, too', '{"email":"decoy","Email":"ada"}', JSON_TYPE],
    ['has the field in another case only', '{"EMAIL":"ada"}', JSON_TYPE],
    ['has a list', '{"email":["ada"]}', JSON_TYPE],
    ['has a fraction', '{"email":4.5}', JSON_TYPE],
    ['has nothing but white space', '{"email":" "}', JSON_TYPE],
    ['is a list', '[{"email":"decoy"}]', JSON_TYPE],
    ['is not JSON', '{"email":"decoy",}', JSON_TYPE],
    ['is empty', '', JSON_TYPE],
    ['is larger than 8 kB', LARGE, JSON_TYPE],
    ['declares another charset', '{"email":"decoy"}', 'application/json; charset=utf-16'],
    ['has another type', '{"email":"decoy"}', 'text/plain'],
    ['is a form with the field twice', 'email=decoy&email=ada', FORM_TYPE],
    ['is a form with a list', 'email=decoy&email[]=ada', FORM_TYPE],
    ['is a form with a name that PHP folds', 'email=decoy&%20email=ada', FORM_TYPE],
    ['is a form with another separator', 'email=decoy;email=ada', FORM_TYPE],
    ['is a form with a bracket that Rack drops', 'email=decoy&[email]=ada', FORM_TYPE],
    ['is a form with the field in another, too', 'email=decoy&session[email]=ada', FORM_TYPE],
    ['is a form that is JSON, too', '{"email":"ada","x":"&email=decoy&y="}', FORM_TYPE],
    ['is JSON that is a form, too', '{"email":"decoy","x":"&email=ada&y="}', JSON_TYPE],
    ['has the field in a member, too', '{"email":"decoy","session":{"email":"ada"}}', JSON_TYPE],
    ['has a name that some parsers repair', '{"email":"decoy","em\\ud800ail":"ada"}', JSON_TYPE],
    [
      'has a long name that some parsers cut off',
      `{"email":"decoy","email\\u0000${'x'.repeat(256)}":"ada"}`,
      JSON_TYPE,
    ],
    ['has a zero byte in its text', '{"email":"ada\\u0000decoy"}', JSON_TYPE],
    ['has bytes that are not UTF-8', 'email=ada%FF', FORM_TYPE],
    ['declares two charsets', '{"email":"decoy"}', 'application/json; x="; charset=utf-8"; charset=utf-7'],
    ['declares Latin-1', 'email=%E3%81%82d%E3%81%82', `${FORM_TYPE}; charset=iso-8859-1`],
    ['has a letter that MySQL takes for another', '{"email":"øscar"}', JSON_TYPE],
    ['has a letter that MySQL takes for two', '{"email":"æva"}', JSON_TYPE],
    ['has a letter that MySQL takes for one or two', '{"email":"roßi"}', JSON_TYPE],
    ['has a digit of another script', '{"email":"ada٣"}', JSON_TYPE],
    ['has a letter of two alphabets', '{"email":"さくら"}', JSON_TYPE],
  ])('is counted with all others without the field: it %s', async (_, body, type) => {
    expect(await areOne(['{}'], [body, type])).toBe(true)
  })

  it('is counted with them if the query has the field, too', async () => {
    const send = app()
    await login(send, '{}')
    const init = { method: 'POST', body: 'email=decoy', headers: { 'content-type': FORM_TYPE } }
    expect((await send('/login?email=ada', init)).status).toBe(429)
  })

  it('is counted with them if it is compressed', async () => {
    const send = app()
    await login(send, '{}')
    expect(await login(send, '{"email":"decoy"}', JSON_TYPE, { 'content-encoding': 'gzip' })).toBe(429)
  })

  it('is passed on whole, also in chunks of more than 8 kB', async () => {
    const send = app()
    const body = new Blob([LARGE]).stream()
    const init = { method: 'POST', body, duplex: 'half', headers: { 'content-type': JSON_TYPE } }
    const reply = await send('/login', init as RequestInit)
    expect(await reply.json()).toMatchObject({ bodySha256: sha256Of(LARGE) })
  })
})

it('aborts the request to the origin if a body breaks off that rules with other units do not read', async () => {
  const tokens = {
    name: 'tokens',
    by: 'address',
    unit: 'tokens',
    algorithm: 'gcra',
    limit: 10,
    period: '1d',
  } as const
  let signal: AbortSignal | null | undefined
  const send = gateway.app(
    {
      ...{ rules: [RULE, tokens], credentials: accept, stats: { keep: false } },
      units: { tokens: { estimate: 1, actual: { header: 'x-tokens' } } },
    },
    {
      variables,
      async fetchOrigin(_, request, settings) {
        signal = settings.signal
        await request.text()
        return new Response()
      },
    },
  )
  const chunks = [new Uint8Array(9000).fill(32)]
  const body = new ReadableStream({
    pull(controller) {
      const chunk = chunks.pop()
      if (chunk) controller.enqueue(chunk)
      else controller.error(new Error('broken off'))
    },
  })
  const init = { method: 'POST', body, headers: { 'content-type': JSON_TYPE }, duplex: 'half' }
  await send('/login', init as RequestInit)
  expect(signal?.aborted).toBe(true)
})

it('counts the failed logins of an account at an address with countIf', async () => {
  const match = { methods: ['POST' as const] }
  const send = app({ by: ['field:email', 'address'], match, countIf: { status: [500] }, limit: 2 })
  async function tryOut(address: string, email: string, path: string) {
    const init = { method: 'POST', body: JSON.stringify({ email }), headers: { 'content-type': JSON_TYPE } }
    const reply = await send(path, { ...init, address })
    await reply.text()
    return reply.status
  }
  expect(await tryOut('192.0.2.1', 'ada', '/error')).toBe(500)
  expect(await tryOut('192.0.2.1', 'ada', '/login')).toBe(200)
  expect(await tryOut('192.0.2.1', 'ada', '/error')).toBe(500)
  expect(await tryOut('192.0.2.1', 'ada', '/login')).toBe(429)
  expect(await tryOut('192.0.2.2', 'ada', '/login')).toBe(200)
  expect(await tryOut('192.0.2.1', 'bob', '/login')).toBe(200)
})

it('leaves the body of requests alone that no such rule matches', async () => {
  const reply = await app()('/other', {
    method: 'POST',
    body: 'anything',
    headers: { 'content-type': 'text/plain' },
  })
  expect(await reply.json()).toMatchObject({ bodySha256: sha256Of('anything') })
  expect(reply.headers.has('ratelimit')).toBe(false)
})

it('shows and resets the counters of an account with the secret, and refuses without it', async () => {
  const send = app()
  await login(send, '{"email":"ada@example.com"}')
  const config = configOf({ rules: [RULE], credentials: accept })
  const identity = { 'field:email': 'Ada@example.com' }
  await expect(peekCaller(gateway.admin, config, identity)).rejects.toThrow(
    'Use the command line, with SLUICE_KEY_SECRET set to the secret of the deployment.',
  )
  const admin = { ...gateway.admin, keySigner: createKeySigner(readKeySecrets(VARIABLE)[0]!) }
  const { standings } = await peekCaller(admin, config, identity)
  expect(standings.map(({ remaining }) => remaining)).toEqual([0])
  await resetCaller(admin, config, identity)
  // Another isolate: this one remembers when the limit would have had units again.
  expect(await login(app(), '{"email":"ada@example.com"}')).toBe(200)
})

it('names the variable if the secret is missing', () => {
  expect(() => gateway.app({ rules: [RULE], credentials: accept }, { variables: {} })).toThrow(
    /SLUICE_KEY_SECRET: is missing/,
  )
})
