/** Settings about the mode of callers: mistakes that `check` finds, and gaps that it warns about. */
import { describe, expect, it } from 'vitest'
import { checkConfig } from '../../src/config/check/check.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { warningsOf } from '../../src/config/check/warnings.ts'
import { ConfigError } from '../../src/config/config-error.ts'
import { jwt } from '../../src/credentials/jwt.ts'

const RULE = { name: 'rule', by: 'consumer', algorithm: 'fixed-window', limit: 9, period: '1h' } as const

function mistakesIn(config: object): string[] {
  try {
    checkConfig({ origin: 'route', rules: [], ...config })
    return []
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    return error.mistakes.map(({ path, message }) => `${path}: ${message}`)
  }
}
const withRule = (changes: object) => ({ rules: [{ ...RULE, ...changes }] })

describe('a config', () => {
  it.each([
    [{ by: ['consumer', 'mode'] }],
    [{ by: 'mode' }],
    [{ by: ['address', 'claim:org'], acrossModes: true }, ['rules[0].by']],
    [{ acrossModes: true }],
    [{ match: { mode: 'test', authenticated: true } }],
    [{ match: { mode: 'live', authenticated: false }, by: 'address' }],
  ] as [object, string[]?][])('can have a rule with %j', (changes, paths = []) => {
    // A claim needs an issuer.
    expect(mistakesIn(withRule(changes)).map(mistake => mistake.split(':')[0])).toEqual(paths)
  })

  const BAD =
    "cannot be combined with on: 'auth-failure': a bad credential has no mode. Leave one of them out."
  it.each([
    [
      { match: { mode: 'tset' } },
      "rules[0].match.mode: 'tset' is not a mode. Did you mean 'test'? Use 'live' or 'test'.",
    ],
    [
      { acrossModes: true, by: 'address' },
      'rules[0].acrossModes: has no effect: without a part that needs a credential, modes are counted together anyway. Leave it out.',
    ],
    [
      { acrossModes: true, by: ['consumer', 'mode'] },
      "rules[0].acrossModes: contradicts 'mode' in by. Leave one of them out.",
    ],
    [{ by: ['address', 'mode'], on: 'auth-failure' }, `rules[0].by: ${BAD}`],
    [{ by: 'address', on: 'auth-failure', match: { mode: 'test' } }, `rules[0].match.mode: ${BAD}`],
    [
      { by: 'address', match: { mode: 'test', authenticated: false } },
      "rules[0].match.mode: 'test' needs a credential, and match.authenticated: false is for callers without one. Change one of them.",
    ],
  ])('cannot have a rule with %j', (changes, mistake) => {
    expect(mistakesIn(withRule(changes))).toEqual([mistake])
  })

  it('cannot have an issuer with modes and no claim for them, or with other modes', () => {
    const issuer = (more: object) => ({
      credentials: {
        jwt: {
          a: jwt({ secret: 'JWT_SECRET', algorithms: ['HS256'], issuer: 'i', audience: 'api', ...more }),
        },
      },
      ...withRule({}),
    })
    expect(mistakesIn(issuer({ claims: { mode: 'env' }, modes: { sandbox: 'test' } }))).toEqual([])
    expect(mistakesIn(issuer({ modes: { sandbox: 'test' } }))).toEqual([
      'credentials.jwt.a.modes: has no effect without claims.mode. Name the claim that holds the mode in tokens of a, or leave modes out.',
    ])
    expect(mistakesIn(issuer({ claims: { mode: 'env' }, modes: { sandbox: 'tests' } }))).toEqual([
      "credentials.jwt.a.modes.sandbox: 'tests' is not a mode. Did you mean 'test'? Use 'live' or 'test'.",
    ])
  })
})

describe('a warning', () => {
  const warnings = (config: Partial<ConfigInput>) =>
    warningsOf(checkConfig({ origin: 'route', ...config })).map(({ message }) => message)
  const gap = (callers: string) =>
    `every request from ${callers} may pass without a limit. Add a rule that matches all of them, or set limits: false on a route if that is intended.`

  it('names callers of the mode that no rule covers', () => {
    const only = (mode: 'live' | 'test') => ({ rules: [{ ...RULE, match: { mode } }] })
    expect(warnings(only('test'))).toEqual([gap('callers with a live key')])
    expect(warnings(only('live'))).toEqual([gap('callers with a test key')])
    const both = [...only('test').rules, { ...only('live').rules[0]!, name: 'other' }]
    expect(warnings({ rules: both })).toEqual([])
  })

  it('knows that a rule which counts both modes together can refuse before one that counts them apart', () => {
    const twice = (one: object, other: object) =>
      warnings({
        rules: [
          { ...RULE, ...one },
          { ...RULE, name: 'other', limit: 27, ...other },
        ],
      })
    expect(twice({}, {})).toEqual([expect.stringMatching(/^never refuses: 'rule' /)])
    expect(twice({}, { acrossModes: true })).toEqual([])
    expect(twice({ acrossModes: true }, {})).toEqual([expect.stringMatching(/^never refuses: 'rule' /)])
  })

  it('names test tokens only if the config says how they are recognized', () => {
    const withTokens = (more: object) => ({
      rules: [{ ...RULE, match: { mode: 'live' as const } }],
      credentials: {
        accept: ['a'],
        jwt: {
          a: jwt({ secret: 'JWT_SECRET', algorithms: ['HS256'], issuer: 'i', audience: 'api', ...more }),
        },
      },
    })
    expect(warnings(withTokens({}))).toEqual([])
    expect(warnings(withTokens({ claims: { mode: 'env' } }))).toEqual([gap('callers with a test token')])
  })
})
