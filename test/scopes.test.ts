/** The scopes of service tokens: which include others, and which permit what. */
import { expect, it } from 'vitest'
import { hasAnyOf, isScope, missingScopes, SCOPE_NAMES, scopesForLimit } from '../src/scopes.ts'

const ALL: readonly string[] = SCOPE_NAMES

it('each scope includes itself and no other, except that the use of all limits includes that of each', () => {
  for (const own of [...ALL, 'limits:use:exports'])
    for (const wanted of [...ALL, 'limits:use:exports', 'limits:use:zendesk']) {
      const includes = own === wanted || (own === 'limits:use' && wanted.startsWith('limits:use:'))
      expect(missingScopes([own], [wanted]), `${own} includes ${wanted}`).toEqual(includes ? [] : [wanted])
    }
})

it('a limit by name is permitted by the scope for all limits and by its own', () => {
  expect(hasAnyOf(['limits:use'], scopesForLimit('exports'))).toBe(true)
  expect(hasAnyOf(['limits:use:exports'], scopesForLimit('exports'))).toBe(true)
  expect(hasAnyOf(['limits:use:export', 'limits:reset'], scopesForLimit('exports'))).toBe(false)
  expect(hasAnyOf([], [])).toBe(true)
})

it('knows the scopes of the table, and those of names of limits', () => {
  for (const scope of [...ALL, 'limits:use:a', 'limits:use:my_limit-2']) expect(isScope(scope)).toBe(true)
  for (const text of [
    '',
    'limits',
    'limits:use:',
    'limits:use:A',
    'limits:use:a,b',
    'limits:reset:a',
    'constructor',
  ])
    expect(isScope(text), text).toBe(false)
})
