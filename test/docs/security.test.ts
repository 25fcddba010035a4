/** What docs/security.md says about headers, and its advice for finding leaked keys. */
import { readFileSync } from 'node:fs'
import { crc32 } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { withHeaderTable } from '../../docs/programs/reference/make-header-table.ts'
import { apiKeyStart, mintApiKey } from '../../src/credentials/api-key.ts'
import { mintSignedKey, newKeySecret, readKeySecrets } from '../../src/credentials/key-signature.ts'

const page = readFileSync(new URL('../../docs/security.md', import.meta.url), 'utf8')

const SIGNED = await mintSignedKey({
  ...{ consumer: 'acme', start: apiKeyStart('slk', 'live'), environment: 'live', issuedAt: Date.now() },
  secret: readKeySecrets(newKeySecret())[0]!,
})

describe('the expression for secret scanners', () => {
  const expression = new RegExp(/`(\\bslk_.+?)`/.exec(page)![1]!)

  it.each([
    mintApiKey('acme'),
    mintApiKey('a.b_c-d'),
    mintApiKey('a'.repeat(64)),
    mintApiKey('acme', apiKeyStart('slk', 'live')),
    SIGNED,
  ])('finds %s', key => {
    expect(expression.exec(`KEY="${key}"`)?.[0]).toBe(key)
    expect(expression.test(key.slice(0, -1))).toBe(false)
  })

  it('finds test keys', () => {
    const key = mintApiKey('acme', apiKeyStart(), 'test')
    expect(expression.exec(`KEY="${key}"`)?.[0]).toBe(key)
  })

  it('and the checksum distinguish a key from text that only looks like one', () => {
    const key = mintApiKey('acme')
    const digits = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
    const checksum = [...key.slice(-6)].reduce((sum, digit) => sum * 62 + digits.indexOf(digit), 0)
    expect(checksum).toBe(crc32(key.slice(0, -6)))
  })
})

it('the table of headers that do not reach the origin has those that the gateway removes', () => {
  expect(page === withHeaderTable(page), 'docs/security.md is stale: npm run reference').toBe(true)
})
