/** The settings of routes: defaults, and the settings of a path that matches several routes. */
import { expect, it } from 'vitest'
import { compileRouteSettings, mergeStricter, type RouteSettings } from '../../src/config/compile-route.ts'
import { wordsOfRoute } from '../../src/node/cli/route-words.ts'

const DEFAULTS = compileRouteSettings({}, ['api-key'])
const COSTLY = compileRouteSettings({ cost: 5, accept: ['api-key', 'anonymous'] }, ['api-key'])
const UNLIMITED = compileRouteSettings({ limits: false, accept: ['anonymous'] }, ['api-key'])

it('a request without a route has the settings of an empty route', () => {
  expect(DEFAULTS).toMatchObject({ accept: ['api-key'], cost: 1, isLimited: true })
})

it.each<[RouteSettings, RouteSettings, Partial<RouteSettings>]>([
  [COSTLY, DEFAULTS, { accept: ['api-key'], cost: 5, isLimited: true }],
  [COSTLY, UNLIMITED, { accept: ['anonymous'], cost: 5, isLimited: true }],
  [UNLIMITED, DEFAULTS, { accept: [], cost: 1, isLimited: true }],
  [UNLIMITED, UNLIMITED, UNLIMITED],
])('for two routes, the stricter value of each setting applies, in either order', (a, b, expected) => {
  expect(mergeStricter(a, b)).toMatchObject(expected)
  expect(mergeStricter(b, a)).toMatchObject(expected)
})

it('check and explain print each setting that differs from the default: in words if there are any for it, else with its name', () => {
  expect(wordsOfRoute(DEFAULTS, DEFAULTS)).toEqual([])
  expect(wordsOfRoute(COSTLY, DEFAULTS)).toEqual(['cost × 5'])
  expect(wordsOfRoute(UNLIMITED, DEFAULTS)).toEqual(['not limited'])
  expect(wordsOfRoute({ ...DEFAULTS, ...{ patience: '3s' } }, DEFAULTS)).toEqual(['patience 3s'])
})
