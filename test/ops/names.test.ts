import { describe, expect, it } from 'vitest'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { jwtConsumer } from '../../src/credentials/jwt-verifier.ts'
import { mintSignedKey } from '../../src/credentials/key-signature.ts'
import { mintServiceToken } from '../../src/credentials/service-token.ts'
import {
  parseConsumerName,
  parseFutureTime,
  parsePlan,
  parseShortText,
  parseTime,
  printable,
} from '../../src/ops/names.ts'
import { sha256 } from '../../src/sha256.ts'
import { escaped } from '../../src/store/escape.ts'
import { randomFrom, SEED } from '../support/random.ts'

const NOW = new Date('2026-01-01T00:00:00Z')

describe('a secret of ours', async () => {
  const secret = { id: 'ab', text: 'x'.repeat(32) }
  const issuedAt = NOW.getTime()
  const SECRETS = [
    ['an API key', mintApiKey('acme')],
    ['an API key of an environment', mintApiKey('a.b-c_d', 'key_live_')],
    ['a test key', mintApiKey('acme', 'slk_', 'test')],
    [
      'a signed key',
      await mintSignedKey({
        ...{ consumer: 'acme', start: 'slk_', mode: 'live', environment: undefined, secret, issuedAt },
      }),
    ],
    ['a service token', mintServiceToken(undefined)],
    ['a service token of an environment', mintServiceToken('live')],
  ] as const
  it.each(SECRETS)('%s is no consumer, label, reason or name', async (_, text) => {
    for (const given of [text, `auth0~${text}`])
      await expect(parseConsumerName(given)).rejects.toThrow('contains an API key or a service token')
    for (const given of [text, `(${text})`, `x: ${text}.`, `leaked-${text}`].filter(
      each => each.length <= 100,
    )) {
      const error = (() => {
        try {
          return parseShortText(given, 'reason')
        } catch (error) {
          return error
        }
      })()
      expect(String(error)).toMatch(/The reason contains an API key or a service token/)
      expect(String(error)).not.toContain(text)
    }
  })

  it.each([
    'slk_acme',
    'acme/0f3a9c1d2b4e',
    sha256('a'),
    `a_${sha256('a')}`,
    `${mintApiKey('acme').slice(0, -1)}!`,
    'deploy_2026_11_26',
  ])('%s contains no secret', text => {
    expect(parseShortText(text, 'reason')).toBe(text)
  })
})

describe('a consumer', () => {
  it.each([
    ['acme', 'acme'],
    ['a.b_c-d', 'a.b_c-d'],
    ['auth0~user|1', 'auth0~user%7C1'],
    // The form that `consumers list` prints.
    ['auth0~user%7C1', 'auth0~user%7C1'],
    ['auth0~a~b*c', 'auth0~a%7Eb%2Ac'],
    ['auth0~100%25', 'auth0~100%25'],
    // A claim with what looks like an escape: its percent sign is written as %25, too.
    ['auth0~bob%40x.org', 'auth0~bob%40x.org'],
    ['auth0~bob@x.org', 'auth0~bob%40x.org'],
    ['auth0~bob%2540x.org', 'auth0~bob%2540x.org'],
    // Other spellings of an escape, and text that is only partly escaped.
    ['auth0~user%7c1', 'auth0~user%7C1'],
    ['auth0~%75ser|1', 'auth0~user%7C1'],
    ['auth0~a|b%7Cc', 'auth0~a%7Cb%7Cc'],
    [`auth0~${'%40'.repeat(40)}`, `auth0~${escaped('@'.repeat(40))}`],
    ['auth0~ü', 'auth0~%C3%BC'],
  ])('%s has the name %s in keys', async (text, name) => {
    expect(await parseConsumerName(text)).toBe(name)
    expect(await parseConsumerName(name)).toBe(name)
  })

  it.each(['auth0~100%', 'auth0~%zz', 'auth0~%ff', 'auth0~a%4'])(
    '%s is refused, because its percent sign could be part of the claim',
    async text => {
      await expect(parseConsumerName(text)).rejects.toThrow(/begins no escape.* write %25 for a percent sign/)
    },
  )

  it('has one name for each claim, which names this claim again', async () => {
    const random = randomFrom(SEED)
    const pieces = [
      '%',
      '%25',
      '%40',
      '@',
      '4',
      '0',
      '|',
      '%7C',
      '%7c',
      '~',
      '*',
      '#',
      'a',
      'ü',
      '%C3%BC',
      ' ',
      '+',
    ]
    for (let i = 0; i < 2000; i++) {
      const claim = Array.from({ length: random.int(1, 6) }, () => random.pick(pieces)).join('')
      const name = jwtConsumer('auth0', claim)
      expect(await parseConsumerName(name), `seed ${SEED}: ${claim}`).toBe(name)
      expect(await parseConsumerName(`auth0~${claim.replaceAll('%', '%25')}`), `seed ${SEED}: ${claim}`).toBe(
        name,
      )
    }
  })

  it('with a long subject is named by its digest', async () => {
    const subject = 'a'.repeat(101)
    const name = `auth0~${escaped(subject)}`
    expect(name).toMatch(/^auth0~#[0-9a-f]{64}$/)
    expect([await parseConsumerName(`auth0~${subject}`), await parseConsumerName(name)]).toEqual([name, name])
  })

  it.each(['', '~x', 'auth0~', '-a', 'a b', 'a{b', 'A~x', 'a'.repeat(65), '\u001b[2J'])(
    'cannot have the name %j',
    async text => {
      const error = await parseConsumerName(text).catch(error => error)
      expect(error).toMatchObject({
        kind: 'usage',
        message: expect.stringContaining('is not a consumer name'),
      })
      expect(error.message).not.toMatch(/\p{Cc}/u)
    },
  )
})

it('a plan has to be in the config', () => {
  expect(parsePlan('pro', ['free', 'pro'])).toBe('pro')
  expect(() => parsePlan('gold', ['free', 'pro'])).toThrow(/has no plan 'gold'\. Plans: free, pro\.$/)
  expect(() => parsePlan('por', ['free', 'pro'])).toThrow(
    /has no plan 'por'\. Did you mean 'pro'\? Plans: free, pro\.$/,
  )
})

it('a label is a short line', () => {
  expect(parseShortText(' für alle ', 'label')).toBe('für alle')
  for (const text of ['', '  ', '\ud800', 'x'.repeat(101)]) {
    expect(() => parseShortText(text, 'label'), text).toThrow(
      /^The label is not valid\. Use 1 to 100 characters/,
    )
  }
})

it.each([
  ['a\nb', 'U+000A'],
  ['\u001b[1mx', 'U+001B'],
  ['ci\u202egnp', 'U+202E'],
  ['a\u2066b\u2069', 'U+2066'],
  ['a\u200bb', 'U+200B'],
  ['a\u2028b', 'U+2028'],
  ['a\u{e0041}', 'U+E0041'],
])('a label has no character that changes how it is shown: %j', (text, name) => {
  expect(() => parseShortText(text, 'label')).toThrow(
    `The label is not valid: it contains ${name}, an invisible character. Remove it`,
  )
  expect(printable(text)).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}]/u)
})

describe('a time', () => {
  it.each([
    ['now', '2026-01-01T00:00:00.000Z'],
    ['24h', '2026-01-02T00:00:00.000Z'],
    ['0s', '2026-01-01T00:00:00.000Z'],
    ['2030-12-31', '2030-12-31T00:00:00.000Z'],
    ['2030-12-31T18:00Z', '2030-12-31T18:00:00.000Z'],
    ['2030-12-31T18:00:00+02:00', '2030-12-31T16:00:00.000Z'],
  ])('%s is %s', (text, time) => {
    expect(parseTime(text, NOW)?.toISOString()).toBe(time)
  })

  it('can be never', () => {
    expect(parseTime('never', NOW)).toBeUndefined()
  })

  // Without a time zone, the time would depend on the machine.
  it.each(['', 'tomorrow', '5', '-1h', '2030-12-31T18:00', '2030-02-31x', '2030-13-01', '1000000000d'])(
    'cannot be %j',
    text => {
      expect(() => parseTime(text, NOW)).toThrow()
    },
  )

  it.each(['2030-02-31', '2030-02-29', '2030-04-31T18:00Z', '2030-13-01', '2030-00-10', '2030-01-00'])(
    'has to be a day of the calendar, unlike %s',
    text => {
      expect(() => parseTime(text, NOW)).toThrow(
        `'${text}' is neither a duration nor a valid time. Use a duration such as '24h' or '90d', or a time`,
      )
    },
  )

  it('can be a leap day', () => {
    expect(parseTime('2028-02-29', NOW)?.toISOString()).toBe('2028-02-29T00:00:00.000Z')
  })

  it('has to be in the future where a future time is needed', () => {
    expect(() => parseFutureTime('2020-01-01', NOW)).toThrow(/is in the past/)
    expect(() => parseFutureTime('now', NOW)).toThrow(/is in the past/)
    expect(parseFutureTime('1s', NOW)?.getTime()).toBe(NOW.getTime() + 1000)
  })
})
