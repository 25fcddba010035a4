/** The check of input, compared with an independent one. */
import { Ajv2020 } from 'ajv/dist/2020.js'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { checkInput } from '../../src/set-ups/api/check-input.ts'
import { operationOf } from '../../src/set-ups/api/openapi-operations.ts'
import { ApiError } from '../../src/set-ups/api/problems.ts'
import { ROUTES } from '../../src/set-ups/api/routes.ts'

const BODIES = ROUTES.flatMap(route => (route.body ? [[operationOf(route).id, route.body] as const] : []))

const ofRoute = (name: string) => ROUTES.find(route => operationOf(route).id === name)!
const bodyOf = (name: string) => ofRoute(name).body!

const mistakesOf = (...[schema, input, prefix]: Parameters<typeof checkInput>): unknown[] => {
  try {
    checkInput(schema, input, prefix)
    return []
  } catch (error) {
    return ((error as ApiError).details.extra as { errors: unknown[] }).errors
  }
}

const NAMES = BODIES.flatMap(([, { properties }]) => Object.keys(properties!))
const VALUES = fc.oneof(
  fc.constantFrom('', 'a', 'sms', 'A', 'x'.repeat(101), 'x'.repeat(256), 'live', 'off', 'a'.repeat(64)),
  fc.constantFrom(-1, 0, 1, 0.5, 1e9, 1e10, null, true, false),
)
const INPUT = fc.oneof(
  fc.dictionary(
    fc.constantFrom(...NAMES, 'a~/b', 'length'),
    fc.oneof(
      { weight: 3, arbitrary: VALUES },
      fc.array(VALUES, { maxLength: 2 }),
      fc.dictionary(
        fc.constantFrom('a', 'A', 'limit', 'signature', 'length', 'x'.repeat(201)),
        fc.oneof(VALUES, fc.constantFrom([], [[1]], {})),
      ),
    ),
    { maxKeys: 4 },
  ),
  VALUES,
  fc.array(VALUES),
)

it.each(BODIES)('the input of %s is accepted if it is valid JSON Schema', (_, schema) => {
  const validate = new Ajv2020({ strict: false }).compile(schema)
  fc.assert(
    fc.property(INPUT, input => {
      expect(mistakesOf(schema, input).length === 0).toBe(validate(input))
    }),
    { numRuns: 100 },
  )
})

it('mistakes are named with their places', () => {
  expect(
    mistakesOf(bodyOf('createToken'), { scopes: ['', 5], expiresAt: null, 'a~/b': 1, toString: 1 }),
  ).toEqual([
    { pointer: '/name', detail: 'Missing. Add it.' },
    { pointer: '/scopes/0', detail: 'Too short. The least length is 1.' },
    { pointer: '/scopes/1', detail: 'Wrong type or value. Use string.' },
    { pointer: '/expiresAt', detail: 'Wrong type or value. Use string.' },
    { pointer: '/a~0~1b', detail: 'Unknown member. Leave it out.' },
    { pointer: '/toString', detail: 'Unknown member. Leave it out.' },
  ])
  expect(mistakesOf(bodyOf('decide'), { cost: 1.5, waitMs: 1e6, amounts: { A: -1 } })).toEqual([
    { pointer: '/cost', detail: 'Wrong type or value. Use integer or object.' },
    { pointer: '/amounts/A', detail: 'Wrong form. Use text of the form /^[a-z0-9][a-z0-9_-]{0,62}$/.' },
    { pointer: '/amounts/A', detail: 'Too low. The least value is 0.' },
    { pointer: '/waitMs', detail: 'Too high. The greatest value is 25000.' },
  ])
  expect(mistakesOf(bodyOf('decide'), { cost: 'all' })).toEqual([
    { pointer: '/cost', detail: 'Wrong type or value. Use integer or object.' },
  ])
  expect(mistakesOf(ofRoute('topCallers').query!, { shadow: 'yes', a: '' }, '?')).toEqual([
    { pointer: '?shadow', detail: 'Wrong type or value. Use "true" or "false".' },
    { pointer: '?a', detail: 'Unknown member. Leave it out.' },
  ])
  expect(mistakesOf(bodyOf('setKillSwitch'), [])).toEqual([
    { pointer: '', detail: 'Wrong type or value. Use object.' },
  ])
})

it.each(['__proto__', 'constructor', 'toString'])('no object has the member %s', name => {
  const input = JSON.parse(`{ "identity": { "${name}": "x" }, "${name}": {} }`)
  expect(mistakesOf(bodyOf('decide'), input)).toEqual([
    { pointer: `/identity/${name}`, detail: 'Unknown member. Leave it out.' },
    { pointer: `/${name}`, detail: 'Unknown member. Leave it out.' },
  ])
})

it('at most 20 mistakes are named', () => {
  expect(mistakesOf(bodyOf('setKillSwitch'), Object.fromEntries(Array(50).fill(0).entries()))).toHaveLength(
    20,
  )
  expect(() => checkInput(bodyOf('setKillSwitch'), 5)).toThrow(ApiError)
})
