/** Signed keys: their form and MAC, and the secrets that sign them. */
import { createHmac } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { ConfigError } from '../../src/config/config-error.ts'
import { apiKeyStart, consumerOfApiKey, mintApiKey } from '../../src/credentials/api-key.ts'
import {
  isSigned,
  type KeySecret,
  mintSignedKey,
  newKeySecret,
  readKeySecrets,
} from '../../src/credentials/key-signature.ts'

const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const DAY_MS = 86400e3
const NOON = Date.UTC(2026, 10, 25, 12)

const A: KeySecret = { id: 'a1', text: 'a-secret-of-the-tests-of-32-characters-or-more' }

const mint = (
  consumer = 'acme',
  {
    secret = A,
    environment,
    issuedAt = NOON,
  }: { secret?: KeySecret; environment?: string | undefined; issuedAt?: number } = {},
) => mintSignedKey({ consumer, start: apiKeyStart('slk', environment), environment, secret, issuedAt })

describe('a signed key', () => {
  it('ends with the mode, the day, the id of the secret and a MAC of 128 bits over the environment and all before it', async () => {
    for (const environment of [undefined, 'test']) {
      const key = await mint('acme', { environment })
      const [, day, id, mac] = /_[0-9A-Za-z]{30}l([0-9A-Za-z]{3})(..)([0-9A-Za-z]{22})$/.exec(key) ?? []
      const numberOf = (digits: string) =>
        [...digits].reduce((sum, digit) => sum * 62n + BigInt(DIGITS.indexOf(digit)), 0n)
      expect(Number(numberOf(day!)) * DAY_MS).toBe(Date.UTC(2026, 10, 25))
      expect(id).toBe('a1')
      const expected = createHmac('sha256', A.text)
        .update(`${environment ?? ''}:${key.slice(0, -22)}`)
        .digest('hex')
      expect(numberOf(mac!)).toBe(BigInt(`0x${expected.slice(0, 32)}`))
    }
  })

  it('names its consumer, whatever that is called, and is at most 160 characters long', async () => {
    for (const consumer of ['a', 'Org_12.x-y', 'x'.repeat(64)]) {
      const environment = 'e'.repeat(16)
      const start = apiKeyStart('p'.repeat(12), environment)
      const key = await mintSignedKey({ consumer, start, environment, secret: A, issuedAt: NOON })
      expect([consumerOfApiKey(key, start), isSigned(key)]).toEqual([consumer, true])
      expect(isSigned(mintApiKey(consumer, start))).toBe(false)
    }
  })
})

describe('SLUICE_KEY_SECRET', () => {
  it('has one or several secrets, as `keys secret` makes them', () => {
    const [first, second] = [newKeySecret(), newKeySecret()]
    expect(readKeySecrets(`${first},${second}`).map(({ id, text }) => `${id}:${text}`)).toEqual([
      first,
      second,
    ])
    expect(readKeySecrets(` ${first}\n${second} `)).toHaveLength(2)
    expect(first.length).toBeGreaterThan(43)
  })

  const long = 'x'.repeat(32)
  it.each([
    ['missing', undefined, /is missing/],
    ['empty', ' ', /is missing/],
    ['not text', 7, /is missing/],
    ['without an id', long, /is not valid/],
    ['with a long id', `abc:${long}`, /is not valid/],
    ['with a short secret', `a1:${long.slice(1)}`, /is not valid/],
    ['with one that is not valid', `a1:${long},b2`, /is not valid/],
    ['with an id that is used twice', `a1:${long},a1:${long}y`, /same id/],
  ])('is refused if it is %s, and its value is not shown', (_, variable, message) => {
    const read = () => readKeySecrets(variable)
    expect(read).toThrow(ConfigError)
    expect(read).toThrow(message)
    expect(read).not.toThrow(/xxxx/)
  })
})
