/** The settings of routes: defaults, and which setting holds where a path leads to several routes. */
import { expect, it } from 'vitest'
import { compileRouteSettings, mergeStricter, type RouteSettings } from '../../src/config/compile-route.ts'
import { wordsOfRoute } from '../../src/node/cli/route-words.ts'

const ELSEWHERE = compileRouteSettings({}, ['api-key'])
const COSTLY = compileRouteSettings({ cost: 5, accept: ['api-key', 'anonymous'] }, ['api-key'])
const UNLIMITED = compileRouteSettings({ limits: false, accept: ['anonymous'] }, ['api-key'])

it('a request without a route has the settings of an empty route', () => {
  expect(ELSEWHERE).toMatchObject({ accept: ['api-key'], cost: 1, isLimited: true })
})

it.each<[RouteSettings, RouteSettings, Partial<RouteSettings>]>([
  [COSTLY, ELSEWHERE, { accept: ['api-key'], cost: 5, isLimited: true }],
  [COSTLY, UNLIMITED, { accept: ['anonymous'], cost: 5, isLimited: true }],
  [UNLIMITED, ELSEWHERE, { accept: [], cost: 1, isLimited: true }],
  [UNLIMITED, UNLIMITED, UNLIMITED],
])('of two routes the stricter of each setting holds, whichever comes first', (a, b, expected) => {
  expect(mergeStricter(a, b)).toMatchObject(expected)
  expect(mergeStricter(b, a)).toMatchObject(expected)
})

it('check and explain print the settings that are not those of other requests, also ones without words of their own', () => {
  expect(wordsOfRoute(ELSEWHERE, ELSEWHERE)).toEqual([])
  expect(wordsOfRoute(COSTLY, ELSEWHERE)).toEqual(['cost × 5'])
  expect(wordsOfRoute(UNLIMITED, ELSEWHERE)).toEqual(['not limited'])
  expect(wordsOfRoute({ ...ELSEWHERE, ...{ patience: '3s' } }, ELSEWHERE)).toEqual(['patience 3s'])
})
