/** The script that adds counters to the records of the statistics, on every Redis. */
import { expect, it } from 'vitest'
import { addCountsScript } from '../../src/metrics/add-counts.ts'
import type { Batch } from '../../src/metrics/counters.ts'
import { callFor } from '../../src/metrics/flush.ts'
import type { Measured } from '../../src/metrics/measurements.ts'
import { sumMeasurements } from '../../src/metrics/sums.ts'
import { sha1 } from '../../src/sha1.ts'
import { STATS_TOTAL_KEY } from '../../src/store/keys.ts'
import { describeOnRedisEngine, type RedisEngine } from '../support/engines.ts'

const AT = new Date('2026-11-21T08:59:58Z')
const KEYS = ['sluice:{stats}:m:202611210859', 'sluice:{stats}:2026112108', 'sluice:{stats}:d:20261121']

it('the digests of the script are those of its text', () => {
  const { keyLocking, plain } = addCountsScript()
  expect([keyLocking.sha1, plain.sha1]).toEqual([sha1(keyLocking.source), sha1(plain.source)])
})

describeOnRedisEngine('the records of the statistics', fresh => {
  it('add up what isolates send, each for its time, and expire', async () => {
    const redis = await fresh()
    const add = (batch: Batch, at = AT) => redis.run(callFor(batch, at))
    const records = () => Promise.all(KEYS.map(key => countersOf(redis, key)))
    await add([
      ['request allowed - -', 3],
      ['lost', 1],
    ])
    await add([
      ['rule allowed minute - -', 9_000_000_000],
      ['request allowed - -', 2],
    ])
    const first = { '#': 3, 'request allowed - -': 5, lost: 1, 'rule allowed minute - -': 9_000_000_000 }
    expect(await records()).toEqual([first, first, first])
    await add([['lost', 1]], new Date(AT.getTime() + 2000))
    expect(await records()).toEqual([first, first, { ...first, lost: 2 }])
    const ttls = await Promise.all(KEYS.map(async key => Number(await redis.send(['TTL', key]))))
    expect(ttls.map(ttl => Math.round(ttl / 60))).toEqual([125, 8 * 1440, 401 * 1440])
  })

  it('with metrics, keep the highest usage of a limit, and never restart the sums of all time', async () => {
    const redis = await fresh()
    const measure = (count: number, usage: number, at = AT) => {
      const measured: Measured = { usage: [['usage minute', usage]], totals: [['time-decision 5', count]] }
      return redis.run(callFor([['request allowed - -', count]], at, measured))
    }
    await measure(2, 900_000)
    await measure(3, 400_000)
    const usage = { 'usage minute': 900_000 }
    const recent = { '#': 2, 'request allowed - -': 5, ...usage }
    const total = { ...recent, '#': 3, 'time-decision 5': 5 }
    expect(await countersOf(redis, KEYS[0]!)).toEqual(recent)
    expect(await countersOf(redis, STATS_TOTAL_KEY)).toEqual(total)
    await measure(1, 100_000, new Date('2026-11-22T00:00:01Z'))
    expect(await countersOf(redis, 'sluice:{stats}:d:20261122')).toMatchObject({ 'usage minute': 100_000 })
    const later = { ...total, 'request allowed - -': 6, 'time-decision 5': 6 }
    expect(await countersOf(redis, STATS_TOTAL_KEY)).toEqual(later)
    expect(Number(await redis.send(['TTL', STATS_TOTAL_KEY]))).toBe(401 * 86400)
  })

  it('of all time that are full keep the buckets of durations apart, and no wrong usage', async () => {
    const redis = await fresh()
    const batch = Array.from({ length: 2000 }, (_, i) => [`request allowed - route-${i}`, 1] as const)
    const measured: Measured = {
      usage: [['usage minute', 900_000]],
      totals: [
        ['time-decision 5', 1],
        ['time-decision 10', 2],
      ],
    }
    await redis.run(callFor(batch, AT, { usage: [], totals: [] }))
    for (let i = 0; i < 2; i++) await redis.run(callFor([], AT, measured))
    const counters = await countersOf(redis, STATS_TOTAL_KEY)
    expect(Object.keys(counters)).toHaveLength(2003)
    const sums = sumMeasurements(Object.entries(counters), Object.entries(counters))
    expect(sums.times.get('decision')!.buckets.slice(0, 5)).toEqual([0, 0, 2, 4, 0])
    expect(sums.usage.size).toBe(0)
  })

  it('have a bounded number of counters, and keep the sums', async () => {
    const redis = await fresh()
    const batch = Array.from({ length: 2500 }, (_, i) => [`request allowed - route-${i}`, 1] as const)
    for (let i = 0; i < 2; i++) await redis.run(callFor(batch, AT))
    await redis.run(callFor([['lost', 7]], AT))
    const counters = await countersOf(redis, KEYS[0]!)
    expect(Object.keys(counters)).toHaveLength(2003)
    expect(counters).toMatchObject({
      ...{ '#': 2000, 'request allowed - route-0': 2, 'request allowed ~ ~ ~': 1000 },
      lost: 7,
    })
  })
})

async function countersOf(redis: RedisEngine, key: string): Promise<Record<string, number>> {
  const hash = (await redis.send(['HGETALL', key])) as unknown[]
  return Object.fromEntries(
    hash.flatMap((field, i) => (i % 2 === 0 ? [[String(field), Number(hash[i + 1])] as const] : [])),
  )
}
