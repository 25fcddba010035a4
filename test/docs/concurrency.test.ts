/** docs/internals/concurrency.md describes the record that the script writes, has the result of the soak, and links to files that exist. */
import { existsSync, readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { encodeSync } from '../../src/script/sync.ts'
import { syncScript } from '../../src/script/sync-text.ts'
import { sideKey } from '../../src/store/keys.ts'
import { startRedis } from '../support/redis.ts'

const PATH = new URL('../../docs/internals/concurrency.md', import.meta.url)
const PAGE = readFileSync(PATH, 'utf8')

it('the page links only to files that exist', () => {
  const links = [...PAGE.matchAll(/\]\((.+?)(?:#.*?)?\)/g)].map(([, link]) => link!)
  expect(links.length).toBeGreaterThan(4)
  for (const link of links.filter(Boolean)) expect(existsSync(new URL(link, PATH)), link).toBe(true)
})

it('the page has the result of the last soak, in which no caller held more requests than its limit', () => {
  const [, table = ''] = /<!-- table: soak -->\n(.*?)<!-- end -->/s.exec(PAGE)!
  const [, held = ''] = /^\| most requests held at once, by caller (.*)$/m.exec(table)!
  const counts = [...held.matchAll(/(\d+) of (\d+)/g)].map(([, most, limit]) => [Number(most), Number(limit)])
  expect(counts.length).toBe(8)
  for (const [most, limit] of counts) expect(most).toBeLessThanOrEqual(limit!)
  expect(table).toMatch(/^\| all units were free after \| [\d.]+ s \| [\d.]+ s \|$/m)
})

it('the page shows the bytes of a record', async () => {
  const [, ...places] =
    /^\| bytes \| (\d+)–(\d+) \| (\d+)–(\d+) \| (\d+)–(\d+) \| (\d+)–(\d+) \| (\d+)–(\d+) \|$/m.exec(PAGE)!
  const ends = places.map(Number)
  const holding = { holder: 'isolate1', epoch: 70_000, started: 300, ended: 2 }
  const now = 1_800_000_000_000_000
  const key = sideKey('sluice:{c:acme}:state', 'held', 'abc')
  const { script, keys, args } = encodeSync(syncScript(), [{ key, holding, ttl: 15e6 }], now)

  const redis = await startRedis()
  try {
    await redis.connection.send(['EVAL', script.plain.source, String(keys.length), ...keys, ...args])
    const hex = `return (redis.call('GET', KEYS[1]):gsub('.', function(c) return ('%02x'):format(c:byte()) end))`
    const record = Buffer.from(String(await redis.connection.send(['EVAL', hex, '1', key])), 'hex')
    expect(record.length).toBe(Number(/one record of (\d+) bytes/.exec(PAGE)![1]))
    expect(record.length).toBe(ends.at(-1)! + 1)
    const at = (field: number) => record.subarray(ends[2 * field]!, ends[2 * field + 1]! + 1)
    const numberAt = (field: number) => at(field).readUIntBE(0, at(field).length)
    expect(at(0).toString()).toBe(holding.holder)
    expect([numberAt(1), numberAt(2), numberAt(3)]).toEqual([holding.epoch, holding.started, holding.ended])
    expect(numberAt(4)).toBe(now / 1e3 + 15e3)
  } finally {
    await redis.close()
  }
})
