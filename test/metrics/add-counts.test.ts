/** The script that adds counters to the records of the statistics, on every Redis. */
import { expect, it } from 'vitest'
import { addCountsScript } from '../../src/metrics/add-counts.ts'
import type { Batch } from '../../src/metrics/counters.ts'
import { callFor } from '../../src/metrics/flush.ts'
import { sha1 } from '../../src/sha1.ts'
import { describeOnRedisEngine } from '../support/engines.ts'

const AT = new Date('2026-11-21T08:59:58Z')
const KEYS = ['sluice:{stats}:m:202611210859', 'sluice:{stats}:h:2026112108', 'sluice:{stats}:d:20261121']

it('the digests of the script are those of its text', () => {
  const { keyLocking, plain } = addCountsScript()
  expect([keyLocking.sha1, plain.sha1]).toEqual([sha1(keyLocking.source), sha1(plain.source)])
})

describeOnRedisEngine('the records of the statistics', fresh => {
  it('add up what isolates send, each for its time, and expire', async () => {
    const redis = await fresh()
    const add = (batch: Batch, at = AT) => redis.run(callFor(batch, at))
    const records = () => Promise.all(KEYS.map(async key => String(await redis.send(['GET', key]))))
    await add([
      ['request allowed - -', 3],
      ['lost', 1],
    ])
    await add([
      ['rule allowed minute - -', 9_000_000_000],
      ['request allowed - -', 2],
    ])
    const first = 'request allowed - -\t5\nlost\t1\nrule allowed minute - -\t9000000000'
    expect(await records()).toEqual([first, first, first])
    await add([['lost', 1]], new Date(AT.getTime() + 2000))
    expect(await records()).toEqual([first, first, first.replace('lost\t1', 'lost\t2')])
    const ttls = await Promise.all(KEYS.map(async key => Number(await redis.send(['TTL', key]))))
    expect(ttls.map(ttl => Math.round(ttl / 60))).toEqual([125, 8 * 1440, 401 * 1440])
  })

  it('have a bounded number of counters, and keep the sums', async () => {
    const redis = await fresh()
    const batch = Array.from({ length: 2500 }, (_, i) => [`request allowed - route-${i}`, 1] as const)
    for (let i = 0; i < 2; i++) await redis.run(callFor(batch, AT))
    await redis.run(callFor([['lost', 7]], AT))
    const lines = String(await redis.send(['GET', KEYS[0]!])).split('\n')
    expect([lines.length, lines[0], ...lines.slice(-2)]).toEqual([
      2002,
      'request allowed - route-0\t2',
      'request allowed ~ ~ ~\t1000',
      'lost\t7',
    ])
  })
})
