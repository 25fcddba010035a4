/** The table of identity parts: the config, the gateway and the keys of the store agree on the credential that each part needs. */
import { describe, expect, it } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import {
  type By,
  type IdentityPart,
  identityOf,
  identityParts,
  isOfConsumer,
  needsCredential,
  needsToken,
  readPart,
} from '../../src/config/identity-parts.ts'
import { jwt } from '../../src/credentials/jwt.ts'
import type { Caller } from '../../src/set-ups/http/caller.ts'
import { createKeyReader } from '../../src/set-ups/http/identity-keys.ts'

const parts = Object.entries<IdentityPart>(identityParts)
const ALL = parts.map(([part, { isNamed }]) => (isNamed ? `${part}:name` : part) as By)

const ISSUER = jwt({ secret: 'JWT_SECRET', algorithms: ['HS256'], issuer: 'i', audience: 'api' })
const RULE = { name: 'a', algorithm: 'gcra', limit: 10, period: '1s' }
const compiled = (rule: object) =>
  checkedConfig({ origin: 'route', credentials: { jwt: { issuer: ISSUER } }, rules: [{ ...RULE, ...rule }] })

const request = new Request('https://api.example.com/x')
const ANONYMOUS: Caller = { addressIdentity: '192.0.2.1' }
const KEY_HOLDER: Caller = {
  ...ANONYMOUS,
  credential: {
    ...{ method: 'api-key', consumer: 'acme', digest: 'd', header: 'x-api-key', isVerified: false },
    subject: { kind: 'key', consumerKey: 'c', credentialKey: 'k' },
  },
}
const keyFor = (by: readonly By[], caller: Caller) =>
  createKeyReader(request, caller, undefined, new Map())({ by, identity: identityOf(by) })

it('the table names the parts that need a credential or a token, and those of a consumer', () => {
  expect(ALL.filter(needsCredential)).toEqual(['consumer', 'credential', 'claim:name'])
  expect(ALL.filter(needsToken)).toEqual(['claim:name'])
  expect(ALL.filter(part => isOfConsumer([part]))).toEqual(['consumer', 'credential'])
})

it('the name in a part may contain colons', () => {
  expect(readPart('claim:https://example.com/org')).toEqual({
    part: 'claim',
    name: 'https://example.com/org',
  })
})

describe.each(ALL)('by %s', part => {
  it('a rule for callers without a credential is a mistake if and only if the part needs one', () => {
    const config = () => compiled({ by: part, match: { authenticated: false } })
    if (needsCredential(part)) expect(config).toThrow('rules[0].by')
    else expect(config().rules[0]!.by).toEqual([part])
  })

  it('a caller has a key in the store if and only if it has the credential that the part needs', async () => {
    expect((await keyFor([part], ANONYMOUS)) === undefined).toBe(needsCredential(part))
    expect((await keyFor([part], KEY_HOLDER)) === undefined).toBe(needsToken(part))
  })

  it('overrides apply, and the state is in the slot of the consumer, if and only if the part belongs to a consumer', async () => {
    const isExpected = isOfConsumer([part])
    expect(compiled({ by: part }).rules[0]!.takesOverrides).toBe(isExpected)
    if (!needsToken(part)) expect((await keyFor([part], KEY_HOLDER))!.includes('{c:acme}')).toBe(isExpected)
  })
})

it.each([
  ['claim:', "'claim:' does not name a claim. Use 1 to 128 characters, as in 'claim:org'."],
  [
    'header:X-Tenant',
    "'header:X-Tenant' does not name a header. Write its name in lowercase, as in 'header:x-tenant'.",
  ],
  ['consumer:x', "'consumer:x' is not an identity part. Did you mean 'consumer'?"],
  [['global', 'user'], "contains 'user', which is not an identity part."],
  ['toString', "'toString' is not an identity part."],
  ['ip', "'ip' is not an identity part. Did you mean 'address'? Use 'consumer', "],
  [['consumer', 'IP'], "Did you mean 'address'?"],
  ['api-key', "Did you mean 'credential'?"],
  ['adress', "Did you mean 'address'?"],
])('the check refuses %j with a message', (by, message) => {
  expect(() => compiled({ by })).toThrow(message)
})

it('the check refuses global together with other parts', () => {
  expect(() => compiled({ by: ['global', 'route'] })).toThrow("combines 'global' with other parts")
})
