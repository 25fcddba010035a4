/** Measures the bytes of Redis for a caller: those of its keys, and what the memory of the whole server grows by. */
import { Ratelimit } from '@upstash/ratelimit'
import type { LimitRuleInput } from '../../src/config/check/schema.ts'
import { type By, inCalls, inOneDecision } from '../anonymous.ts'
import { CALLS, type Comparable, eachOnce } from '../contenders.ts'
import { bytesAfter, type Make } from '../decision-costs.ts'
import { usedMemory } from '../redis-statistics.ts'
import { countsRow, type Findings, type Row } from '../report.ts'
import { newIdentities, type TestBed } from '../test-bed.ts'
import { straightTo } from '../transport.ts'

const CALLERS = 10_000
const MANY = 1e6
/** Long periods, so that no window ends during the measurement. */
const PERIODS = [
  { period: '1h', milliseconds: 3600e3 },
  { period: '6h', milliseconds: 6 * 3600e3 },
  { period: '1d', milliseconds: 24 * 3600e3 },
] as const

const SHAPES = [
  { what: 'three limits of one identity', identities: ['consumer'] },
  { what: 'six limits of two identities', identities: ['consumer', 'address'] },
] as const

export async function memory(bed: TestBed): Promise<Findings> {
  const rows: Row[] = []
  for (const limits of Object.keys(CALLS) as Comparable[]) {
    for (const { what, identities } of SHAPES) {
      const own = ownOf(limits, identities)
      const theirs = theirsOf(limits, identities)
      const keys = {
        own: await bytesAfter(bed, own, 3),
        theirs: await bytesOfEach(bed, limits, identities),
      }
      const row = (measured: string, { own, theirs }: typeof keys) =>
        countsRow(`${measured}, ${what}, ${limits}`, [`as many ${CALLS[limits]}`, own, theirs], { unit: 'B' })
      rows.push(row('bytes of the keys of a caller', keys))
      const used = {
        own: await growth(bed, own),
        theirs: await growth(bed, theirs),
      }
      rows.push(row('memory of Redis per caller', used))
    }
  }
  return {
    rows,
    notes: [
      'Bytes of keys are from MEMORY USAGE, which leaves out the entry that Redis keeps for the expiry of each key, and the table of keys.',
      `Memory of Redis is the growth of \`used_memory\` for ${CALLERS.toLocaleString('en')} callers with one request each, divided by their number.`,
      'Bytes of keys include the key of the previous window for the sliding windows of @upstash/ratelimit, because a caller who goes on has ' +
        'both. Memory of Redis does not include it: every caller has made one request.',
    ],
  }
}

function ownOf(algorithm: Comparable, identities: readonly By[]): Make {
  const rules = identities.flatMap(by =>
    PERIODS.map(({ period }) => ({
      by,
      rule: { name: `${by}-${period}`, algorithm, limit: MANY, period } as LimitRuleInput,
    })),
  )
  return transport => inOneDecision(transport, rules)
}

const callsOf = (limits: Comparable, identities: readonly By[]) =>
  identities.flatMap(by =>
    PERIODS.map(({ period }) => ({ by, limiter: Ratelimit[CALLS[limits]](MANY, period) })),
  )

function theirsOf(limits: Comparable, identities: readonly By[]): Make {
  return transport => inCalls(transport, callsOf(limits, identities))
}

/** Each limit by itself, because the lengths of their windows differ. */
async function bytesOfEach(bed: TestBed, limits: Comparable, identities: readonly By[]): Promise<number> {
  let bytes = 0
  const calls = callsOf(limits, identities)
  for (const [i, call] of calls.entries()) {
    const last = limits === 'sliding-window' ? PERIODS[i % PERIODS.length]!.milliseconds : 0
    bytes += await bytesAfter(bed, transport => inCalls(transport, [call]), 3, last)
  }
  return bytes
}

/** @returns bytes of one caller after its first request */
async function growth(bed: TestBed, make: Make): Promise<number> {
  const contender = make(straightTo(bed.redis, []), false)
  // Loads the script.
  await eachOnce(contender, newIdentities(1), 'allowed')
  await bed.redis.send(['FLUSHDB', 'SYNC'])
  const before = await usedMemory(bed.redis)
  await eachOnce(contender, newIdentities(CALLERS), 'allowed')
  const grown = (await usedMemory(bed.redis)) - before
  await bed.redis.send(['FLUSHDB', 'SYNC'])
  return grown / CALLERS
}
