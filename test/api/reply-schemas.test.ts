/** The notation of replies (src/set-ups/api/reply-schemas.ts). */
import { expect, it } from 'vitest'
import { createReplySchemas } from '../../src/set-ups/api/reply-schemas.ts'

/** The components that a type needs, by their names. */
function componentsOf(type: string, members: Readonly<Record<string, string>>) {
  const components: Record<string, unknown> = {}
  const schemaOf = createReplySchemas(members, (kind, name, create) => {
    components[name] ??= create()
    return { $ref: `#/components/${kind}/${name}` }
  })
  const schema = schemaOf(type)
  return { schema, components }
}

it.each([
  ['string', { type: 'string' }],
  ['integer', { type: 'integer' }],
  ['time', { type: 'string', format: 'date-time' }],
  ['(one caller|many callers)', { type: 'string', enum: ['one caller', 'many callers'] }],
  ['time|null', { anyOf: [{ type: 'string', format: 'date-time' }, { type: 'null' }] }],
  ['integer[]', { type: 'array', items: { type: 'integer' } }],
  [
    '{string|number}',
    { type: 'object', additionalProperties: { anyOf: [{ type: 'string' }, { type: 'number' }] } },
  ],
])('the type %s', (type, schema) => {
  expect(componentsOf(type, {}).schema).toEqual(schema)
})

it('an object has its members, those of another object, and can get more in later versions', () => {
  const members = { Key: 'id, plan?', Created: '...Key,\n  key, replaces: Old|null', Old: 'id', Unused: 'id' }
  const { schema, components } = componentsOf('Created', members)
  expect(schema).toEqual({ $ref: '#/components/schemas/Created' })
  expect(components).toEqual({
    Created: {
      type: 'object',
      properties: {
        id: { type: 'string' },
        plan: { type: 'string' },
        key: { type: 'string' },
        replaces: { anyOf: [{ $ref: '#/components/schemas/Old' }, { type: 'null' }] },
      },
      required: ['id', 'key', 'replaces'],
    },
    Old: { type: 'object', properties: { id: { type: 'string' } }, required: ['id'] },
  })
})

it('a member has its description, which can contain commas', () => {
  const members = {
    Key: 'id "Text, with a comma.", plan?: Plan|null "Absent: none.",\n  old?: Plan',
    Plan: 'id',
  }
  expect(componentsOf('Key', members).components).toMatchObject({
    Key: {
      properties: {
        id: { type: 'string', description: 'Text, with a comma.' },
        plan: {
          anyOf: [{ $ref: '#/components/schemas/Plan' }, { type: 'null' }],
          description: 'Absent: none.',
        },
        old: { $ref: '#/components/schemas/Plan' },
      },
      required: ['id'],
    },
  })
})

it.each([
  ['a missing comma', 'id plan?', 'id plan?'],
  ['a missing comma after a description', 'id, key "A text." plan?', 'key "A text." plan?'],
  ['a missing space after a colon', 'id, at:time, plan?', 'at:time, plan?'],
  ['a missing quote', 'id "A text., plan?', 'id "A text., plan?'],
  ['a line break in a description', 'id "A\n text."', 'id "A\n text."'],
])('shows the notation from %s on', (_, text, shown) => {
  const message = `operations/ has a mistake in Key: ${shown}`
  expect(() => componentsOf('Key', { Key: text })).toThrow(message)
})

it.each(['id: sting', '...Kee', 'id, old?: Kee[]|null'])('names a type that does not exist: %s', text => {
  expect(() => componentsOf('Key', { Key: text })).toThrow(/^operations\/ has no type /)
})
