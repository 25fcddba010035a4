/** The form of service tokens. */
import { expect, it } from 'vitest'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { mintServiceToken, readServiceToken } from '../../src/credentials/service-token.ts'

it('has 43 random characters and a checksum, and names its environment', () => {
  const plain = mintServiceToken(undefined)
  expect(plain).toMatch(/^slt_[0-9A-Za-z]{49}$/)
  expect(readServiceToken(plain)).toEqual({ environment: undefined })
  const token = mintServiceToken('staging')
  expect(token).toMatch(/^slt_staging_[0-9A-Za-z]{49}$/)
  expect(readServiceToken(token)).toEqual({ environment: 'staging' })
  expect(new Set(Array.from({ length: 1000 }, () => mintServiceToken(undefined))).size).toBe(1000)
})

it('is not read if a single character is wrong, missing or too many', () => {
  const token = mintServiceToken('staging')
  for (let at = 0; at < token.length; at++) {
    const other = token[at] === 'a' ? 'b' : 'a'
    expect(readServiceToken(token.slice(0, at) + other + token.slice(at + 1)), `at ${at}`).toBeUndefined()
    expect(readServiceToken(token.slice(0, at) + token.slice(at + 1)), `without ${at}`).toBeUndefined()
    expect(readServiceToken(token.slice(0, at) + other + token.slice(at)), `more at ${at}`).toBeUndefined()
  }
})

it('is not an API key, and the other way round', () => {
  expect(readServiceToken(mintApiKey('acme'))).toBeUndefined()
  expect(readServiceToken(mintApiKey('acme').replace('slk_', 'slt_'))).toBeUndefined()
})

it('reads 100,000 texts without a right checksum in little time, however long they are', () => {
  const token = mintServiceToken(undefined)
  for (let i = 0; i < 100_000; i++) {
    const text = i % 3 === 0 ? `slt_${'a'.repeat(i % 2000)}` : token.slice(0, 47) + String(i).padStart(6, 'x')
    if (readServiceToken(text)) throw new Error(`${text} was read`)
  }
})
