/** The order of routes in docs/config.md as a table: the most specific one that matches comes first. */
import { describe, expect, it } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { RouteMatchInput } from '../../src/config/check/route-schema.ts'

const RULES = [{ name: 'a', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' }]

/** The order in which routes are tried, as indexes into the config. */
function order(...matches: RouteMatchInput[]): number[] {
  const routes = matches.map((match, i) => ({ name: String(i), match }))
  return checkedConfig({ origin: 'route', rules: RULES, routes }).routes.map(({ name }) => Number(name))
}

describe('the more specific of two routes', () => {
  const API = 'api.example.com'
  it.each<[string, RouteMatchInput, RouteMatchInput]>([
    ['a literal segment rather than a parameter', { path: '/users/me' }, { path: '/users/:id' }],
    ['a literal segment rather than a wildcard', { path: '/users/me' }, { path: '/users/*' }],
    ['a parameter rather than a wildcard', { path: '/users/:id' }, { path: '/users/*' }],
    ['a part of a segment rather than a wildcard', { path: '/v*' }, { path: '/*' }],
    ['a pattern rather than a wildcard', { path: '/(v1|v2)/x' }, { path: '/*/x' }],
    ['the longer path', { path: '/users/:id/posts' }, { path: '/users/:id' }],
    ['more segments rather than a wildcard', { path: '/users/:id/posts' }, { path: '/users/*' }],
    ['a literal on the left rather than on the right', { path: '/a/*' }, { path: '/*/b' }],
    ['any path rather than none', { path: '/*' }, {}],
    ['a host rather than a path', { host: API, path: '/*' }, { path: '/users/me' }],
    ['a host rather than a method', { host: API }, { methods: ['GET'] }],
    ['a literal host rather than a pattern', { host: API }, { host: '*.example.com' }],
    ['a host pattern rather than any host', { host: '*.example.com' }, { host: '*' }],
    ['any host rather than none', { host: '*' }, {}],
    ['the more specific path, on the same host', { host: API, path: '/a' }, { host: API, path: '/:x' }],
    ['a path rather than a method', { path: '/files/:name' }, { path: '/files/*', methods: ['GET'] }],
    ['a method rather than none', { path: '/files/*', methods: ['GET'] }, { path: '/files/*' }],
  ])('has %s', (_, more, less) => {
    expect(order(more, less)).toEqual([0, 1])
    expect(order(less, more)).toEqual([1, 0])
  })

  it.each<[string, RouteMatchInput, RouteMatchInput]>([
    ['patterns of a segment', { path: '/users/:id' }, { path: '/users/(\\d+)' }],
    ['patterns of a host', { host: 'api.*' }, { host: '*.example.com' }],
    ['methods', { methods: ['GET'] }, { methods: ['GET', 'POST', 'PUT'] }],
  ])('is the first one in the config if only %s differ', (_, one, other) => {
    expect(order(one, other)).toEqual([0, 1])
    expect(order(other, one)).toEqual([0, 1])
  })
})

it('routes are tried from the most specific one on, whatever their order in the config', () => {
  expect(order({}, { path: '/*' }, { path: '/a/:x' }, { path: '/a/b' }, { host: 'h' })).toEqual([
    4, 3, 2, 1, 0,
  ])
})
