import { createHash } from 'node:crypto'
import { crc32 } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { isConsumerName } from '../../src/config/forms.ts'
import { consumerOfApiKey, mintApiKey } from '../../src/credentials/api-key.ts'
import { sha256 } from '../../src/sha256.ts'

describe('an API key', () => {
  it('names its consumer and is unique', () => {
    for (const consumer of ['a', 'acme', 'Org_12.x-y', 'cus_NffrFeUfNV2Hib', 'x'.repeat(64)]) {
      const key = mintApiKey(consumer)
      expect(key).toMatch(/^slk_[A-Za-z0-9._-]{1,64}_[0-9A-Za-z]{36}$/)
      expect(consumerOfApiKey(key)).toBe(consumer)
    }
    expect(new Set(Array.from({ length: 1000 }, () => mintApiKey('a'))).size).toBe(1000)
  })

  it('ends with the CRC-32 of the preceding text, in base62', () => {
    const key = mintApiKey('acme')
    const digits = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
    const value = [...key.slice(-6)].reduce((sum, digit) => sum * 62 + digits.indexOf(digit), 0)
    expect(value).toBe(crc32(key.slice(0, -6)))
  })

  it('is invalid after a change of any one character', () => {
    const key = mintApiKey('acme')
    for (let i = 0; i < key.length; i++) {
      const changed = key.slice(0, i) + (key[i] === 'x' ? 'y' : 'x') + key.slice(i + 1)
      expect(consumerOfApiKey(changed), changed).toBeUndefined()
    }
  })

  it.each([
    '',
    'slk_',
    'slk__',
    'slk_acme',
    'Bearer x',
    `slk_${'a'.repeat(10_000)}_x`,
    'slk_{}_:*',
    'slk_a\0b_c',
    '🚦',
  ])('is not valid as %j', text => expect(consumerOfApiKey(text)).toBeUndefined())

  it('is stored as its SHA-256', async () => {
    const key = mintApiKey('acme')
    expect(sha256(key)).toBe(createHash('sha256').update(key).digest('hex'))
  })
})

describe('a consumer name', () => {
  it.each(['', '-a', '_a', 'a b', 'a:b', 'a{b', 'a}', 'ä', 'a\n', 'a'.repeat(65)])('cannot be %j', name => {
    expect(isConsumerName(name)).toBe(false)
    expect(() => mintApiKey(name)).toThrow(TypeError)
  })
})
