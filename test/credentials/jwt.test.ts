import { createHash } from 'node:crypto'
import { exportSPKI, FlattenedSign } from 'jose'
import { afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import type { JwtInput } from '../../src/config/check/jwt-schema.ts'
import { compileJwt } from '../../src/config/compile-jwt.ts'
import { isConsumerName } from '../../src/config/forms.ts'
import type { JwtIssuer } from '../../src/config/jwt-method.ts'
import {
  createJwtVerifier,
  issuerOf,
  type JwtVerifierOptions,
  jwtConsumer,
} from '../../src/credentials/jwt-verifier.ts'
import { GatewayError } from '../../src/errors.ts'
import { type KeyServer, type SigningKey, sign, signingKey, startKeyServer } from '../support/key-server.ts'
import { randomFrom, SEED } from '../support/random.ts'

const NOON = Date.UTC(2026, 10, 20, 12)
const SECOND = NOON / 1e3
const ISSUER = 'https://issuer.example.com/'
const CLAIMS = { iss: ISSUER, aud: 'api', sub: 'alice', iat: SECOND, exp: SECOND + 300 }
const SECRET = 'a secret of the tests, of 32 bytes and some more'

let rsa: SigningKey
let other: SigningKey
let elliptic: SigningKey
let edwards: SigningKey

beforeAll(async () => {
  ;[rsa, other, elliptic, edwards] = await Promise.all([
    signingKey('RS256', 'first'),
    signingKey('RS256', 'second'),
    signingKey('ES256', 'elliptic'),
    signingKey('EdDSA', 'edwards'),
  ])
})

const servers: KeyServer[] = []

async function keyServer(...keys: SigningKey[]): Promise<KeyServer> {
  const server = await startKeyServer(...keys.map(({ jwk }) => jwk))
  servers.push(server)
  return server
}

afterEach(async () => {
  vi.restoreAllMocks()
  await Promise.all(servers.splice(0).map(server => server.close()))
})

function issuer(input: JwtInput | Partial<JwtInput>): JwtIssuer {
  const { jwks = 'http://127.0.0.1:1/' } = input as { jwks?: string }
  const keys = 'secret' in input || 'access' in input ? {} : { jwks, algorithms: ['RS256'] }
  return compileJwt('auth0', { issuer: ISSUER, audience: 'api', ...keys, ...input } as JwtInput)
}

/** A verifier whose clock starts at noon; tests can move it. */
function verifier(input: Partial<JwtInput>, options: JwtVerifierOptions = {}) {
  const clock = { now: NOON }
  const { verify } = createJwtVerifier(issuer(input), { now: () => clock.now, ...options })
  return { clock, verify }
}

/** The consumer, or the reason for the refusal. */
async function outcome(verified: ReturnType<ReturnType<typeof verifier>['verify']>): Promise<string> {
  const result = await verified
  return result.kind === 'verified' ? result.consumer : `${result.reason}: ${result.detail}`
}

const forging = (header: object, claims: object, signature = '') =>
  [header, claims].map(part => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.') +
  `.${signature}`

describe('a valid token', () => {
  it.each([
    ['RS256', () => rsa],
    ['ES256', () => elliptic],
    ['EdDSA', () => edwards],
  ] as const)('signed with %s gives its consumer and claims', async (alg, key) => {
    const { url: jwks } = await keyServer(rsa, elliptic, edwards)
    const { verify } = verifier({ jwks, algorithms: [alg] })
    expect(await verify(await sign(CLAIMS, key()))).toEqual({
      kind: 'verified',
      consumer: 'auth0~alice',
      mode: 'live',
      claims: CLAIMS,
    })
  })

  it.each(['HS256', 'HS384', 'HS512'] as const)('signed with %s and a secret is accepted', async alg => {
    const secret = SECRET.repeat(2)
    const { verify } = verifier({ secret: 'JWT_SECRET', algorithms: [alg] }, { secret })
    const key = { kid: 'none', alg, privateKey: new TextEncoder().encode(secret) }
    expect(await outcome(verify(await sign(CLAIMS, key)))).toBe('auth0~alice')
    expect(await outcome(verify(await sign(CLAIMS, { ...key, privateKey: new Uint8Array(64) })))).toBe(
      'bad-signature: ERR_JWS_SIGNATURE_VERIFICATION_FAILED',
    )
  })

  it('may have several audiences, times that are slightly off, and, if there is only one key, no kid', async () => {
    const { url: jwks } = await keyServer(rsa)
    const { verify } = verifier({ jwks, audience: ['web', 'api'], clockTolerance: '5s' })
    const claims = { ...CLAIMS, aud: ['other', 'api'], exp: SECOND - 4, nbf: SECOND + 5 }
    expect(await outcome(verify(await sign(claims, rsa, { kid: undefined })))).toBe('auth0~alice')
  })
})

describe('the consumer', () => {
  it.each([
    ['another claim', { consumer: 'email' }, { email: 'a@example.com' }, 'auth0~a%40example.com'],
    ['the first claim with a value', { consumer: ['org', 'sub'] }, { org: '' }, 'auth0~alice'],
    ['a number', { consumer: 'sub' }, { sub: 42 }, 'auth0~42'],
    ['text in any script', {}, { sub: '田中 🚦' }, 'auth0~%E7%94%B0%E4%B8%AD%20%F0%9F%9A%A6'],
    ['text that looks like another consumer', {}, { sub: 'okta~bob' }, 'auth0~okta%7Ebob'],
    ['text with the delimiters of store keys', {}, { sub: 'a}:state*' }, 'auth0~a%7D%3Astate%2A'],
    [
      'long text',
      {},
      { sub: 'x'.repeat(101) },
      `auth0~#${createHash('sha256')
        .update(Buffer.from('x'.repeat(101), 'utf16le'))
        .digest('hex')}`,
    ],
    ['an empty text', {}, { sub: '' }, 'no-consumer: no consumer in sub'],
    ['missing', {}, { sub: undefined }, 'no-consumer: no consumer in sub'],
    ['a list', {}, { sub: ['alice'] }, 'no-consumer: no consumer in sub'],
    ['an object', {}, { sub: { toString: 'alice' } }, 'no-consumer: no consumer in sub'],
    ['true', {}, { sub: true }, 'no-consumer: no consumer in sub'],
    [
      'the name of a property of every object',
      { consumer: 'toString' },
      {},
      'no-consumer: no consumer in toString',
    ],
  ])('comes from a claim, or the token is invalid: %s', async (_, claims, changes, expected) => {
    const { url: jwks } = await keyServer(rsa)
    const { verify } = verifier({ jwks, claims })
    expect(await outcome(verify(await sign({ ...CLAIMS, ...changes }, rsa)))).toBe(expected)
  })

  it('is not a number that parsing has rounded', async () => {
    const { verify } = verifier({ secret: 'S', algorithms: ['HS256'] }, { secret: SECRET })
    // As text, because JavaScript cannot represent this number.
    const payload = JSON.stringify({ ...CLAIMS, sub: 0 }).replace('"sub":0', '"sub":9007199254740993')
    const { protected: header, signature } = await new FlattenedSign(new TextEncoder().encode(payload))
      .setProtectedHeader({ alg: 'HS256' })
      .sign(new TextEncoder().encode(SECRET))
    const token = `${header}.${Buffer.from(payload).toString('base64url')}.${signature}`
    expect(await outcome(verify(token))).toBe('no-consumer: no consumer in sub')
  })

  it('is shared with API keys if the config says so; it then must be a valid consumer name', async () => {
    const { url: jwks } = await keyServer(rsa)
    const { verify } = verifier({ jwks, sharesConsumers: true })
    expect(await outcome(verify(await sign(CLAIMS, rsa)))).toBe('alice')
    for (const sub of ['okta~alice', 'a@example.com', 'x'.repeat(65), 'alice\n', '_']) {
      expect(await outcome(verify(await sign({ ...CLAIMS, sub }, rsa)))).toBe(
        'no-consumer: sub is not a consumer name',
      )
    }
  })

  it('never equals that of another claim, of another issuer or of an API key', async () => {
    const random = randomFrom(SEED)
    const alphabet = [...'ab~*#%:{}.,=-_ é田🚦', '\ud800', '\udc00', '\0', '%2A', '%7E', '%25']
    const claims = new Set(['', '*', '%2A', '~', '%7E', '#', '\ud800', '\ufffd'])
    for (let i = 0; i < 3000; i++) {
      const length = random.chance(0.05) ? random.int(90, 110) : random.int(1, 6)
      const pieces = Array.from({ length }, () =>
        random.chance(0.2) ? String.fromCharCode(random.int(0, 0xffff)) : random.pick(alphabet),
      )
      claims.add(pieces.join(''))
    }
    const consumers = await Promise.all(
      ['a', 'ab'].flatMap(name => [...claims].map(claim => jwtConsumer(name, claim))),
    )
    expect(new Set(consumers).size, `SEED=${SEED}`).toBe(2 * claims.size)
    for (const consumer of consumers) {
      expect(consumer).toMatch(/^[a-z]+~[\w.!'()#%-]*$/)
      expect(consumer.length).toBeLessThanOrEqual(103)
      expect(isConsumerName(consumer)).toBe(false)
    }
  })
})

describe('the plan', () => {
  const input = { claims: { plan: 'tier' }, plans: { gold: 'pro', 7: 'seven' } }

  it.each([
    ['the plan that the config maps the claim to', input, { tier: 'gold' }, 'pro'],
    ['the claim itself', input, { tier: 'free' }, 'free'],
    ['mapped from a number', input, { tier: 7 }, 'seven'],
    ['missing', input, {}, undefined],
    ['missing for a list', input, { tier: ['gold'] }, undefined],
    ['missing for an empty text', input, { tier: '' }, undefined],
    [
      'the claim itself, even if it names a property of every object',
      input,
      { tier: 'constructor' },
      'constructor',
    ],
    ['missing if the config names no claim', {}, { tier: 'gold', plan: 'gold' }, undefined],
  ])('is %s', async (_, input, changes, plan) => {
    const { url: jwks } = await keyServer(rsa)
    const { verify } = verifier({ jwks, ...input })
    const result = await verify(await sign({ ...CLAIMS, ...changes }, rsa))
    expect(result).toMatchObject({ kind: 'verified' })
    expect('plan' in result ? result.plan : undefined).toBe(plan)
  })
})

describe('a hostile token', () => {
  const SIGNATURE = 'ERR_JWS_SIGNATURE_VERIFICATION_FAILED'
  const CLAIM = 'ERR_JWT_CLAIM_VALIDATION_FAILED'
  const NOT_ALLOWED = 'ERR_JOSE_ALG_NOT_ALLOWED'
  const good = () => sign(CLAIMS, rsa)
  const changed = (changes: object) => sign({ ...CLAIMS, ...changes }, rsa)
  const hmac = (secret: string) => ({
    kid: 'first',
    alg: 'HS256',
    privateKey: new TextEncoder().encode(secret),
  })
  const pem = () => exportSPKI(rsa.publicKey)

  const HOSTILE: [what: string, token: () => string | Promise<string>, outcome: string][] = [
    ['unsigned', () => forging({ alg: 'none' }, CLAIMS), `wrong-algorithm: ${NOT_ALLOWED}`],
    [
      'unsigned, with a valid kid',
      () => forging({ alg: 'none', kid: 'first' }, CLAIMS),
      `wrong-algorithm: ${NOT_ALLOWED}`,
    ],
    [
      'alg none with a signature',
      () => forging({ alg: 'none' }, CLAIMS, 'AAAA'),
      `wrong-algorithm: ${NOT_ALLOWED}`,
    ],
    ['alg none in capitals', () => forging({ alg: 'NONE' }, CLAIMS), `wrong-algorithm: ${NOT_ALLOWED}`],
    [
      'alg in lower case',
      () => forging({ alg: 'rs256', kid: 'first' }, CLAIMS, 'AAAA'),
      `wrong-algorithm: ${NOT_ALLOWED}`,
    ],
    [
      'with a payload that is not encoded (RFC 7797)',
      async () => {
        const [header, payload] = forging(
          { alg: 'RS256', kid: 'first', b64: false, crit: ['b64'] },
          CLAIMS,
        ).split('.')
        const bytes = new TextEncoder().encode(`${header}.${payload}`)
        const signature = await crypto.subtle.sign('RSASSA-PKCS1-v1_5', rsa.privateKey, bytes)
        return [header, payload, Buffer.from(signature).toString('base64url')].join('.')
      },
      'malformed: ERR_JWT_INVALID',
    ],
    ['without alg', () => forging({ kid: 'first' }, CLAIMS, 'AAAA'), 'malformed: ERR_JWS_INVALID'],
    ['alg as a list', () => forging({ alg: ['RS256'] }, CLAIMS, 'AAAA'), 'malformed: ERR_JWS_INVALID'],
    [
      'HS256 with the public key as PEM',
      async () => sign(CLAIMS, hmac(await pem())),
      `wrong-algorithm: ${NOT_ALLOWED}`,
    ],
    [
      'HS256 with the public key as PEM, trimmed',
      async () => sign(CLAIMS, hmac((await pem()).trim())),
      `wrong-algorithm: ${NOT_ALLOWED}`,
    ],
    [
      'HS256 with the public key as JWK',
      () => sign(CLAIMS, hmac(JSON.stringify(rsa.jwk))),
      `wrong-algorithm: ${NOT_ALLOWED}`,
    ],
    [
      'another algorithm of the same key',
      () => forging({ alg: 'RS512', kid: 'first' }, CLAIMS, 'AAAA'),
      `wrong-algorithm: ${NOT_ALLOWED}`,
    ],
    [
      'of another key, under a valid kid',
      () => sign(CLAIMS, other, { kid: 'first' }),
      `bad-signature: ${SIGNATURE}`,
    ],
    [
      'of another key, under an unknown kid',
      () => sign(CLAIMS, { ...other, kid: 'evil' }),
      'unknown-signing-key: ERR_JWKS_NO_MATCHING_KEY',
    ],
    [
      'kid as a number',
      () => forging({ alg: 'RS256', kid: 1 }, CLAIMS, 'AAAA'),
      'unknown-signing-key: ERR_JWKS_NO_MATCHING_KEY',
    ],
    [
      'kid as a path',
      () => sign(CLAIMS, rsa, { kid: '../../dev/null' }),
      'unknown-signing-key: ERR_JWKS_NO_MATCHING_KEY',
    ],
    [
      'without kid, although there are several keys',
      () => sign(CLAIMS, rsa, { kid: undefined }),
      'unknown-signing-key: ERR_JWKS_MULTIPLE_MATCHING_KEYS',
    ],
    ['expired', () => changed({ exp: SECOND - 5 }), 'expired: ERR_JWT_EXPIRED'],
    [
      'expired, of another key',
      () => sign({ ...CLAIMS, exp: SECOND - 5 }, other, { kid: 'first' }),
      `bad-signature: ${SIGNATURE}`,
    ],
    ['not yet valid', () => changed({ nbf: SECOND + 6 }), `not-yet-valid: ${CLAIM} (nbf check_failed)`],
    ['not yet valid, as text', () => changed({ nbf: '0' }), `bad-claim: ${CLAIM} (nbf invalid)`],
    ['issued as text', () => changed({ iat: 'now' }), `bad-claim: ${CLAIM} (iat invalid)`],
    [
      'of another issuer',
      () => changed({ iss: 'https://issuer.example.com' }),
      `wrong-issuer: ${CLAIM} (iss check_failed)`,
    ],
    ['of several issuers', () => changed({ iss: [ISSUER] }), `wrong-issuer: ${CLAIM} (iss check_failed)`],
    ['without issuer', () => changed({ iss: undefined }), `wrong-issuer: ${CLAIM} (iss missing)`],
    ['for another audience', () => changed({ aud: 'apis' }), `wrong-audience: ${CLAIM} (aud check_failed)`],
    [
      'for several other audiences',
      () => changed({ aud: ['a', 'b'] }),
      `wrong-audience: ${CLAIM} (aud check_failed)`,
    ],
    [
      'for an audience that is an object',
      () => changed({ aud: { api: true } }),
      `wrong-audience: ${CLAIM} (aud check_failed)`,
    ],
    ['without audience', () => changed({ aud: undefined }), `wrong-audience: ${CLAIM} (aud missing)`],
    ['without expiry', () => changed({ exp: undefined }), `bad-claim: ${CLAIM} (exp missing)`],
    ['with null as expiry', () => changed({ exp: null }), `bad-claim: ${CLAIM} (exp invalid)`],
    ['with text as expiry', () => changed({ exp: '9999999999' }), `bad-claim: ${CLAIM} (exp invalid)`],
    ['with null as its first time', () => changed({ nbf: null }), `bad-claim: ${CLAIM} (nbf invalid)`],
    [
      'for an audience in a list of lists',
      () => changed({ aud: [['api']] }),
      `wrong-audience: ${CLAIM} (aud check_failed)`,
    ],
    ['huge', () => changed({ padding: 'x'.repeat(8192) }), 'malformed: longer than 8192 characters'],
    ['a huge text', () => 'a.'.repeat(1e6), 'malformed: longer than 8192 characters'],
    ['empty', () => '', 'malformed: ERR_JWS_INVALID'],
    ['only dots', () => '..', 'malformed: ERR_JWS_INVALID'],
    ['with two parts', async () => (await good()).replace(/\.[^.]*$/, ''), 'malformed: ERR_JWS_INVALID'],
    ['with an extra dot', async () => `${await good()}.`, 'malformed: ERR_JWS_INVALID'],
    ['with five parts', async () => `${await good()}.a.b`, 'malformed: ERR_JWS_INVALID'],
    ['cut short', async () => (await good()).slice(0, -8), `bad-signature: ${SIGNATURE}`],
    [
      'without its signature',
      async () => (await good()).replace(/[^.]*$/, ''),
      `bad-signature: ${SIGNATURE}`,
    ],
    [
      'with another payload',
      async () => {
        const [header, , signature] = (await good()).split('.')
        const payload = Buffer.from(JSON.stringify({ ...CLAIMS, sub: 'admin' })).toString('base64url')
        return [header, payload, signature].join('.')
      },
      `bad-signature: ${SIGNATURE}`,
    ],
    ['with non-ASCII text in every part', () => '🚦.é.\ud800', 'malformed: ERR_JWS_INVALID'],
    ['with a non-ASCII header', async () => `é${await good()}`, 'malformed: ERR_JWS_INVALID'],
    ['with a non-ASCII payload', async () => (await good()).replace('.', '.é'), 'malformed: ERR_JWS_INVALID'],
    [
      'whose header is a list',
      async () => (await good()).replace(/^[^.]*/, 'W10'),
      'malformed: ERR_JWS_INVALID',
    ],
    [
      'with an unknown critical parameter',
      () => sign(CLAIMS, rsa, { crit: ['admin'], admin: true }),
      'malformed: ERR_JOSE_NOT_SUPPORTED',
    ],
    [
      'with an empty list of critical parameters',
      () => forging({ alg: 'RS256', kid: 'first', crit: [] }, CLAIMS, 'AAAA'),
      'malformed: ERR_JWS_INVALID',
    ],
    [
      'with its own key',
      () => sign(CLAIMS, { ...other, kid: 'first' }, { jwk: other.jwk }),
      `bad-signature: ${SIGNATURE}`,
    ],
    [
      'with its own key under another kid',
      () => sign(CLAIMS, { ...other, kid: 'evil' }, { jwk: other.jwk }),
      'unknown-signing-key: ERR_JWKS_NO_MATCHING_KEY',
    ],
  ]

  it.each(HOSTILE)('is refused: %s', async (_, token, expected) => {
    const { url: jwks } = await keyServer(rsa, { ...elliptic, jwk: { ...rsa.jwk, kid: 'same key' } })
    const { verify } = verifier({ jwks })
    expect(await outcome(verify(await token()))).toBe(expected)
  })

  it.each(['jku', 'x5u'])(
    'that names its own key URL with %s is refused, and no key is fetched from there',
    async parameter => {
      const [{ url: jwks }, attacker] = [await keyServer(rsa), await keyServer(other)]
      const { verify } = verifier({ jwks })
      for (const kid of ['first', 'second', undefined]) {
        const token = await sign(CLAIMS, other, { [parameter]: attacker.url, kid })
        expect(await verify(token)).toMatchObject({ kind: 'refused' })
      }
      expect(attacker.fetches).toBe(0)
    },
  )

  it('signed with the public key as secret is refused even if the config allows both kinds of algorithms', async () => {
    const { url: jwks } = await keyServer(rsa)
    const both = { ...issuer({ jwks }), algorithms: ['RS256', 'HS256'] }
    const { verify } = createJwtVerifier(both, { now: () => NOON })
    for (const secret of [await pem(), JSON.stringify(rsa.jwk), rsa.jwk.n!]) {
      expect(await outcome(verify(await sign(CLAIMS, hmac(secret))))).toBe(
        'malformed: ERR_JOSE_NOT_SUPPORTED',
      )
    }
  })

  it('is refused, and the result contains nothing of it', async () => {
    const { url: jwks } = await keyServer(rsa)
    const { verify } = verifier({ jwks })
    const leak = { sub: 'zzzz', aud: 'zzzz', kid: 'zzzz', crit: ['zzzz'], zzzz: 1 }
    for (const token of [
      await changed({ sub: 'zzzz', aud: 'zzzz' }),
      forging({ alg: 'RS256', ...leak }, leak, 'zzzz'),
      forging({ alg: 'zzzz' }, leak, 'zzzz'),
      'zzzz.zzzz.zzzz',
    ]) {
      expect(JSON.stringify(await verify(token))).not.toContain('zzzz')
    }
  })
})

describe('keys by URL', () => {
  const MINUTE = 60e3

  it('are fetched once, and again after ten minutes', async () => {
    const server = await keyServer(rsa)
    const { clock, verify } = verifier({ jwks: server.url })
    const token = await sign({ ...CLAIMS, exp: SECOND + 3600 }, rsa)
    await Promise.all(Array.from({ length: 5 }, () => verify(token)))
    clock.now += 10 * MINUTE - 1
    expect(await outcome(verify(token))).toBe('auth0~alice')
    expect(server.fetches).toBe(1)
    clock.now += 1
    expect(await outcome(verify(token))).toBe('auth0~alice')
    expect(server.fetches).toBe(2)
  })

  it('age from the start of their fetch, by the given clock only', async () => {
    const server = await keyServer(rsa)
    const fetch: typeof globalThis.fetch = async (input, init) => {
      clock.now += 2000
      return globalThis.fetch(input, init)
    }
    const { clock, verify } = verifier({ jwks: server.url }, { fetch })
    const token = await sign({ ...CLAIMS, exp: SECOND + 3600 }, rsa)
    await verify(token)
    vi.spyOn(Date, 'now').mockReturnValue(Date.now() + 1e9)
    await verify(token)
    await verify(await sign(CLAIMS, other))
    expect(server.fetches).toBe(1)
    clock.now = NOON + 10 * MINUTE
    await verify(token)
    expect(server.fetches).toBe(2)
  })

  it.each([0, 2000])(
    'are fetched again after the clock was set back, also during a fetch of %d ms',
    async fetchMs => {
      const server = await keyServer(rsa, other)
      const day = 24 * 60 * MINUTE
      const fetch: typeof globalThis.fetch = async (input, init) => {
        if (fetchMs > 0 && server.fetches === 0) clock.now -= day
        return globalThis.fetch(input, init)
      }
      const { clock, verify } = verifier({ jwks: server.url }, { fetch })
      const token = await sign({ ...CLAIMS, exp: SECOND + 3600 }, rsa)
      await verify(token)
      if (fetchMs === 0) clock.now -= day
      server.publish(other.jwk)
      await verify(token)
      clock.now += 10 * MINUTE
      expect(await outcome(verify(token))).toBe('unknown-signing-key: ERR_JWKS_NO_MATCHING_KEY')
    },
  )

  it('that the issuer withdrew stop working after the next fetch', async () => {
    const server = await keyServer(rsa, other)
    const { clock, verify } = verifier({ jwks: server.url })
    const token = await sign({ ...CLAIMS, exp: SECOND + 3600 }, rsa)
    expect(await outcome(verify(token))).toBe('auth0~alice')
    server.publish(other.jwk)
    clock.now += 10 * MINUTE
    expect(await outcome(verify(token))).toBe('unknown-signing-key: ERR_JWKS_NO_MATCHING_KEY')
  })

  it('that are new are found 30 s after the last fetch, not earlier', async () => {
    const server = await keyServer(rsa)
    const { clock, verify } = verifier({ jwks: server.url })
    await verify(await sign(CLAIMS, rsa))
    server.publish(rsa.jwk, other.jwk)
    const token = await sign(CLAIMS, other)
    clock.now += 30e3 - 1
    expect(await outcome(verify(token))).toBe('unknown-signing-key: ERR_JWKS_NO_MATCHING_KEY')
    expect(server.fetches).toBe(1)
    clock.now += 1
    // Concurrent requests are all served.
    expect(await Promise.all([verify(token), verify(token)].map(outcome))).toEqual([
      'auth0~alice',
      'auth0~alice',
    ])
    expect(server.fetches).toBe(2)
  })

  it('are fetched at most once in 30 s for tokens with an unknown kid', async () => {
    const server = await keyServer(rsa)
    const { clock, verify } = verifier({ jwks: server.url })
    for (let second = 0; second < 60; second++, clock.now += 1000) {
      const tokens = [0, 1, 2].map(i => forging({ alg: 'RS256', kid: `${second} ${i}` }, CLAIMS, 'AAAA'))
      for (const result of await Promise.all(tokens.map(token => outcome(verify(token))))) {
        expect(result).toBe('unknown-signing-key: ERR_JWKS_NO_MATCHING_KEY')
      }
    }
    expect(server.fetches).toBe(2)
  })

  it('are not fetched for tokens with an invalid form or algorithm', async () => {
    const server = await keyServer(rsa)
    const { verify } = verifier({ jwks: server.url })
    for (const token of ['', 'a.b.c', forging({ alg: 'none' }, CLAIMS), forging({ alg: 'HS256' }, CLAIMS)]) {
      expect(await verify(token)).toMatchObject({ kind: 'refused' })
    }
    expect(server.fetches).toBe(0)
  })

  it('are not fetched if the issuer uses a secret', async () => {
    const fetch = vi.fn()
    const { verify } = verifier({ secret: 'S', algorithms: ['HS256'] }, { secret: SECRET, fetch })
    expect(await outcome(verify(await sign(CLAIMS, rsa)))).toBe('wrong-algorithm: ERR_JOSE_ALG_NOT_ALLOWED')
    expect(fetch).not.toHaveBeenCalled()
  })

  const ANSWERS: [what: string, answer: KeyServer['answer'], detail: string][] = [
    [
      'answers 500',
      response => response.writeHead(500).end('oops'),
      'ERR_JOSE_GENERIC: Expected 200 OK from the JSON Web Key Set HTTP response',
    ],
    [
      'redirects',
      response => response.writeHead(302, { location: servers.at(-1)!.url }).end(),
      'ERR_JOSE_GENERIC: Expected 200 OK from the JSON Web Key Set HTTP response',
    ],
    [
      'answers with HTML',
      response => response.writeHead(200, { 'content-type': 'text/html' }).end('<html>'),
      'ERR_JOSE_GENERIC: Failed to parse the JSON Web Key Set HTTP response as JSON',
    ],
    [
      'answers with the wrong JSON',
      response => response.writeHead(200).end('{"keys":{}}'),
      'ERR_JWKS_INVALID: JSON Web Key Set malformed',
    ],
    ['closes the connection', response => response.socket!.destroy(), 'TypeError: no reply'],
    [
      'closes the connection in the middle of the body',
      response => {
        response.writeHead(200, { 'content-length': 1000 }).write('{"keys":[')
        setImmediate(() => response.socket!.destroy())
      },
      'ERR_JOSE_GENERIC: Failed to parse the JSON Web Key Set HTTP response as JSON',
    ],
  ]

  describe.each(ANSWERS)('of a server that %s', (_, answer, detail) => {
    it('are unavailable, and fetched again only after five seconds', async () => {
      const [server, elsewhere] = [await keyServer(rsa), await keyServer(rsa)]
      server.answer = answer
      const { clock, verify } = verifier({ jwks: server.url })
      const token = await sign(CLAIMS, rsa)
      for (const milliseconds of [0, 4999]) {
        clock.now = NOON + milliseconds
        expect(await outcome(verify(token))).toBe(`unverifiable: ${detail}`)
      }
      expect(server.fetches).toBe(1)
      server.publish(rsa.jwk)
      clock.now = NOON + 5000
      expect(await outcome(verify(token))).toBe('auth0~alice')
      expect([server.fetches, elsewhere.fetches]).toEqual([2, 0])
    })

    it('are still used for an hour after an earlier fetch', async () => {
      const [server] = [await keyServer(rsa), await keyServer(rsa)]
      const { clock, verify } = verifier({ jwks: server.url })
      const token = await sign({ ...CLAIMS, exp: SECOND + 7200 }, rsa)
      await verify(token)
      server.answer = answer
      for (const at of [10 * MINUTE, 10 * MINUTE + 4999, 60 * MINUTE - 1]) {
        clock.now = NOON + at
        expect(await outcome(verify(token))).toBe('auth0~alice')
      }
      expect(server.fetches).toBe(3)
      clock.now = NOON + 60 * MINUTE
      expect(await outcome(verify(token))).toBe(`unverifiable: ${detail}`)
      clock.now += 5000
      expect(await outcome(verify(token))).toBe(`unverifiable: ${detail}`)
      server.publish(rsa.jwk)
      clock.now += 5000
      expect(await outcome(verify(token))).toBe('auth0~alice')
    })

    it('are not fetched for each token with an unknown kid', async () => {
      const [server] = [await keyServer(rsa), await keyServer(rsa)]
      const { clock, verify } = verifier({ jwks: server.url })
      await verify(await sign(CLAIMS, rsa))
      server.answer = answer
      for (let second = 0; second < 40; second++, clock.now += 1000) {
        expect(await outcome(verify(forging({ alg: 'RS256', kid: 'evil' }, CLAIMS, 'AAAA')))).toBe(
          'unknown-signing-key: ERR_JWKS_NO_MATCHING_KEY',
        )
      }
      // One fetch before the outage; from the 30th second on, one every 5 s.
      expect(server.fetches).toBe(3)
    })
  })

  it('of a server that is down are still used', async () => {
    const server = await keyServer(rsa)
    const { clock, verify } = verifier({ jwks: server.url })
    const token = await sign({ ...CLAIMS, exp: SECOND + 7200 }, rsa)
    await verify(token)
    await server.close()
    clock.now += 59 * MINUTE
    expect(await outcome(verify(token))).toBe('auth0~alice')
    clock.now += MINUTE
    expect(await outcome(verify(token))).toBe('unverifiable: TypeError: no reply')
  })

  it.each([
    ['never answers', () => {}],
    ['never ends', response => response.writeHead(200).write('{"keys":[')],
  ] as [string, KeyServer['answer']][])(
    'of a server that %s: the fetch ends after 3 s',
    async (_, answer) => {
      const timeout = AbortSignal.timeout
      const waits = vi.spyOn(AbortSignal, 'timeout').mockImplementation(() => timeout.call(AbortSignal, 30))
      const server = await keyServer(rsa)
      server.answer = answer
      const { verify } = verifier({ jwks: server.url })
      expect(await verify(await sign(CLAIMS, rsa))).toMatchObject({ reason: 'unverifiable' })
      expect(waits.mock.calls).toEqual([[3000]])
    },
  )

  it('are fetched by one request at a time while cached ones exist, and by at most eight after a failure', async () => {
    const server = await keyServer(rsa)
    const replies: (() => void)[] = []
    let fetches = 0
    // As in workerd, where each request has a fetch of its own.
    vi.stubGlobal('WebSocketPair', class {})
    const fetch = async (input: string | URL | Request, init?: RequestInit) => {
      fetches += 1
      await new Promise<void>(resolve => replies.push(resolve))
      return globalThis.fetch(input, init)
    }
    const { clock, verify } = verifier({ jwks: server.url }, { fetch })
    const token = await sign({ ...CLAIMS, exp: SECOND + 7200 }, rsa)
    const ask = async () => {
      fetches = 0
      const results = Array.from({ length: 20 }, () => verify(token))
      await vi.waitFor(() => expect(replies.length).toBe(fetches), { timeout: 30_000 })
      await new Promise(resolve => setTimeout(resolve))
      const begun = fetches
      for (const reply of replies.splice(0)) reply()
      const kinds = new Set((await Promise.all(results)).map(({ kind }) => kind))
      return [begun, ...kinds]
    }
    try {
      expect(await ask(), 'no cached keys').toEqual([20, 'verified'])
      clock.now += 10 * MINUTE
      expect(await ask(), 'due').toEqual([1, 'verified'])
      server.answer = response => response.writeHead(500).end()
      clock.now += 60 * MINUTE
      expect(await ask(), 'too old').toEqual([20, 'refused'])
      clock.now += 5000
      expect(await ask(), 'after a failure').toEqual([8, 'refused'])
    } finally {
      vi.unstubAllGlobals()
    }
  })

  it('are fetched again if the request that fetched them was cancelled', async () => {
    const server = await keyServer(rsa)
    vi.stubGlobal('WebSocketPair', class {})
    let isCancelled = false
    const fetch: typeof globalThis.fetch = (input, init) =>
      isCancelled ? new Promise(() => {}) : globalThis.fetch(input, init)
    try {
      const { clock, verify } = verifier({ jwks: server.url }, { fetch })
      const token = await sign({ ...CLAIMS, exp: SECOND + 7200 }, rsa)
      await verify(token)
      clock.now += 10 * MINUTE
      isCancelled = true
      void verify(token)
      isCancelled = false
      await verify(token)
      expect(server.fetches).toBe(1)
      clock.now += 3000
      await verify(token)
      expect(server.fetches).toBe(2)
    } finally {
      vi.unstubAllGlobals()
    }
  })
})

describe('a token of Cloudflare Access', () => {
  const AUD = '32eafc7626e974616deaf0dc3ce63d7bcbed58a2731e84d06bc3cdf1b53c4228'
  /** As in https://developers.cloudflare.com/cloudflare-one/access-controls/applications/http-apps/authorization-cookie/application-token/ */
  const USER = {
    aud: [AUD],
    email: 'user@example.com',
    exp: SECOND + 60,
    iat: SECOND,
    nbf: SECOND,
    type: 'app',
    identity_nonce: '6ei69kawdKzMIAPF',
    sub: '7335d417-61da-459d-899c-0a01c76a2f94',
    country: 'US',
  }
  const SERVICE = {
    type: 'app',
    aud: AUD,
    exp: SECOND + 60,
    iat: SECOND,
    common_name: 'e367826f93b8d71185e03fe518aff3b4.access',
    sub: '',
  }

  it.each([
    ['user', USER, 'auth0~7335d417-61da-459d-899c-0a01c76a2f94'],
    ['service token', SERVICE, 'auth0~e367826f93b8d71185e03fe518aff3b4.access'],
  ])('has its %s as consumer', async (_, claims, consumer) => {
    const server = await keyServer(rsa, other)
    const urls: string[] = []
    const team = new URL(server.url).origin
    const fetch: typeof globalThis.fetch = (input, init) => {
      urls.push(String(input))
      return globalThis.fetch(input, init)
    }
    const { verify } = verifier({ access: `${team}/`, audience: AUD }, { fetch })
    const token = await sign({ ...claims, iss: team }, rsa, { typ: 'JWT' })
    expect(await outcome(verify(token))).toBe(consumer)
    expect(urls).toEqual([`${team}/cdn-cgi/access/certs`])
    expect(await verify(await sign({ ...claims, iss: team, aud: ['other'] }, rsa))).toMatchObject({
      reason: 'wrong-audience',
    })
  })
})

describe('a secret', () => {
  it.each([
    [
      undefined,
      ['HS256'],
      'JWT_SECRET: is missing. Set it in the environment, or for a deployment: npx wrangler secret put JWT_SECRET',
    ],
    [
      '',
      ['HS256'],
      'JWT_SECRET: is missing. Set it in the environment, or for a deployment: npx wrangler secret put JWT_SECRET',
    ],
    [
      'z'.repeat(31),
      ['HS256'],
      'JWT_SECRET: is too short for HS256: use at least 32 random bytes (RFC 7518, section 3.2).',
    ],
    [
      'z'.repeat(47),
      ['HS384', 'HS256'],
      'JWT_SECRET: is too short for HS384: use at least 48 random bytes (RFC 7518, section 3.2).',
    ],
    [
      'z'.repeat(63),
      ['HS256', 'HS512'],
      'JWT_SECRET: is too short for HS512: use at least 64 random bytes (RFC 7518, section 3.2).',
    ],
  ] as const)('%j is reported as a mistake in the environment variables', (secret, algorithms, message) => {
    const create = () => verifier({ secret: 'JWT_SECRET', algorithms: [...algorithms] }, { secret })
    expect(create).toThrow(GatewayError)
    expect(create).toThrow(
      expect.objectContaining({
        code: 'ERR_CONFIG_INVALID',
        message: `The environment has 1 mistake:\n  ${message}`,
      }),
    )
  })

  it('is measured in bytes', () => {
    expect(() => verifier({ secret: 'S', algorithms: ['HS256'] }, { secret: 'é'.repeat(16) })).not.toThrow()
  })
})

describe('the issuer that a token claims', () => {
  it('is read before the token is verified', async () => {
    expect(issuerOf(await sign(CLAIMS, rsa))).toBe(ISSUER)
    expect(issuerOf(forging({ alg: 'none' }, CLAIMS))).toBe(ISSUER)
    expect(issuerOf(forging({}, { iss: '🚦' }))).toBe('🚦')
  })

  it.each([
    ['an empty text', ''],
    ['an API key', 'slk_acme_0123'],
    ['only dots', '..'],
    ['opaque text of three parts', 'aaaa.bbbb.cccc'],
    ['a header that is not JSON', `aaaa.${forging({}, { iss: ISSUER }).split('.')[1]}.`],
    ['a payload that is not an object', 'e30.W10.'],
    ['an encrypted token', 'e30.e30.e30.e30.e30'],
    ['padding', `e30=.${Buffer.from('{"iss":"a"}').toString('base64')}.`],
    ['blanks', forging({}, { iss: ISSUER }).replace('.', ' .')],
    ['an issuer that is not text', forging({}, { iss: 1 })],
    ['no issuer', forging({}, {})],
    ['a property of every object', forging({}, { __proto__: { iss: ISSUER } })],
    ['a text that is too long', forging({}, { iss: 'a'.repeat(8192) })],
    ['a text that is much too long', 'a'.repeat(1e7)],
    ['broken unicode', 'e30.\ud800.'],
  ])('is undefined for %s', (_, token) => expect(issuerOf(token)).toBeUndefined())
})
