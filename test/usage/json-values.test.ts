import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createJsonValues, parsePointer, valueAt } from '../../src/usage/json-values.ts'
import { randomCases } from '../selection.ts'
import { forEvery } from '../support/property.ts'

const bytesOf = (text: string) => new TextEncoder().encode(text)

function scan(text: string | Uint8Array, pointers: readonly string[], chunkBytes = Number.POSITIVE_INFINITY) {
  const bytes = typeof text === 'string' ? bytesOf(text) : text
  const values = createJsonValues(pointers.map(pointer => parsePointer(pointer)!))
  for (let at = 0; at < bytes.length; at += chunkBytes) {
    const chunk = bytes.slice(at, at + chunkBytes)
    values.feed(chunk)
    chunk.fill(0)
  }
  values.end()
  return { found: values.found.map(found => found?.value), isJson: values.isJson(), places: values.found }
}

describe('values of a JSON text in chunks', () => {
  it.each([1, 2, 3, 7, 1000])('are found by their pointers, in chunks of %i bytes', chunkBytes => {
    const text =
      '\ufeff { "a\\"b" : [1, {"c/d": "x\\\\"}, -2.5e1 ], "usage":{"t":{"n": 12 }, "é~": null} , "e":{}, "l":[] }\n'
    const pointers = [
      '/a"b/0',
      '/a"b/1/c~1d',
      '/a"b/2',
      '/usage/t/n',
      '/usage',
      '/usage/é~0',
      '/e',
      '/l',
      '/no',
    ]
    expect(scan(text, pointers, chunkBytes)).toMatchObject({
      isJson: true,
      found: [1, 'x\\', -25, 12, { t: { n: 12 }, 'é~': null }, null, {}, [], undefined],
    })
  })

  it('are those that JSON.parse finds, for any JSON in any chunks', async () => {
    const cases = fc.record({
      json: fc.json({ maxDepth: 4 }),
      chunkBytes: fc.integer({ min: 1, max: 40 }),
      path: fc.array(fc.nat(5), { maxLength: 4 }),
      indent: fc.constantFrom(undefined, 2),
    })
    await forEvery(cases, randomCases(2000), async ({ json, chunkBytes, path, indent }) => {
      // Not `__proto__`, which JSON.parse stores as a key like others and literals do not.
      const root: unknown = JSON.parse(json)
      let value = root
      const tokens: string[] = []
      for (const step of path) {
        const keys = typeof value === 'object' && value !== null ? Object.keys(value) : []
        if (keys.length === 0) break
        const token = keys[step % keys.length]!
        tokens.push(token)
        value = (value as Record<string, unknown>)[token]
      }
      const pointer = tokens.map(token => '/' + token.replaceAll('~', '~0').replaceAll('/', '~1')).join('')
      const { found, isJson } = scan(
        JSON.stringify(root, null, indent),
        [pointer, `${pointer}/missing~1key`],
        chunkBytes,
      )
      expect(isJson).toBe(true)
      expect(found[0]).toEqual(value)
      expect(found[1]).toBe(undefined)
      expect(valueAt(root, tokens)).toEqual(value)
    })
  })

  it('have a place, in bytes', () => {
    const text = '{"é":"x","options" : {"a":1},"z":0}'
    const { from, to } = scan(text, ['/options'], 3).places[0]!
    expect(new TextDecoder().decode(bytesOf(text).slice(from, to))).toBe('{"a":1}')
  })

  it('are the last ones, if a key comes twice or several lines are JSON', () => {
    expect(scan('{"n":1,"n":2}', ['/n']).found).toEqual([2])
    expect(scan('{"n":1}\n{"m":1}\n{"n":3}\n', ['/n'], 4)).toMatchObject({ found: [3], isJson: true })
  })

  it.each(['<html>', '', '  ', 'data: {}', '{"n":1', '{"n":"', '}', '{"n":1}}', 'plain text'])(
    'are not found in %j, which is not JSON',
    text => {
      expect(scan(text, ['/n']).isJson).toBe(false)
    },
  )

  it('are not kept if they are large, and what is around them is not kept at all', () => {
    const large = 'x'.repeat(100_000)
    const { found } = scan(JSON.stringify({ large, n: 1, deep: [large] }), ['/large', '/n', '/deep/0'], 1000)
    expect(found).toEqual([undefined, 1, undefined])
  })

  it('are found below any depth, which does not take memory', () => {
    const depth = 1_000_000
    const text = `{"deep":${'['.repeat(depth)}${']'.repeat(depth)},"n":5}`
    expect(scan(text, ['/n'], 65_536)).toMatchObject({ found: [5], isJson: true })
  })
})

describe('a JSON pointer', () => {
  it.each(['usage', 'usage/total', '/a~2', '/a~', '#/usage'])('is not valid as %j', pointer => {
    expect(parsePointer(pointer)).toBe(undefined)
  })

  it('names the root if it is empty, and the empty key as /', () => {
    expect([parsePointer(''), parsePointer('/')]).toEqual([[], ['']])
    expect(scan(' 731 ', ['']).found).toEqual([731])
    expect(scan('{"":3}', ['/']).found).toEqual([3])
  })

  it('does not reach what objects inherit', () => {
    expect(valueAt({}, ['constructor', 'length'])).toBe(undefined)
    expect(valueAt([1], ['length'])).toBe(undefined)
  })
})
