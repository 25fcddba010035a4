/**
 * Time inside Redis per decision, which is single-threaded: what one decision takes, no other caller gets. From
 * Redis' own clock around EVALSHA, the commands inside included; network, parsing and the bridge are not in it.
 *
 * Measured twice, because the same script takes much longer where each call finds Redis asleep and its caches cold:
 * one decision at a time through the bridge, and with Redis never idle, which is where its time is scarce.
 */
import { type Contender, eachOnce, sixCalls, sluice, withinSecond } from '../contenders.ts'
import { inHotLoop } from '../hot-loop.ts'
import { inRounds, median, roomInSecond } from '../measure.ts'
import { commandsOf } from '../redis-statistics.ts'
import type { Findings, RawTable, Row } from '../report.ts'
import { type Caller, newCallers, type TestBed } from '../test-bed.ts'
import { type Transport, throughBridge } from '../transport.ts'

const ROUNDS = 12
/** At most this share of six calls: while Redis is idle in between, as much as six calls that are sent at once. */
const mostOf = (name: string) => (name === 'six at once' ? 1 : 0.5)

const OUTCOMES = [
  { outcome: 'allowed', scale: 'admits all' },
  { outcome: 'refused', scale: 'refuses all' },
] as const

type Outcome = (typeof OUTCOMES)[number]
type Name = 'Sluice' | 'six in turn' | 'six at once'

interface Task {
  make: (transport: Transport) => Contender
  expected: Outcome['outcome']
}

/** How Redis is kept while it is measured; gives the microseconds of one decision. */
interface Load {
  what: string
  perDecision(bed: TestBed, task: Task): Promise<number>
  against: readonly Exclude<Name, 'Sluice'>[]
}

const LOADS: readonly Load[] = [
  { what: 'Redis idle in between', perDecision: oneAtATime, against: ['six in turn', 'six at once'] },
  // Without waiting for replies the two are the same.
  { what: 'Redis busy', perDecision: backToBack, against: ['six in turn'] },
]

export async function serverTime(bed: TestBed): Promise<Findings> {
  const rows: Row[] = []
  const raw: RawTable[] = []
  for (const { what: load, perDecision, against } of LOADS) {
    for (const { outcome, scale } of OUTCOMES) {
      const what = `${outcome}, ${load}`
      const six = (order: 'in turn' | 'at once') => (transport: Transport) =>
        // Its memory of refusals would keep the calls away from Redis.
        sixCalls(transport, scale, { order, cache: outcome === 'allowed' })
      const makers: [Name, Task['make']][] = [
        ['Sluice', transport => sluice(transport, scale)],
        ['six in turn', six('in turn')],
        ['six at once', six('at once')],
      ]
      const tasks = makers
        .filter(([name]) => name === 'Sluice' || against.includes(name))
        .map(([name, make]) => [
          name,
          () => withinSecond(() => perDecision(bed, { make, expected: outcome })),
        ])
      const rounds: Record<string, number[]> = await inRounds(ROUNDS, Object.fromEntries(tasks))

      const own = median(rounds.Sluice!)
      for (const name of against) {
        const theirs = median(rounds[name]!)
        rows.push({
          what: `Redis server time per decision, ${what}`,
          sluice: `${own.toFixed(1)} µs`,
          comparison: `${name}: ${theirs.toFixed(1)} µs`,
          ratio: own / theirs,
          target: { text: `≤ ${mostOf(name)}×`, isReached: own / theirs <= mostOf(name) },
        })
      }
      raw.push({ title: `Redis server time, ${what}, µs per decision`, columns: rounds, digits: 1 })
    }
  }
  return { rows, raw }
}

/** Through the bridge, each decision after the one before. */
async function oneAtATime(bed: TestBed, { make, expected }: Task): Promise<number> {
  const contender = make(throughBridge(bed.near))
  const callers = await primed(20, bed, contender, expected)
  // Refusals must fit into the second, on a slow machine too.
  const visits = expected === 'refused' ? 3 : 6
  const { scriptMicroseconds } = await commandsOf(bed.redis, async () => {
    for (let i = 0; i < visits; i++) await eachOnce(contender, callers, expected)
  })
  return scriptMicroseconds / (visits * callers.length)
}

async function backToBack(bed: TestBed, { make, expected }: Task): Promise<number> {
  const callers = await newCallers(64, bed)
  if (expected === 'refused') await roomInSecond(600)
  return await inHotLoop(bed, { make, callers, expected })
}

/** Callers whose state exists, and who have spent their one permit where they are to be refused. */
async function primed(
  count: number,
  bed: TestBed,
  contender: Contender,
  expected: Outcome['outcome'],
): Promise<Caller[]> {
  const callers = await newCallers(count, bed)
  // Refusals hold until the second ends.
  if (expected === 'refused') await roomInSecond(600)
  await eachOnce(contender, callers, 'allowed')
  return callers
}
