/** Patterns for paths and hosts match what URLPattern matches, and take time in proportion to the length of the value. */
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { canonicalPath } from '../../src/patterns/canonical.ts'
import { AmbiguousError } from '../../src/patterns/expression.ts'
import { hostFinder, hostMatcher, pathFinder, pathMatcher } from '../../src/patterns/patterns.ts'
import { randomCases, sized } from '../selection.ts'
import { forEvery } from '../support/property.ts'

/** Node has it since version 24, which `npm test` runs on. Older versions have nothing to compare with. */
const HAS_URL_PATTERN = 'URLPattern' in globalThis

/** Concatenations of these. No dots: URLPattern drops a dot at the end of fixed text as a dot segment. */
const concatenation = (pieces: readonly string[], maxLength: number) =>
  fc.array(fc.constantFrom(...pieces), { maxLength }).map(pieces => pieces.join(''))

const PATTERN_PIECES = [
  ...[
    '/',
    '/',
    '/',
    'a',
    'b',
    'B',
    ':x',
    ':y',
    '*',
    '?',
    '+',
    '-',
    'é',
    ' ',
    '\\*',
    '%2F',
    ':',
    '(',
    ')',
    '}',
  ],
  ...[
    '(a|b)',
    '(\\d+)',
    '(?:a)',
    '(^a|b$)',
    '((?<=/)a)',
    '(a(?<!ba))',
    '{/a}',
    '{a:v}',
    '{/:w}',
    '{b}',
    '{/*}?',
    '{/:q/x}*',
    '{-:z}+',
  ],
]
const PATH_PIECES = ['/', '/', '/', 'a', 'b', 'ab', '7', 'A', '-', 'é', ' ', 'x', '%2f', '*', '%C3%A9']
/** URLPattern takes exponential time if repetitions can match the same text. */
const isTamed = (pattern: string) =>
  !/\*[*+]|[^/]:\w[*+]/.test(pattern) && (pattern.match(/[)}\w][*+]/g) ?? []).length <= 1

const HOST_PATTERN_PIECES = [
  ...['.', '.', 'a', 'b', 'API', ':x', ':y', '*', '-', 'é', '\\.', ' ', '?', ')'],
  ...['(a|b)', '{a.}', '{b.}?', '{:w.}*'],
]
const HOST_PIECES = ['.', '.', 'a', 'b', 'api', '-', '1', 'é', 'münchen', '_']

/** @returns 'slow' for a pattern that could take quadratic time, which URLPattern accepts; undefined if it is not valid */
const orReason = <T>(create: () => T): T | 'slow' | undefined => {
  try {
    return create()
  } catch (error) {
    return error instanceof AmbiguousError ? 'slow' : undefined
  }
}

const orUndefined = <T>(create: () => T): T | undefined => {
  try {
    return create()
  } catch {
    return undefined
  }
}

describe('a pattern', () => {
  it.skipIf(!HAS_URL_PATTERN)('of a path matches what URLPattern matches, alone and in a set', async () => {
    const cases = fc.tuple(
      concatenation(PATTERN_PIECES, 7)
        .map(text => `/${text}`)
        .filter(isTamed),
      fc.array(concatenation(PATH_PIECES, 8), { minLength: 8, maxLength: 8 }),
    )
    await forEvery(cases, randomCases(8_000), async ([pattern, texts]) => {
      const native = orUndefined(() => new URLPattern({ pathname: pattern }, { ignoreCase: true }))
      const alone = orReason(() => pathMatcher(pattern))
      expect(alone !== undefined, 'is valid').toBe(native !== undefined)
      if (!native || !alone || alone === 'slow') return
      const find = pathFinder(['/*', pattern, '/a/:id', '/a/b'])
      for (const text of texts) {
        const { pathname } = new URL(`http://gateway.test/${text}`)
        const path = canonicalPath(pathname)
        expect([alone(path), find(path).has(pattern)], JSON.stringify([pattern, pathname])).toEqual(
          Array(2).fill(native.test({ pathname })),
        )
      }
    })
  })

  it.skipIf(!HAS_URL_PATTERN)('of a host matches what URLPattern matches', async () => {
    const cases = fc.tuple(
      concatenation(HOST_PATTERN_PIECES, 6).filter(isTamed),
      fc.array(concatenation(HOST_PIECES, 6), { minLength: 8, maxLength: 8 }),
    )
    await forEvery(cases, randomCases(8_000), async ([pattern, texts]) => {
      const native = orUndefined(() => new URLPattern({ hostname: pattern }, { ignoreCase: true }))
      const ours = orReason(() => hostMatcher(pattern))
      expect(ours !== undefined, 'is valid').toBe(native !== undefined)
      if (!native || !ours || ours === 'slow') return
      for (const text of texts.filter(text => URL.canParse(`http://${text}`))) {
        const { hostname } = new URL(`http://${text}`)
        expect(ours(hostname), JSON.stringify([pattern, hostname])).toBe(native.test({ hostname }))
      }
    })
  })

  it.each([
    '/a\\',
    '/:',
    '/(',
    '/()',
    '/(?a)',
    '/(é)',
    '/((a))',
    '/{a',
    '/}',
    '/:x/:x',
    '/?',
    '/{{a}}',
    '/([)',
    '/((?-i:a))',
  ])('%s is not valid', pattern => expect(() => pathMatcher(pattern)).toThrow())

  it.each(['a/b', 'a#b', 'a?b', 'a@b', 'a b', 'a\\:1', 'https\\://a', '1.2.3.400'])(
    '%s is not a valid host',
    pattern => expect(() => hostMatcher(pattern)).toThrow(),
  )

  it.each([
    '/*{/a}*b',
    '/{a}*{a}*',
    '/*:a/b',
    '/{b}*:a',
    '/:path*/x/*',
    '/:a-:b{/}*',
    '/:a{-}?:b{-}?:c{-}?:d{-}?:e{-}?:f',
  ])('%s could take quadratic time and is refused', pattern =>
    expect(() => pathMatcher(pattern)).toThrow(AmbiguousError),
  )

  it.each([
    ['[\\:\\:1]', '[::1]'],
    ['127.1', '127.0.0.1'],
    ['0x7f.1', '127.0.0.1'],
    ['[0\\:\\:1]', '[::1]'],
  ])('of the host %s matches %s', (pattern, host) => expect(hostMatcher(pattern)(host)).toBe(true))

  it('with dots at the ends of fixed text keeps them', () => {
    expect(pathMatcher('/.:name')('/.env')).toBe(true)
    expect(pathMatcher('/.well-known/*')('/.well-known/acme')).toBe(true)
    expect(pathMatcher('/.:name')('/env')).toBe(false)
  })
})

describe('a set of patterns', () => {
  it('finds each pattern that matches, as it was written', () => {
    const patterns = [
      '/v1/:id',
      '/v1/*',
      '/V1/7',
      '/v1/:id.json',
      '/:any/7',
      '/v2/*',
      '/*',
      '/v1{/*}?',
      '/v1/:id',
    ]
    expect([...pathFinder(patterns)('/v1/7')].sort()).toEqual(
      ['/v1/:id', '/v1/*', '/V1/7', '/:any/7', '/*', '/v1{/*}?'].sort(),
    )
    expect([...hostFinder(['*.a.test', 'API.a.test', 'b.test'])('api.a.test')]).toEqual([
      '*.a.test',
      'API.a.test',
    ])
  })

  it.each([
    ['/', '/', true],
    ['/', '//', false],
    ['//', '//', true],
    ['/a/', '/a', false],
    ['/a/', '/a/', true],
    ['/a/*', '/a/', true],
    ['/a/*', '/a', false],
    ['/:a/', '//', false],
    ['/:a?', '/', false],
    ['/a/:b?', '/a', true],
    ['/a/:b?', '/a/', false],
    ['/x*', '/x', true],
  ])('%s matches %s: %s', (pattern, path, expected) => {
    expect(pathFinder([pattern])(path).size === 1).toBe(expected)
    expect(pathMatcher(pattern)(path)).toBe(expected)
  })

  // With quadratic time, a test would take minutes and time out.
  it.each([
    ['/v1/*/users/*/posts', '/users'],
    ['/*/a/*/b/*/c', '/a/b'],
    ['/**/x/**', '/'],
    ['/:a-:b-:c-:d/x', '-'],
    ['/:a-*/x', '-'],
    ['/*-*-*/x', '-'],
    ['/files/*.tar.gz', '.tar.g'],
    ['/:a-:b?/z', '-'],
    ['/*{/a}?*b', '/a'],
    ['/:name.:ext{-}?/z', '.a'],
    ['/{:a-}*x', '-'],
    ['/{:a-}*:b/z', '-'],
    ['/{:a-}*x{:b-}*z', '-x-'],
    ['/:a-:b*/z', '-'],
    ['/:path*/x', '/x/'],
    ['/*/x/:id?', '/x/'],
  ])('%s takes time in proportion to the path', (pattern, part) => {
    const path = `/v1${part.repeat(200_000)}`
    expect(pathFinder([pattern])(path).size).toBe(0)
  })

  it('takes no longer for patterns that begin otherwise', () => {
    const find = pathFinder(Array.from({ length: sized(100_000, 10_000) }, (_, i) => `/v1/things${i}/:id`))
    const path = `/v1/things7/${'x'.repeat(1000)}`
    // A moment for 20,000 matches; with a step for each pattern, it would be 200,000,000 steps or more.
    let found = 0
    for (let i = 0; i < 20_000; i++) found += find(path).size
    expect(found).toBe(20_000)
  })
})
