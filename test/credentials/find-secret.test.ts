/** Secrets in texts. test/ops/names.test.ts has their forms. */
import { expect, it } from 'vitest'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { withoutSecrets } from '../../src/credentials/find-secret.ts'

it.each([
  'ab_',
  'abcdefghij_',
  'a',
  'a-',
  '_',
  `_${'a'.repeat(35)}`,
  `${'ab_'.repeat(40)}${'a'.repeat(36)}.`,
])('of a text as long as a body may be, which repeats %s, are found at once', part => {
  const text = part.repeat(64_000 / part.length)
  const key = mintApiKey('acme')
  const startedAt = performance.now()
  expect(withoutSecrets(`${text} ${key}`)).toBe(`${text} …`)
  // It takes a few ms. One pattern for all of a word took a minute.
  expect(performance.now() - startedAt).toBeLessThan(1000)
})

it('are found beside other letters of a word', () => {
  const key = mintApiKey('acme')
  for (const text of [
    `account_${key}`,
    `${key}.json`,
    `A${key}-x`,
    `${'a_'.repeat(200)}${key}.a_${'b'.repeat(36)}`,
  ])
    expect(withoutSecrets(`of ${text}, twice`)).toBe('of …, twice')
  expect(withoutSecrets(`${key}x`)).toBe(`${key}x`)
})
