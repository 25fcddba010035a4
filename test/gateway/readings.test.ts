/**
 * Paths that origins read differently: for every kind of origin, each route is reached only with the credentials that
 * it accepts.
 */
import { describe, expect, it } from 'vitest'
import { canonicalPath } from '../../src/patterns/canonical.ts'
import { createMatch, type Matched } from '../../src/set-ups/http/match.ts'
import { createMatchByRequest } from '../../src/set-ups/http/match-by-request.ts'
import { isReserved, readingsOf } from '../../src/set-ups/http/path.ts'
import { configOf } from '../support/engines.ts'
import { randomFrom, SEED } from '../support/random.ts'

const match = (config: Parameters<typeof createMatch>[0], request: Request) =>
  createMatch(config, createMatchByRequest)(request)

const config = configOf({
  rules: [
    { name: 'admin', by: 'address', algorithm: 'gcra', limit: 1, period: '1s', match: { path: '/admin/*' } },
  ],
  routes: [
    { name: 'public', match: { path: '/public/*' }, accept: ['api-key', 'anonymous'] },
    { name: 'admin', match: { path: '/admin/*' }, accept: ['api-key'], cost: 9 },
    { name: 'inner', match: { path: '/public/admin/*' }, accept: ['opaque-key'] },
  ],
  credentials: { opaqueKeys: {} },
})

const at = (path: string): Matched => match(config, new Request(`http://gateway.test${path}`))

type Origin = (pathname: string) => string

const decode = (path: string) =>
  path.replace(/%([0-9a-f]{2})/gi, (_, hex) => String.fromCharCode(parseInt(hex, 16)))
const fold = (path: string) => path.replace(/\/+/g, '/')
const parse = (path: string) => URL.parse(path, 'http://origin.test')?.pathname ?? ''
const cut = (path: string) => path.split('\0', 1)[0]!
const trim = (path: string) => path.replace(/(?<=[^/. ])[. ]+(?=\/|$)/g, '')
const turn = (path: string) => path.replaceAll('\\', '/')
const strip = (path: string) => path.replace(/;[^/]*/g, '')

/** Removes dot segments (RFC 3986, section 5.2.4). */
function resolve(path: string): string {
  const output: string[] = []
  const segments = path.split('/').slice(1)
  for (const [i, segment] of segments.entries()) {
    if (segment === '..') output.pop()
    else if (segment !== '.') output.push(segment)
    if (i === segments.length - 1 && /^\.\.?$/.test(segment)) output.push('')
  }
  return `/${output.join('/')}`
}

/** Servers and frameworks, each with its own order of steps. */
const ORIGINS: Record<string, Origin> = {
  'does not change it': path => path,
  'folds slashes': fold,
  'decodes once, then folds and resolves': path => resolve(fold(decode(path))),
  'decodes once, then resolves': path => resolve(decode(path)),
  'decodes once and keeps dots': decode,
  'decodes once, folds and keeps dots': path => fold(decode(path)),
  'decodes once and ends the path at a NUL': path => cut(decode(path)),
  'decodes once and drops dots and spaces at the end of names': path => trim(fold(decode(path))),
  'decodes twice': path => resolve(fold(decode(decode(path)))),
  'decodes twice and turns backslashes': path => resolve(fold(turn(decode(decode(path))))),
  'turns decoded backslashes': path => resolve(turn(decode(path))),
  'ends the path at the first semicolon': path => path.split(';', 1)[0]!,
  'drops parameters first': path => resolve(fold(decode(strip(path)))),
  'drops parameters after decoding': path => resolve(fold(strip(decode(path)))),
  'only drops parameters': path => resolve(strip(path)),
  'takes what follows two slashes for a host': parse,
  'takes what follows two slashes for a host, then decodes and folds': path => fold(decode(parse(path))),
}

/** Places are found by prefix, as origins find them. Dot segments that an origin keeps do not change the prefix. */
const PLACES = [
  ['inner', '/public/admin/'],
  ['admin', '/admin/'],
  ['public', '/public/'],
] as const

const ACCEPT = { inner: ['opaque-key'], admin: ['api-key'], public: ['api-key', 'anonymous'] }

function servedAt(path: string): (typeof PLACES)[number][0] | undefined {
  return PLACES.find(([, prefix]) => path.toLowerCase().startsWith(prefix))?.[0]
}

it.each([
  // In /admin if decoded once, in /public if decoded never or twice.
  '/public/..%2fadmin%2fx%252f..%252f..%252fpublic%252fy',
  '//host/admin/x',
  '///a@b:1/admin/x',
  '/public/..;/admin/x',
  '/public/..;a=b/admin/x',
  '/public/..%3b/admin/x',
  '/public/%2e%2e;/admin/x',
  '/public;/../admin/x',
  '/public/..%3b%5cx/admin/x',
  '/public/.%09./admin/x',
  '/public/.%0a./ad%0dmin/x',
])('a path is not public if an origin may read it as another one: %s', path => {
  const { settings, rules } = at(path)
  const { accept, cost } = settings
  expect([accept, cost, rules.length]).toEqual([['api-key'], 9, 1])
})

it.each([
  '/login',
  '/login/',
  '/login%00',
  '/login%00.json',
  '/login%2500x',
  '/login.',
  '/login...',
  '/login%20',
  '/login.%20/',
  '/login%2e',
  '/login;a=b.',
])('a rule applies to what an origin may read as its path: %s', path => {
  const ofLogin = configOf({
    rules: [
      { name: 'one', by: 'address', algorithm: 'gcra', limit: 1, period: '1s', match: { path: '/login' } },
    ],
  })
  expect(match(ofLogin, new Request(`http://gateway.test${path}`)).rules.length).toBe(1)
})

describe('what is no reading', () => {
  const rulesAt = (path: string, pattern: string) => {
    const rule = { name: 'one', by: 'address', algorithm: 'gcra', limit: 1, period: '1s' } as const
    const ofLogin = configOf({ rules: [{ ...rule, match: { path: pattern } }] })
    return match(ofLogin, new Request(`http://gateway.test${path}`)).rules.length
  }

  it('needs a pattern that matches it, as docs/rules.md says', () => {
    expect(rulesAt('/login.json', '/login')).toBe(0)
    expect(rulesAt('/login.json', '/login{.:format}?')).toBe(1)
    expect(rulesAt('/login', '/login{.:format}?')).toBe(1)
    expect(rulesAt('/login-as', '/login{.:format}?')).toBe(0)
    expect(rulesAt('/login%3fx', '/login')).toBe(0)
    expect(rulesAt('/login%3fx', '/login*')).toBe(1)
  })
})

it.each([
  ['POST', '/x?_method=DELETE', {}, 1],
  ['POST', '/x?a=b&_method=delete&c', {}, 1],
  ['POST', '/x?_method=PUT&_method=DELETE', {}, 1],
  // As PHP reads names.
  ['POST', '/x?+%20_method=DELETE', {}, 1],
  ['POST', '/x?_method%00x=DELETE', {}, 1],
  ['POST', '/x?%5Fmethod=DELETE', {}, 1],
  ['POST', '/x?.method=DELETE', {}, 1],
  ['POST', '/x', { 'x-http-method-override': 'DELETE' }, 1],
  ['DELETE', '/x?_method=GET', {}, 1],
  ['POST', '/x?method=DELETE', {}, 0],
  ['POST', '/x?q=_method=DELETE', {}, 0],
  ['POST', '/_method=DELETE', {}, 0],
] as const)('a rule for DELETE applies to %s %s with %j or not: %i', (method, path, headers, count) => {
  const rule = { name: 'one', by: 'address', algorithm: 'gcra', limit: 1, period: '1s' } as const
  const ofDelete = configOf({ rules: [{ ...rule, match: { methods: ['DELETE'] } }] })
  const request = new Request(`http://gateway.test${path}`, { method, headers })
  expect(match(ofDelete, request).rules.length).toBe(count)
})

it.each([
  '/public//admin/x%2f..%2f..%2fy',
  '/public%2fadmin%2f..%2f..%2fother',
  '/public/x//..%2f..%2fadmin/y',
])('a path does not accept the credentials of a wider route: %s', path => {
  expect(at(path).settings.accept).not.toContain('api-key')
  expect(at(path).settings.accept).not.toContain('anonymous')
})

it.each([
  '/_sluice;x/health',
  '/_sluice/x%252f..%252f..%252fother',
  '/a/..;/_sluice/x',
  '/_sluice%2f..%2f..%2fx',
  '/./%5fSluice//',
])('%s is a path of the gateway itself', path => {
  expect(isReserved(new URL(`http://gateway.test${path}`).pathname)).toBe(true)
})

it.each(['/', '/reports/7', '/a.b/c..d/.e', '/files/a b', '/files/%C3%A9', '/_sluices/x'])(
  '%s has one reading',
  path => {
    const { pathname } = new URL(`http://gateway.test${path}`)
    expect(readingsOf(pathname)).toEqual([canonicalPath(pathname)])
    expect(isReserved(pathname)).toBe(false)
  },
)

it('a host also matches with the dot at the end of its full name', () => {
  const ofHost = configOf({
    rules: [
      { name: 'one', by: 'host', algorithm: 'gcra', limit: 1, period: '1s', match: { host: 'admin.test' } },
    ],
    routes: [{ name: 'admin', match: { host: 'admin.test' }, accept: ['opaque-key'] }],
    credentials: { opaqueKeys: {}, accept: ['anonymous'] },
  })
  for (const host of ['admin.test', 'admin.test.', 'ADMIN.test.:8080', '%61dmin.test', 'admin。test']) {
    const { settings, rules } = match(ofHost, new Request(`http://${host}/`))
    expect([settings.accept, rules.length], host).toEqual([['opaque-key'], 1])
  }
})

it(`for any spelling, an origin serves a path only with credentials that its route accepts (SEED=${SEED})`, () => {
  const random = randomFrom(SEED)
  const parts = [
    'public',
    'admin',
    'Admin',
    'x',
    '..',
    '.',
    '',
    '..;',
    ';a',
    '%2e%2e',
    '%252e%252e',
    '..%3b',
    '%61dmin',
    'admin.',
    'admin%20',
    '%00',
  ]
  const slashes = ['/', '/', '/', '//', '%2f', '%252f', '%5c', '%255c', '\\']
  const seen = new Set<string>()
  for (let i = 0; i < 1200; i++) {
    const path = Array.from(
      { length: random.int(1, 9) },
      (_, n) => (n ? random.pick(slashes) : '/') + random.pick(parts),
    )
    const { pathname } = new URL(`http://gateway.test${path.join('')}`)
    const matched = at(pathname)
    for (const [origin, read] of Object.entries(ORIGINS)) {
      const place = servedAt(read(pathname))
      if (!place) continue
      seen.add(`${origin} ${place}`)
      const message = `${pathname}: an origin that ${origin} serves ${read(pathname)} (SEED=${SEED})`
      expect(ACCEPT[place], message).toEqual(expect.arrayContaining([...matched.settings.accept]))
      if (place !== 'admin') continue
      expect([matched.settings.cost, matched.rules.length], message).toEqual([9, 1])
    }
  }
  // Each kind of origin has served a path of each route.
  expect(seen.size).toBe(Object.keys(ORIGINS).length * PLACES.length)
})

it.each(['/caf\u00e9', '/CAF%C3%A9', '/caf%25C3%25A9', '/caf%2525c3%2525a9', '/%63af%c3%a9'])(
  'a pattern with a character outside ASCII matches it in every spelling: %s',
  path => {
    const word = { path: '/caf\u00e9' }
    const ofWord = configOf({
      rules: [{ name: 'one', by: 'address', algorithm: 'gcra', limit: 1, period: '1s', match: word }],
    })
    expect(match(ofWord, new Request(`http://gateway.test${path}`)).rules).toHaveLength(1)
  },
)

describe('a path passes that names', () => {
  /** 1,024 bytes, the maximum of many object stores. */
  const name = (encode: (byte: string) => string) => encode('%C3%A9').repeat(512)

  it.each([
    ['an object of 1,024 encoded bytes', `/objects/${name(byte => byte)}`],
    ['an object of 1,024 bytes, each encoded twice', `/objects/${name(byte => byte.replaceAll('%', '%25'))}`],
    ['an encoded URL', `/proxy/${encodeURIComponent('https://example.com/a b?c=d&e=/f;g')}`],
    [
      'a URL encoded twice',
      `/proxy/${encodeURIComponent(encodeURIComponent('https://example.com/a b?c=d'))}`,
    ],
    ['a URL', '/proxy/https://example.com//a'],
    ['a file with parameters', `/files;v=1/${'a'.repeat(200)};as=%2Fpdf`],
    ['a long word', `/${'a'.repeat(100_000)}`],
  ])('%s', (_, path) => expect(readingsOf(path)).toBeDefined())
})

describe('a path with too many readings', () => {
  const hostile = '/v1/%2525252f;a%5c.%2f/a;b%2f..%5c%252e%252e//'

  // With quadratic work, or with work for each reading, this would take minutes, and the test would time out.
  it.each(['%252f..', '/..;x', '%2f%2e%2e;', ';', '//', '%255c.', '%25252f', '%c3%28', '%', hostile])(
    'takes steps in proportion to its length: %s, repeated to a quarter of a megabyte',
    part => {
      const { pathname } = new URL(`http://gateway.test/${part.repeat(256_000 / part.length)}`)
      const readings = readingsOf(pathname)
      const characters = readings?.reduce((sum, reading) => sum + reading.length, 0) ?? 0
      expect(characters).toBeLessThanOrEqual(2 * pathname.length)
    },
    30_000,
  )
})
