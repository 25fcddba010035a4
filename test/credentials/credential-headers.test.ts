/** The header Authorization at the origin: tokens for the gateway are removed, and others stay, whatever the header contains. */
import { describe, expect, it, vi } from 'vitest'
import { removeCredentials } from '../../src/credentials/credential-headers.ts'
import { jwt } from '../../src/credentials/jwt.ts'
import { configOf } from '../support/engines.ts'

const issuerNamed = (issuer: string) =>
  jwt({ jwks: `${issuer}jwks`, algorithms: ['RS256'], issuer, audience: 'api' })
const OURS = ['https://one.example/', 'https://two.example/', 'https://three.example/'] as const
const { credentials } = configOf({
  rules: [],
  credentials: {
    accept: ['one'],
    jwt: { one: issuerNamed(OURS[0]), two: issuerNamed(OURS[1]), three: issuerNamed(OURS[2]) },
  },
})

const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
const tokenOf = (iss: string) => `${encode({ alg: 'RS256' })}.${encode({ iss })}.sig`

function authorizationAfter(authorization: string, settings = credentials): string | null {
  const headers = new Headers({ authorization })
  removeCredentials(headers, settings, undefined)
  return headers.get('authorization')
}

describe('at the origin, the header Authorization', () => {
  it.each([
    ['a token of an issuer', `Bearer ${tokenOf(OURS[2])}`],
    ['an unsigned token of an issuer', `Bearer ${tokenOf(OURS[0]).replace('sig', '')}`],
    ['a token of an issuer after one for the origin', `Bearer ${tokenOf('x')}, Bearer ${tokenOf(OURS[1])}`],
    ['a quoted token of an issuer', `Custom token="${tokenOf(OURS[1])}"`.replace('token=', 'token= ')],
    // PyJWT accepts these three: the base64 of Python drops what it does not know.
    ['a token of an issuer whose signature is padded', `Bearer ${tokenOf(OURS[0])}=`],
    ['a token of an issuer with a signature in base64', `Bearer ${tokenOf(OURS[0])}+a/b==`],
    ['a token of an issuer with another character behind it', `Bearer ${tokenOf(OURS[0])}\xe9`],
    ['a token of an issuer in a parameter', `Custom token=${tokenOf(OURS[0])}`],
    ['more tokens than anyone sends', `Bearer ${Array(5).fill(tokenOf('x')).join(' ')}`],
  ])('is removed with %s', (_, authorization) => {
    expect(authorizationAfter(authorization)).toBeNull()
  })

  it.each([
    ['a token for the origin', `Bearer ${tokenOf('https://origin.example/')}`],
    ['words that are no tokens', 'Digest username="a.b.c.d", realm="x"'],
    ['another scheme', 'Basic YTpi'],
  ])('stays with %s', (_, authorization) => {
    expect(authorizationAfter(authorization)).toBe(authorization)
  })

  it('costs at most four decodings, however long it is', () => {
    const issuerOf = vi.fn(() => undefined)
    const issuers = [...credentials.jwt].map(([name, issuer]) => [name, { ...issuer, issuerOf }] as const)
    const settings = { ...credentials, jwt: new Map(issuers) }
    for (const word of ['a.a.', `${encode({})}.${encode({})}.`]) {
      authorizationAfter(`x ${`${word} `.repeat(100_000 / word.length)}`, settings)
      expect(issuerOf).not.toHaveBeenCalled()
    }
    authorizationAfter(`x ${'a.a. '.repeat(4)}`, settings)
    expect(issuerOf).toHaveBeenCalledTimes(4)
  })
})
