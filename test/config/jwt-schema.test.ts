import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { type JwtInput, jwtSchema, mistakesOfJwt } from '../../src/config/check/jwt-schema.ts'
import { mistakeOf } from '../../src/config/check/mistake.ts'
import { compileJwt } from '../../src/config/compile-jwt.ts'

const ISSUER = { issuer: 'https://issuer.example.com/', audience: 'api' }
const JWKS = { jwks: 'https://issuer.example.com/jwks.json', algorithms: ['RS256'], ...ISSUER }
const SECRET = { secret: 'JWT_SECRET', algorithms: ['HS256'], ...ISSUER }
const ACCESS = { access: 'https://team.cloudflareaccess.com', audience: 'aud-tag' }

/** The mistakes, as the check reports them for an issuer with the name `auth0`. */
function mistakesIn(input: unknown, plans = ['free', 'pro']): string[] {
  const parsed = v.safeParse(v.object({ auth0: jwtSchema }), { auth0: input })
  const mistakes = parsed.success
    ? mistakesOfJwt('auth0', parsed.output.auth0, plans).map(([key, message]) => `auth0.${key}: ${message}`)
    : parsed.issues.map(mistakeOf).map(({ path, message }) => `${path}: ${message}`)
  return [...new Set(mistakes)]
}

const compiled = (input: unknown) => {
  expect(mistakesIn(input)).toEqual([])
  return compileJwt('auth0', v.parse(jwtSchema, input))
}

describe('an issuer of tokens', () => {
  it('with a key set gets its defaults', () => {
    expect(compiled(JWKS)).toEqual({
      name: 'auth0',
      keys: { jwks: 'https://issuer.example.com/jwks.json' },
      issuer: 'https://issuer.example.com/',
      audience: ['api'],
      algorithms: ['RS256'],
      clockToleranceSeconds: 5,
      consumerClaims: ['sub'],
      plans: {},
      modes: {},
      sharesConsumers: false,
    })
  })

  it('with a secret gets the name of its variable', () => {
    expect(compiled({ ...SECRET, algorithms: ['HS256', 'HS512'] })).toMatchObject({
      keys: { secret: 'JWT_SECRET' },
      algorithms: ['HS256', 'HS512'],
    })
  })

  it.each(['https://team.cloudflareaccess.com', 'https://team.cloudflareaccess.com/'])(
    'can be Cloudflare Access, with the URL of the team: %s',
    access => {
      expect(compiled({ ...ACCESS, access })).toEqual({
        name: 'auth0',
        keys: { jwks: 'https://team.cloudflareaccess.com/cdn-cgi/access/certs' },
        issuer: 'https://team.cloudflareaccess.com',
        audience: ['aud-tag'],
        algorithms: ['RS256'],
        clockToleranceSeconds: 5,
        header: 'cf-access-jwt-assertion',
        consumerClaims: ['sub', 'common_name'],
        plans: {},
        modes: {},
        sharesConsumers: false,
      })
    },
  )

  it('can have all settings', () => {
    const input: JwtInput = {
      jwks: 'http://localhost:8080/keys?tenant=a',
      algorithms: ['ES256', 'EdDSA', 'PS512'],
      issuer: 'issuer',
      audience: ['web', 'api'],
      clockTolerance: '1.5s',
      header: 'X-Token',
      claims: { consumer: ['https://example.com/org', 'sub'], plan: 'tier' },
      plans: { gold: 'pro' },
      sharesConsumers: true,
    }
    expect(compiled(input)).toEqual({
      name: 'auth0',
      keys: { jwks: 'http://localhost:8080/keys?tenant=a' },
      issuer: 'issuer',
      audience: ['web', 'api'],
      algorithms: ['ES256', 'EdDSA', 'PS512'],
      clockToleranceSeconds: 1.5,
      header: 'x-token',
      consumerClaims: ['https://example.com/org', 'sub'],
      planClaim: 'tier',
      plans: { gold: 'pro' },
      modes: {},
      sharesConsumers: true,
    })
    expect(compiled({ ...ACCESS, header: 'X-Token', claims: { consumer: 'email' } })).toMatchObject({
      header: 'x-token',
      consumerClaims: ['email'],
    })
  })
})

describe('a mistake', () => {
  const NO_KEYS =
    "auth0: has no keys. Write jwks: 'https://…', secret: 'NAME_OF_A_VARIABLE' or access: 'https://team.cloudflareaccess.com'."
  const METHOD =
    "auth0: is not an issuer. Write { jwks: 'https://…', algorithms: ['RS256'], issuer: 'https://…', audience: '…' }."
  const ADDRESS =
    "is not the URL of a key set. Write an https URL (http only for localhost), as in 'https://issuer.example.com/.well-known/jwks.json'."
  const TEAM =
    "is not the URL of an Access team. Write it like 'https://team.cloudflareaccess.com', without a path."
  const PUBLIC = 'Use RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA or Ed25519.'
  const SHARED = 'Use HS256, HS384 or HS512.'
  const UNSIGNED = 'is not allowed: a token without a signature proves nothing.'
  const VARIABLE =
    "auth0.secret: is not the name of a variable. Write the name in capitals, as in 'JWT_SECRET', and never the secret itself: npx wrangler secret put JWT_SECRET"
  const COMMON = 'audience, clockTolerance, header, claims, plans, modes, sharesConsumers.'
  const ISS = "Write the iss of its tokens, as in 'https://issuer.example.com/'."
  const AUD = "Write the aud of its tokens, as in 'api'."
  const CLAIM = "is not a claim name. Write it like 'sub' or ['sub', 'email']."

  it.each([
    ['text instead of an object', 'https://issuer.example.com', [METHOD]],
    ['null', null, [METHOD]],
    ['no keys', ISSUER, [NO_KEYS]],
    ['an empty object', {}, [NO_KEYS]],
    [
      'a key set and a secret',
      { ...SECRET, ...JWKS },
      ['auth0: has jwks and secret. Keep one of them: keys come from one place.'],
    ],
    [
      'a key set, a secret and Access',
      { ...SECRET, ...JWKS, ...ACCESS },
      ['auth0: has jwks and secret and access. Keep one of them: keys come from one place.'],
    ],

    ['jwks that is not a URL', { ...JWKS, jwks: 'issuer' }, [`auth0.jwks: 'issuer' ${ADDRESS}`]],
    [
      'jwks without a value',
      { ...JWKS, jwks: undefined },
      [
        "auth0.jwks: is missing. Write an https URL (http only for localhost), as in 'https://issuer.example.com/.well-known/jwks.json'.",
      ],
    ],
    [
      'jwks over plain http',
      { ...JWKS, jwks: 'http://issuer.example.com/' },
      [`auth0.jwks: 'http://issuer.example.com/' ${ADDRESS}`],
    ],
    [
      'jwks on a host that only looks local',
      { ...JWKS, jwks: 'http://localhost.example.com/' },
      [`auth0.jwks: 'http://localhost.example.com/' ${ADDRESS}`],
    ],
    [
      'jwks with a password',
      { ...JWKS, jwks: 'https://a:b@c.example/' },
      [`auth0.jwks: 'https://…@c.example/' ${ADDRESS}`],
    ],
    ['jwks as a file', { ...JWKS, jwks: 'file:///keys' }, [`auth0.jwks: 'file:///keys' ${ADDRESS}`]],

    ['a secret instead of its name', { ...SECRET, secret: 's3cret/s3cret+s3cret=' }, [VARIABLE]],
    ['a secret in an object', { ...SECRET, secret: { value: 's3cret' } }, [VARIABLE]],
    ['an empty name of a variable', { ...SECRET, secret: '' }, [VARIABLE]],

    [
      'algorithms without a value',
      { ...JWKS, algorithms: undefined },
      ["auth0.algorithms: is missing. Write what the issuer signs with, as in ['RS256']."],
    ],
    [
      'algorithms as text',
      { ...JWKS, algorithms: 'RS256' },
      [
        "auth0.algorithms: 'RS256' is not a list of algorithms. Write what the issuer signs with, as in ['RS256'].",
      ],
    ],
    [
      'an empty list of algorithms',
      { ...SECRET, algorithms: [] },
      ["auth0.algorithms: [] is empty. Write what the issuer signs with, as in ['HS256']."],
    ],
    ['alg none', { ...JWKS, algorithms: ['none'] }, [`auth0.algorithms[0]: 'none' ${UNSIGNED} ${PUBLIC}`]],
    [
      'alg None among others',
      { ...SECRET, algorithms: ['HS256', 'None'] },
      [`auth0.algorithms[1]: 'None' ${UNSIGNED} ${SHARED}`],
    ],
    [
      'HS256 with a key set',
      { ...JWKS, algorithms: ['RS256', 'HS256'] },
      [
        `auth0.algorithms[1]: 'HS256' cannot be combined with jwks: anyone who reads the public key could sign with it. ${PUBLIC}`,
      ],
    ],
    [
      'ES256 with a secret',
      { ...SECRET, algorithms: ['ES256'] },
      [
        `auth0.algorithms[0]: 'ES256' cannot be combined with secret: it uses public keys, which come from jwks. ${SHARED}`,
      ],
    ],
    [
      'an unknown algorithm',
      { ...JWKS, algorithms: ['rs256', 1] },
      [
        `auth0.algorithms[0]: 'rs256' is not an algorithm. Did you mean 'RS256'? ${PUBLIC}`,
        `auth0.algorithms[1]: 1 is not an algorithm. ${PUBLIC}`,
      ],
    ],

    [
      'no issuer and no audience',
      { ...SECRET, issuer: undefined, audience: undefined },
      [`auth0.issuer: is missing. ${ISS}`, `auth0.audience: is missing. ${AUD}`],
    ],
    [
      'only keys',
      { jwks: JWKS.jwks },
      [
        "auth0.algorithms: is missing. Write what the issuer signs with, as in ['RS256'].",
        `auth0.issuer: is missing. ${ISS}`,
        `auth0.audience: is missing. ${AUD}`,
      ],
    ],
    ['an empty issuer', { ...JWKS, issuer: '' }, [`auth0.issuer: '' is not an issuer. ${ISS}`]],
    ['an empty audience', { ...JWKS, audience: '' }, [`auth0.audience: '' is not an audience. ${AUD}`]],
    ['no audience', { ...JWKS, audience: [] }, [`auth0.audience: [] is not an audience. ${AUD}`]],
    [
      'an audience that is not text',
      { ...JWKS, audience: ['api', 1] },
      [`auth0.audience: ['api', 1] is not an audience. ${AUD}`],
    ],

    [
      'too much tolerance',
      { ...JWKS, clockTolerance: '6m' },
      ["auth0.clockTolerance: '6m' is out of range. Use a duration from '0s' to '5m'."],
    ],
    [
      'tolerance as a number',
      { ...JWKS, clockTolerance: 5 },
      [
        "auth0.clockTolerance: 5 is not a duration. Write a number and a unit in quotes, as in '250ms', '1s', '15m', '1h' or '1d'.",
      ],
    ],
    [
      'an invalid header name',
      { ...JWKS, header: 'X Token' },
      ["auth0.header: 'X Token' is not a header name. Write it like 'X-Token'."],
    ],
    [
      'the Authorization header',
      { ...JWKS, header: 'Authorization' },
      [
        "auth0.header: 'Authorization' needs no setting: Authorization: Bearer is the default. Remove this line.",
      ],
    ],
    [
      'the header of API keys',
      { ...JWKS, header: 'X-API-Key' },
      ["auth0.header: 'X-API-Key' is the header of API keys. Name another header."],
    ],
    [
      'claims as text',
      { ...JWKS, claims: 'sub' },
      ["auth0.claims: 'sub' is not an object. Write it like { consumer: 'sub', plan: 'plan' }."],
    ],
    [
      'an unknown claim',
      { ...JWKS, claims: { subject: 'sub' } },
      ['auth0.claims.subject: is not a setting here. Settings: consumer, plan, mode.'],
    ],
    [
      'empty claim names',
      { ...JWKS, claims: { consumer: [], plan: '' } },
      [
        `auth0.claims.consumer: [] ${CLAIM}`,
        "auth0.claims.plan: '' is not a claim name. Write it like 'plan'.",
      ],
    ],
    [
      'plans as text',
      { ...JWKS, plans: 'pro' },
      ["auth0.plans: 'pro' is not an object. Write it like { gold: 'pro' }."],
    ],
    [
      'a plan that is not a name',
      { ...JWKS, plans: { gold: 'Pro' } },
      ["auth0.plans.gold: 'Pro' is not a plan name. Use 1 to 63 lowercase letters, digits, '-' and '_'."],
    ],
    [
      'plans without a claim',
      { ...JWKS, plans: { gold: 'pro' } },
      [
        'auth0.plans: has no effect without claims.plan. Name the claim that holds the plan in tokens of auth0, or leave plans out.',
      ],
    ],
    [
      'a plan that the config does not have',
      { ...ACCESS, claims: { plan: 'tier' }, plans: { gold: 'max' } },
      ["auth0.plans.gold: 'max' is not in plans (free, pro). Add it there."],
    ],
    [
      'sharesConsumers as text',
      { ...JWKS, sharesConsumers: 'yes' },
      ["auth0.sharesConsumers: 'yes' is neither true nor false. Write true or false, without quotes."],
    ],
    [
      'an unknown setting',
      { ...JWKS, aud: 'api' },
      [`auth0.aud: is not a setting here. Settings: jwks, algorithms, issuer, ${COMMON}`],
    ],
    [
      'an unknown setting beside a secret',
      { ...SECRET, key: 's3cret' },
      [`auth0.key: is not a setting here. Settings: secret, algorithms, issuer, ${COMMON}`],
    ],

    [
      'Access with algorithms',
      { ...ACCESS, algorithms: ['RS256'] },
      [`auth0.algorithms: is not a setting here. Settings: access, ${COMMON}`],
    ],
    ['Access with the name of a team', { ...ACCESS, access: 'team' }, [`auth0.access: 'team' ${TEAM}`]],
    [
      'Access with a path',
      { ...ACCESS, access: `${ACCESS.access}/cdn-cgi` },
      [`auth0.access: 'https://team.cloudflareaccess.com/cdn-cgi' ${TEAM}`],
    ],
    [
      'Access over plain http',
      { ...ACCESS, access: 'http://team.cloudflareaccess.com' },
      [`auth0.access: 'http://team.cloudflareaccess.com' ${TEAM}`],
    ],
    ['Access without audience', { access: ACCESS.access }, [`auth0.audience: is missing. ${AUD}`]],
  ])('is reported: %s', (_, input, mistakes) => expect(mistakesIn(input)).toEqual(mistakes))

  it('never shows a value that may be the secret', () => {
    for (const input of [
      's3cret',
      { secret: 's3cret', jwks: 's3cret' },
      { ...SECRET, secret: 's3cret' },
      { Secret: 's3cret' },
    ]) {
      expect(mistakesIn(input).join()).not.toContain('s3cret')
    }
  })
})
