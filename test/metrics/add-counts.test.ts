/** The script that adds counters to the records of the statistics, on every Redis. */
import { expect, it } from 'vitest'
import { addCountsScript, callFor } from '../../src/metrics/add-counts.ts'
import type { Batch } from '../../src/metrics/counters.ts'
import type { Measured } from '../../src/metrics/measurements.ts'
import { countsIn, highestIn, sumMeasurements } from '../../src/metrics/sums.ts'
import { sha1 } from '../../src/sha1.ts'
import { STATS_TOTAL_KEY } from '../../src/store/keys.ts'
import { describeOnRedisEngine, type RedisEngine } from '../support/engines.ts'

const AT = new Date('2026-11-21T08:59:58Z')
const TODAY = 'sluice:{stats}:d:20261121'

it('the digests of the script are those of its text', () => {
  const { keyLocking, plain } = addCountsScript()
  expect([keyLocking.sha1, plain.sha1]).toEqual([sha1(keyLocking.source), sha1(plain.source)])
})

describeOnRedisEngine('the records of the statistics', fresh => {
  it('add up what isolates send, by the minute, the hour and the day, and expire', async () => {
    const redis = await fresh()
    const add = (batch: Batch, laterMs = 0) => redis.run(callFor(batch, new Date(AT.getTime() + laterMs)))
    await add([
      ['request allowed - -', 3],
      ['lost', 1],
    ])
    await add([
      ['rule allowed minute - -', 9_000_000_000],
      ['request allowed - -', 2],
    ])
    await add([['lost', 1]], 2000)
    // The clock of this isolate is behind.
    await add([['lost', 1]])
    await add([['lost', 4]], 3 * 60_000)
    expect(await fieldsOf(redis, TODAY)).toEqual({
      '#': '3',
      ...{ 'request allowed - -': '5', 'h request allowed - -': '8:5', 'm request allowed - -': '539:5' },
      ...{ lost: '7', 'h lost': '8:1,9:6', 'm lost': '539:1,540:2,542:4' },
      'rule allowed minute - -': '9000000000',
      'h rule allowed minute - -': '8:9000000000',
      'm rule allowed minute - -': '539:9000000000',
    })
    const ttl = Number(await redis.send(['TTL', TODAY]))
    expect(Math.round(ttl / 60)).toBe(401 * 1440)
  })

  it('have the minutes of the last two hours, and neither minutes nor hours after eight days', async () => {
    const redis = await fresh()
    const add = (...at: [day: number, hour: number, minute: number]) =>
      redis.run(callFor([['lost', 1]], new Date(Date.UTC(2026, 10, ...at))))
    for (let m = 0; m < 300; m++) await add(21, 0, m)
    const minutes = (await fieldsOf(redis, TODAY))['m lost']!.split(',')
    expect([minutes[0], minutes.at(-1), minutes.length]).toEqual(['174:1', '299:1', 126])
    for (const day of [22, 28]) await add(day, 0, 0)
    expect(Object.keys(await fieldsOf(redis, TODAY))).toHaveLength(4)
    await add(29, 0, 0)
    expect(await fieldsOf(redis, TODAY)).toEqual({ '#': '1', lost: '300' })
    expect(Object.keys(await fieldsOf(redis, 'sluice:{stats}:d:20261122'))).toHaveLength(4)
  })

  it('take one command to read and one to write, and with metrics two more', async () => {
    const redis = await fresh()
    if (redis.kind === 'embedded') return
    const commands = async () => {
      const info = String(await redis.send(['INFO', 'commandstats']))
      const counts = [...info.matchAll(/^cmdstat_(\S+?):calls=(\d+)/gm)]
      return counts.reduce((sum, [, name, calls]) => (name === 'info' ? sum : sum + Number(calls)), 0)
    }
    const [batch] = batchesOf(100) as [Batch]
    const cost = async (measured?: Measured) => {
      await redis.run(callFor(batch, AT, measured))
      const before = await commands()
      await redis.run(callFor(batch, AT, measured))
      return (await commands()) - before
    }
    expect(await cost()).toBe(3)
    expect(await cost({ usage: [['usage minute', 5]], totals: [['time-decision 5', 1]] })).toBe(5)
  })

  it('with metrics, keep the highest usage of the last minutes, and never restart the sums of all time', async () => {
    const redis = await fresh()
    const measure = (count: number, usage: number, at = AT) => {
      const measured: Measured = { usage: [['usage minute', usage]], totals: [['time-decision 5', count]] }
      return redis.run(callFor([['request allowed - -', count]], at, measured))
    }
    await measure(2, 900_000)
    await measure(3, 400_000)
    const minute = Math.floor(AT.getTime() / 60_000)
    expect(Object.keys(await fieldsOf(redis, TODAY))).toHaveLength(4)
    const total = { '#': '3', 'request allowed - -': '5', 'time-decision 5': '5' }
    expect(await fieldsOf(redis, STATS_TOTAL_KEY)).toEqual({ ...total, 'usage minute': `${minute}:900000` })
    await measure(1, 100_000, new Date(AT.getTime() + 60_000))
    const record = Object.entries(await fieldsOf(redis, STATS_TOTAL_KEY)).flat()
    expect(highestIn(record, minute)).toEqual([['usage minute', 900_000]])
    expect(highestIn(record, minute + 1)).toEqual([['usage minute', 100_000]])
    expect(highestIn(record, minute + 2)).toEqual([])
    await measure(1, 100_000, new Date('2026-11-22T00:00:01Z'))
    const later = { ...total, 'request allowed - -': '7', 'time-decision 5': '7' }
    expect(await fieldsOf(redis, STATS_TOTAL_KEY)).toMatchObject(later)
    expect(Number(await redis.send(['TTL', STATS_TOTAL_KEY]))).toBe(401 * 86400)
  })

  it('of all time that are full keep the buckets of durations apart, and no wrong usage', async () => {
    const redis = await fresh()
    const measured: Measured = {
      usage: [['usage minute', 900_000]],
      totals: [
        ['time-decision 5', 1],
        ['time-decision 10', 2],
      ],
    }
    for (const batch of batchesOf(2000)) await redis.run(callFor(batch, AT, { usage: [], totals: [] }))
    for (let i = 0; i < 2; i++) await redis.run(callFor([], AT, measured))
    const fields = await fieldsOf(redis, STATS_TOTAL_KEY)
    expect(Object.keys(fields)).toHaveLength(2003)
    const sums = sumMeasurements(countsIn(Object.entries(fields).flat()), [])
    expect(sums.times.get('decision')!.buckets.slice(0, 5)).toEqual([0, 0, 2, 4, 0])
    expect(fields).not.toHaveProperty('usage minute')
  })

  it('have a bounded number of counters, and keep the sums', async () => {
    const redis = await fresh()
    for (let i = 0; i < 2; i++) for (const batch of batchesOf(2500)) await redis.run(callFor(batch, AT))
    await redis.run(callFor([['lost', 7]], AT))
    const fields = await fieldsOf(redis, TODAY)
    expect(Object.keys(fields)).toHaveLength(1 + 3 * 2002)
    expect(fields).toMatchObject({
      ...{ '#': '2000', 'request allowed - route-0': '2', 'request allowed ~ ~ ~': '1000' },
      ...{ 'm request allowed ~ ~ ~': '539:1000', lost: '7' },
    })
  })
})

/** Counters of so many routes, as many in each batch as an isolate sends at once. */
const batchesOf = (routes: number): Batch[] =>
  Array.from({ length: routes / 100 }, (_, i) =>
    Array.from({ length: 100 }, (_, j) => [`request allowed - route-${100 * i + j}`, 1] as const),
  )

async function fieldsOf(redis: RedisEngine, key: string): Promise<Record<string, string>> {
  const hash = (await redis.send(['HGETALL', key])) as unknown[]
  return Object.fromEntries(
    hash.flatMap((field, i) => (i % 2 === 0 ? [[String(field), String(hash[i + 1])] as const] : [])),
  )
}
