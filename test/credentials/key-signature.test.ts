/** Signed keys: their form and MAC, the secrets that sign them, and that no other text passes for one. */
import { createHmac } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import { ConfigError } from '../../src/config/config-error.ts'
import { apiKeyStart, consumerOfApiKey, mintApiKey } from '../../src/credentials/api-key.ts'
import type { Credential } from '../../src/credentials/credential.ts'
import { createCredentialFinder } from '../../src/credentials/find-credential.ts'
import {
  createSignatureCheck,
  isSigned,
  KEY_SECRET,
  type KeySecret,
  mintSignedKey,
  newKeySecret,
  readKeySecrets,
} from '../../src/credentials/key-signature.ts'
import { ALL_PARTS } from '../../src/set-ups/http/all-parts.ts'
import { SELECTION } from '../selection.ts'
import { randomFrom, SEED } from '../support/random.ts'

const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const DAY_MS = 86400e3
const NOON = Date.UTC(2026, 10, 25, 12)

const A: KeySecret = { id: 'a1', text: 'a-secret-of-the-tests-of-32-characters-or-more' }
const B: KeySecret = { id: 'B2', text: 'another-secret-of-the-tests-also-long-enough' }
const variableOf = (...secrets: KeySecret[]) => secrets.map(({ id, text }) => `${id}:${text}`).join(', ')

const mint = (
  consumer = 'acme',
  {
    secret = A,
    environment,
    issuedAt = NOON,
  }: { secret?: KeySecret; environment?: string | undefined; issuedAt?: number } = {},
) => mintSignedKey({ consumer, start: apiKeyStart('slk', environment), environment, secret, issuedAt })

/** A finder as in a new isolate. @param variable `SLUICE_KEY_SECRET` */
function finderWith(
  variable: string | undefined,
  { signature = 'check', environment }: { signature?: 'check' | 'require'; environment?: string } = {},
) {
  const config = checkedConfig({
    rules: [],
    credentials: { apiKeys: { signature }, onStoreFailure: 'signed' },
  })
  const finder = createCredentialFinder(
    { ...config, ...(environment !== undefined && { environment }) },
    { [KEY_SECRET]: variable },
    ALL_PARTS,
    () => NOON,
  )
  const find = async (key: string) => finder.find(['api-key'], new Headers({ 'x-api-key': key }))
  return {
    ...finder,
    find,
    /** The reason of the refusal; `signed` or `unsigned` if the store has to decide. */
    async resultOf(key: string): Promise<string | undefined> {
      const found = await find(key)
      if (!found || 'reason' in found) return found?.reason
      return found.subject.kind === 'key' && found.subject.planInOutage !== undefined ? 'signed' : 'unchecked'
    },
  }
}

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

  it('is refused after a change of any one character', async () => {
    const { resultOf } = finderWith(variableOf(A), { signature: 'require' })
    const key = await mint()
    expect(await resultOf(key)).toBe('signed')
    for (let i = 0; i < key.length; i++) {
      const changed = key.slice(0, i) + (key[i] === 'x' ? 'y' : 'x') + key.slice(i + 1)
      expect(['bad-signature', 'malformed', 'unsigned'], changed).toContain(await resultOf(changed))
    }
  })

  it('of another environment is refused, even where its text reads as a key of this one', async () => {
    const key = await mint('acme', { environment: 'test' })
    expect(consumerOfApiKey(key)).toBe('test_acme')
    expect(await finderWith(variableOf(A)).resultOf(key)).toBe('bad-signature')
    expect(await finderWith(variableOf(A), { environment: 'test' }).resultOf(key)).toBe('signed')
    expect(await finderWith(variableOf(A), { environment: 'live' }).resultOf(key)).toBe('malformed')
  })

  it('is checked with the secret that it names, so a new secret can sign while old keys stay valid', async () => {
    const [old, renewed] = [await mint('acme', { secret: A }), await mint('acme', { secret: B })]
    const { resultOf } = finderWith(variableOf(B, A))
    expect([await resultOf(old), await resultOf(renewed)]).toEqual(['signed', 'signed'])
    // The same id with another text is another secret.
    expect(await finderWith(variableOf({ ...B, id: A.id })).resultOf(old)).toBe('bad-signature')
  })

  it('by a secret that the isolate does not have is left to the store, unless signatures are required', async () => {
    const key = await mint('acme', { secret: A })
    expect(await finderWith(variableOf(B)).resultOf(key)).toBe('unchecked')
    expect(await finderWith(variableOf(B), { signature: 'require' }).resultOf(key)).toBe('unsigned')
  })

  it('is not checked again while the isolate remembers it', async () => {
    let checks = 0
    const parts: typeof ALL_PARTS = {
      ...ALL_PARTS,
      createSignatureCheck: (...of) => {
        const check = createSignatureCheck(...of)
        return async (...key) => {
          checks += 1
          return await check(...key)
        }
      },
    }
    const config = checkedConfig({ rules: [], credentials: { apiKeys: { signature: 'check' } } })
    const { find, remember } = createCredentialFinder(config, { [KEY_SECRET]: variableOf(A) }, parts)
    const headers = new Headers({ 'x-api-key': await mint() })
    const found = (await find(['api-key'], headers)) as Credential
    await find(['api-key'], headers)
    expect(checks).toBe(2)
    remember(found, { status: 'admitted', plan: 'free', at: 1, verdicts: [] })
    for (let i = 0; i < 5; i++) expect(await find(['api-key'], headers)).toMatchObject({ consumer: 'acme' })
    expect(checks).toBe(2)
  })
})

describe('a key without a signature', () => {
  it('is left to the store, unless signatures are required', async () => {
    const key = mintApiKey('acme')
    expect(await finderWith(variableOf(A)).resultOf(key)).toBe('unchecked')
    expect(await finderWith(variableOf(A), { signature: 'require' }).resultOf(key)).toBe('unsigned')
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
    const config = checkedConfig({ rules: [], credentials: { apiKeys: { signature: 'check' } } })
    const read = () => createSignatureCheck(config, { [KEY_SECRET]: variable }, Date.now)
    expect(read).toThrow(ConfigError)
    expect(read).toThrow(message)
    expect(read).not.toThrow(/xxxx/)
  })
})

const TAILS = SELECTION === 'all' ? 1_000_000 : 5000

describe('random texts', () => {
  it(`never pass for a signed key, and none of ${TAILS.toLocaleString('en')} causes an exception`, async () => {
    const random = randomFrom(SEED)
    const key = await mint()
    const { resultOf } = finderWith(variableOf(A, B), { signature: 'require' })
    const characters = [...DIGITS, '_', '-', '.', ' ', '\t', '=', '/', '~', 'é', '\u0000', ':']
    const text = (length: number, of: readonly string[] = characters) =>
      Array.from({ length }, () => random.pick(of)).join('')
    const digits = [...DIGITS]
    const forms: (() => string)[] = [
      // The form of a signed key, with a known and an unknown secret.
      () => `slk_acme_${text(30, digits)}${random.pick(['l', 't'])}${text(3, digits)}a1${text(22, digits)}`,
      () => `slk_acme_${text(30, digits)}${random.pick(['l', 't'])}${text(27, digits)}`,
      // A valid key with one part exchanged, cut off or repeated.
      () => {
        const [from, length] = [random.int(0, key.length), random.int(0, 30)]
        return key.slice(0, from) + text(random.int(0, 30), digits) + key.slice(from + length)
      },
      () => key.slice(0, random.int(0, key.length - 1)),
      () => key + text(random.int(1, 60)),
      // Anything.
      () => `slk_${text(random.int(0, 170))}`,
      () => `slk_${text(random.int(0, 30))}_${text(random.int(30, 64))}`,
    ]
    const results = new Map<string | undefined, number>()
    for (let i = 0; i < TAILS; i++) {
      const made = random.pick(forms)()
      if (made === key || !isHeaderValue(made)) continue
      const result = await resultOf(made)
      results.set(result, (results.get(result) ?? 0) + 1)
    }
    expect(results.get('signed')).toBeUndefined()
    expect(results.get('unchecked')).toBeUndefined()
    expect(results.get('bad-signature')).toBeGreaterThan(TAILS / 20)
    expect(results.get('unsigned')).toBeGreaterThan(TAILS / 20)
    expect(results.get('malformed')).toBeGreaterThan(TAILS / 20)
  }, 600_000)
})

/** Headers refuse other texts, and remove spaces at the end: the rest may be the key itself. */
const isHeaderValue = (text: string) => /^[\x20-\x7e\xa0-\xff]*$/.test(text) && text.trim() === text
