/**
 * Measures what is far from usual, and has a bound: decisions about many rules, a consumer with as many overrides as its record can have,
 * and a log with as many requests as it can keep.
 */
import type { LimitRuleInput } from '../../src/config/check/schema.ts'
import { type CountedBy, inOneDecision } from '../anonymous.ts'
import { costOf, inHotLoop } from '../hot-loop.ts'
import { inRounds } from '../measure.ts'
import { bytesOf, keysOf } from '../redis-statistics.ts'
import { type Findings, kilobytesRow, type Rounds, type Row, rowOf } from '../report.ts'
import { newIdentities, type TestBed } from '../test-bed.ts'
import { straightTo } from '../transport.ts'

const ROUNDS = 1
const LOADS = 3
const MANY = 1e6
const RULES = [6, 50, 100, 200] as const
const OUTCOMES = ['allowed', 'refused'] as const
type Outcome = (typeof OUTCOMES)[number]

/** For 200 rules. */
const MOST_MICROSECONDS = 180

/** By instructions (callgrind). */
const WHY =
  'the time grows linearly with the rules, as the instructions do (see "Instructions"). The interpreter of Lua needs most of them; packing and ' +
  'unpacking records comes next.'
const MOST_KILOBYTES = 120
const MOST_LOAD_MS = 3

/** Of `sliding-log`: the most requests of a period. */
const LOG_LIMIT = 100_000
/** Requests in the logs whose bytes are measured. */
const LOGS = [100, 1000, LOG_LIMIT] as const
const MOST_LOG_MICROSECONDS = 300

export async function large(bed: TestBed): Promise<Findings> {
  const [many, logs] = [await manyRules(bed), await longLogs(bed)]
  return {
    rows: [...many.rows, ...logs.rows, ...(await logBytes(bed))],
    rounds: [...many.rounds, ...logs.rounds],
    notes: [
      'Large: the rules are gcra, fixed-window, sliding-window and token-bucket in turn, the first half by consumer and the rest by address. ' +
        'Time is measured while Redis is busy. The script is loaded with SCRIPT LOAD after SCRIPT FLUSH; its length is that of the text that is sent.',
      `Large: the log has ${LOG_LIMIT.toLocaleString('en')} requests of the last hour, which came one after the other.`,
    ],
  }
}

interface Measured {
  rows: Row[]
  rounds: Rounds[]
}

const ALGORITHMS = ['gcra', 'fixed-window', 'sliding-window', 'token-bucket'] as const

function rulesOf(count: number, limit: number): CountedBy[] {
  return Array.from({ length: count }, (_, i) => ({
    by: i < count / 2 ? ('consumer' as const) : ('address' as const),
    rule: {
      name: `rule-${i}`,
      algorithm: ALGORITHMS[i % ALGORITHMS.length]!,
      limit,
      period: '1h',
    } as LimitRuleInput,
  }))
}

async function manyRules(bed: TestBed): Promise<Measured> {
  const time = (count: number, outcome: Outcome) => () =>
    inHotLoop(bed, {
      make: transport => inOneDecision(transport, rulesOf(count, outcome === 'refused' ? 1 : MANY)),
      callers: newIdentities(16),
      expected: outcome,
      repeats: 10,
    })
  const tasks = RULES.flatMap(count =>
    OUTCOMES.map(outcome => [`${count} ${outcome}`, time(count, outcome)] as const),
  )
  const rounds: Record<string, number[]> = await inRounds(ROUNDS, Object.fromEntries(tasks))
  const rows: Row[] = []
  for (const count of RULES) {
    for (const outcome of OUTCOMES)
      rows.push(
        rowOf(`Redis server time per decision, ${count} rules, ${outcome}`, rounds[`${count} ${outcome}`]!, {
          unit: 'µs',
          ...(count === 200 && outcome === 'allowed' && { most: MOST_MICROSECONDS, why: WHY }),
        }),
      )
    const { bytes, loads } = await scriptOf(bed, count)
    rows.push(
      kilobytesRow(`length of the script, ${count} rules`, bytes, count === 200 ? MOST_KILOBYTES : undefined),
      rowOf(`time to load the script, ${count} rules`, loads, {
        unit: 'ms',
        ...(count === 200 && { most: MOST_LOAD_MS }),
      }),
    )
  }
  return { rows, rounds: [{ title: 'Many rules, µs in Redis per decision', columns: rounds }] }
}

/** The length of the script for so many rules, and how long Redis takes to load it (ms). */
async function scriptOf({ redis }: TestBed, count: number): Promise<{ bytes: number; loads: number[] }> {
  await redis.send(['SCRIPT', 'FLUSH'])
  const sent: (readonly (string | Buffer)[])[] = []
  await inOneDecision(straightTo(redis, sent), rulesOf(count, MANY))(newIdentities(1)[0]!)
  const source = String(sent.find(([name]) => name === 'EVAL')![1])
  const loads: number[] = []
  for (let i = 0; i < LOADS; i++) {
    await redis.send(['SCRIPT', 'FLUSH'])
    await redis.send(['CONFIG', 'RESETSTAT'])
    await redis.send(['SCRIPT', 'LOAD', source])
    const info = String(await redis.send(['INFO', 'commandstats']))
    loads.push(Number(/^cmdstat_script\|load:calls=1,usec=(\d+)/m.exec(info)![1]) / 1000)
  }
  return { bytes: Buffer.byteLength(source), loads }
}

/** What Redis keeps of logs that are full. */
async function logBytes({ redis }: TestBed): Promise<Row[]> {
  const rows: Row[] = []
  for (const limit of LOGS) {
    await redis.send(['FLUSHDB', 'SYNC'])
    const sent: (readonly (string | Buffer)[])[] = []
    const rule = { name: 'log', algorithm: 'sliding-log', limit, period: '1h' } as const
    await inOneDecision(straightTo(redis, sent), [{ by: 'consumer', rule }])(newIdentities(1)[0]!)
    const command = sent.at(-1)!
    for (let i = 1; i < limit; i += 1000)
      await Promise.all(Array.from({ length: Math.min(1000, limit - i) }, () => redis.send(command)))
    const bytes = await bytesOf(redis, await keysOf(redis, '*'))
    rows.push(kilobytesRow(`bytes in Redis, sliding-log with ${limit} requests`, bytes))
  }
  return rows
}

async function longLogs(bed: TestBed): Promise<Measured> {
  const { redis } = bed
  const decide = (limit: number, sent: (readonly (string | Buffer)[])[] = []) =>
    inOneDecision(straightTo(redis, sent), [
      { by: 'consumer', rule: { name: 'log', algorithm: 'sliding-log', limit, period: '1h' } },
    ])
  const [caller] = newIdentities(1)
  const sent: (readonly (string | Buffer)[])[] = []
  const contender = decide(LOG_LIMIT, sent)
  // The first decision may have to send the script itself.
  for (let i = 0; i < 2; i++) await contender(caller!)
  const command = sent.at(-1)!
  const repeat = async (count: number) => {
    for (let i = 0; i < count; i += 1000)
      await Promise.all(Array.from({ length: Math.min(1000, count - i) }, () => redis.send(command)))
  }
  const perDecision = async (count: number) => (await costOf(bed, () => repeat(count))) / count
  await repeat(LOG_LIMIT - 1002)
  const allowed = await perDecision(1000)
  if ((await contender(caller!)) !== 'refused') throw new Error('The log is not full.')
  const rounds: Record<Outcome, number[]> = { allowed: [allowed], refused: [await perDecision(1000)] }
  const rows = OUTCOMES.map(outcome =>
    rowOf(
      `Redis server time per decision, sliding-log with ${LOG_LIMIT} requests, ${outcome}`,
      rounds[outcome],
      {
        unit: 'µs',
        most: MOST_LOG_MICROSECONDS,
      },
    ),
  )
  return {
    rows,
    rounds: [{ title: `sliding-log with ${LOG_LIMIT} requests, µs in Redis per decision`, columns: rounds }],
  }
}
