/** The constants of scripts with loops. */
import { describe, expect, it } from 'vitest'
import { Columns } from '../../src/script/columns.ts'

describe('a column', () => {
  it.each<[string, (number | string | boolean)[], string]>([
    ['equal numbers', [7, 7, 7], '7'],
    ['equal texts', ['a', 'a'], "'a'"],
    ['equal conditions', [false, false], 'false'],
    ['a single value', [-1], '(-1)'],
    ['the index itself', [1, 2, 3], 'i'],
    ['the index and a constant', [6, 7, 8], '(i + 5)'],
    ['a multiple of the index', [4, 6, 8], '(2 * i + 2)'],
    ['numbers that fall', [3, 2, 1], '((-1) * i + 4)'],
  ])('of %s needs no table', (_, values, expression) => {
    const columns = new Columns()
    expect(columns.of('name', values)).toBe(expression)
    expect(columns.declaration()).toBe('')
  })

  it('of other values is a table, which is declared once', () => {
    const columns = new Columns()
    expect(columns.of('limits', [5, 9, 2])).toBe('limits[i]')
    expect(columns.of('limits', [5, 9, 2])).toBe('limits[i]')
    expect(columns.of('sizes', [14, 28, -1], 'k')).toBe('sizes[k]')
    expect(columns.declaration()).toBe(
      'local limits, sizes = (function()\nreturn { 5, 9, 2 },\n{ 14, 28, (-1) }\nend)()\n',
    )
  })

  it('that the script changes is a table, whatever its values', () => {
    const columns = new Columns()
    expect(columns.table('tags', ['abc', 'abc'])).toBe('tags')
    expect(columns.declaration()).toContain("{ 'abc', 'abc' }")
  })

  it('cannot inject code', () => {
    const columns = new Columns()
    columns.of('names', ["a' .. b", 'c'])
    expect(() => columns.declaration()).toThrow(TypeError)
  })
})
