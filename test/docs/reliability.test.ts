/** docs/internals/reliability.md: the runs that make its tables take minutes, so this file only tests that the tables have their results. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { withTable } from '../../docs/programs/reliability/tables.ts'
import { ORIGIN_FAULTS } from '../anomaly/faults-of-origin.ts'
import { REDIS_FAULTS } from '../anomaly/faults-of-redis.ts'
import { STORE_FAULTS } from '../anomaly/faults-of-store.ts'
import { REDIS_EVENTS } from '../anomaly/redis-events.ts'
import { STORE_KINDS } from '../support/store-kinds.ts'

const page = readFileSync(new URL('../../docs/internals/reliability.md', import.meta.url), 'utf8')
const tables = new Map(
  [...page.matchAll(/<!-- table: (.+?) -->\n(.*?)<!-- end -->/gs)].map(([, name, text]) => [name, text!]),
)

describe('the page about reliability', () => {
  it.each<[string, readonly { name: string }[]]>([
    ['store', STORE_FAULTS],
    ['redis', REDIS_FAULTS],
    ['processes', REDIS_EVENTS],
    ['origin', ORIGIN_FAULTS],
  ])('has a line for each way to fail: %s', (name, ways) => {
    const lines = tables.get(name)!.trim().split('\n').slice(2)
    expect(lines.map(line => line.split(' | ')[0]!.replace(/^\| /, ''))).toEqual(ways.map(({ name }) => name))
  })

  it.each(STORE_KINDS)('names the way to a store that the suites run on: $name', ({ name }) => {
    expect(page.replaceAll('\n', ' ')).toContain(name)
  })

  it('has the result of the last soak', () => {
    expect(tables.get('soak')).toContain('| not answered | 0 |')
  })

  it('has a place for each of its tables, and for no other', () => {
    const table = { head: ['a|b'], rows: [['c']] }
    expect(withTable('<!-- table: x -->\nold\n<!-- end -->', 'x', table)).toBe(
      '<!-- table: x -->\n| a\\|b |\n| - |\n| c |\n<!-- end -->',
    )
    expect(() => withTable(page, 'x', table)).toThrow('no table x')
  })
})
