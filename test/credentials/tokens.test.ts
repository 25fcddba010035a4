/** The identity of a token: one for all of its spellings that pass. */
import { beforeAll, describe, expect, it } from 'vitest'
import type { JwtInput } from '../../src/config/check/jwt-schema.ts'
import type { Credential } from '../../src/credentials/credential.ts'
import { readCredentialHeaders } from '../../src/credentials/credential-headers.ts'
import { jwt } from '../../src/credentials/jwt.ts'
import { createJwtVerifier } from '../../src/credentials/jwt-verifier.ts'
import { createTokenFinder } from '../../src/credentials/tokens.ts'
import { configOf } from '../support/engines.ts'
import { type SigningKey, sign, signingKey } from '../support/key-server.ts'

const CLAIMS = { iss: 'i', aud: 'a', sub: 'alice', exp: Date.UTC(2100, 0) / 1e3 }
const SECRET = 'a secret of the tests, of 64 bytes and some more, so that it fits all hashes'
const BASE64URL = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'

type Key = Pick<SigningKey, 'kid' | 'alg'> & { privateKey: SigningKey['privateKey'] | Uint8Array }

const keys = new Map<string, Key>()
const published: SigningKey[] = []

beforeAll(async () => {
  for (const alg of ['RS256', 'ES256', 'ES384', 'EdDSA']) {
    const key = await signingKey(alg, alg)
    published.push(key)
    keys.set(alg, key)
  }
  const privateKey = new TextEncoder().encode(SECRET)
  for (const alg of ['HS256', 'HS384', 'HS512']) keys.set(alg, { kid: alg, alg, privateKey })
})

/** Finds tokens of an issuer with this algorithm, in the bearer token or in a header. */
function finderFor(alg: string, header?: string) {
  const input = {
    ...(alg.startsWith('HS') ? { secret: 'JWT_SECRET' } : { jwks: 'https://i.example.com/' }),
    ...{ algorithms: [alg], issuer: 'i', audience: 'a', ...(header && { header }) },
  } as JwtInput
  const jwks = async () => Response.json({ keys: published.map(({ jwk }) => jwk) })
  const method = {
    ...jwt(input),
    createVerifier: (...[issuer, options]: Parameters<typeof createJwtVerifier>) =>
      createJwtVerifier(issuer, { ...options, fetch: jwks as typeof fetch }),
  }
  const tokens = createTokenFinder(configOf({ credentials: { jwt: { i: method } } }), { JWT_SECRET: SECRET })
  return async (headers: Headers) => {
    const found = await tokens.find('i', readCredentialHeaders(headers), headers)
    return found && 'digest' in found ? (found as Credential).digest : undefined
  }
}

const bearer = (token: string) => new Headers({ authorization: `Bearer ${token}` })

/** The order of the group of each curve (FIPS 186-5), which ECDSA computes with. */
const ORDERS: Record<string, bigint> = {
  ES256: 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n,
  ES384: 0xffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973n,
}

/** The other signature of the same text: `n - s` in place of `s`. */
function otherSignature(alg: string, signature: string): string[] {
  const order = ORDERS[alg]
  if (order === undefined) return []
  const bytes = Buffer.from(signature, 'base64url')
  const half = bytes.length / 2
  const s = order - BigInt(`0x${bytes.subarray(half).toString('hex')}`)
  const other = Buffer.from(s.toString(16).padStart(half * 2, '0'), 'hex')
  return [Buffer.concat([bytes.subarray(0, half), other]).toString('base64url')]
}

/** Texts with another last character. */
const endings = (text: string) => [...BASE64URL].map(last => text.slice(0, -1) + last)

describe.each([
  ['HS256', 4],
  ['HS384', 1],
  ['HS512', 16],
  ['RS256', 16],
  ['ES256', 32],
  ['ES384', 2],
  ['EdDSA', 16],
])('a token that is signed with %s', (alg, spellings) => {
  it(`is one credential in its ${spellings} spellings`, async () => {
    const find = finderFor(alg)
    const [header, payload, signature] = (await sign(CLAIMS, keys.get(alg)!)).split('.') as [
      string,
      string,
      string,
    ]
    const signatures = [signature, ...otherSignature(alg, signature)].flatMap(endings)
    const texts = new Set([
      ...signatures.map(text => `${header}.${payload}.${text}`),
      ...endings(header).map(text => `${text}.${payload}.${signature}`),
      ...endings(payload).map(text => `${header}.${text}.${signature}`),
      // Padding, and the alphabet of plain base64.
      ...['=', '=='].map(padding => `${header}.${payload}.${signature}${padding}`),
      `${header}.${payload}.${signature.replaceAll('-', '+').replaceAll('_', '/')}`,
    ])
    const digests = await Promise.all([...texts].map(text => find(bearer(text))))
    const accepted = digests.filter(digest => digest !== undefined)
    expect(accepted.length).toBe(spellings)
    expect(new Set(accepted).size).toBe(1)
  })
})

it('a token is one credential however it is sent', async () => {
  const token = await sign(CLAIMS, keys.get('HS256')!)
  const find = finderFor('HS256')
  const written = ['Bearer ', 'bearer ', 'BEARER   ', 'Bearer\t'].map(scheme => `${scheme}${token}`)
  const found = await Promise.all(written.map(value => find(new Headers({ authorization: value }))))
  const inHeader = await finderFor('HS256', 'X-Token')(new Headers({ 'x-token': token }))
  expect(new Set([...found, inHeader])).toEqual(new Set([await find(bearer(token))]))
  expect(inHeader).toBeDefined()
})

it('two tokens with different claims or headers are two credentials', async () => {
  const key = keys.get('HS256')!
  const tokens = [
    await sign(CLAIMS, key),
    await sign({ ...CLAIMS, jti: '2' }, key),
    await sign(CLAIMS, { ...key, kid: 'other' }),
  ]
  const find = finderFor('HS256')
  expect(new Set(await Promise.all(tokens.map(token => find(bearer(token))))).size).toBe(3)
})
