/**
 * Measures the time inside Redis for each decision. Redis is single-threaded, so this time is not available to other callers. The value
 * is from Redis and includes EVALSHA and its commands, but not network, parsing and the bridge.
 *
 * A script takes much longer if Redis was idle, because the caches are cold. So the time is measured in two ways: with one decision at a time
 * through the bridge, and while Redis is always busy. The time of Redis is scarce only in the second case.
 */
import {
  CALLS,
  type Comparable,
  type Contender,
  eachOnce,
  sixCalls,
  sluice,
  withinSecond,
} from '../contenders.ts'
import { inHotLoop } from '../hot-loop.ts'
import { countsInstructions, inRounds, roomInSecond } from '../measure.ts'
import { commandsOf } from '../redis-statistics.ts'
import { type Findings, type Rounds, type Row, roundsRow } from '../report.ts'
import { type Caller, newCallers, type TestBed } from '../test-bed.ts'
import { type Transport, throughBridge } from '../transport.ts'

const ROUNDS = 2
/** The target: Sluice may take half as long as six calls in turn, and as long as six calls at once. */
const mostOf = (name: string) => (name === 'at once' ? 1 : 0.5)

const WHY =
  'a call of fixedWindow is an INCRBY and little else. Without any Lua of its rules, a decision about six fixed-window rules would hardly be faster ' +
  'than the target: see "Profile". While Redis is idle in between, both mostly wait for memory that is not in the cache of the CPU, and the ranges are wide.'

const OUTCOMES = [
  { outcome: 'allowed', scale: 'admits all' },
  { outcome: 'refused', scale: 'refuses all' },
] as const

type Outcome = (typeof OUTCOMES)[number]
type Name = 'Sluice' | 'in turn' | 'at once'

interface Task {
  make: (transport: Transport) => Contender
  expected: Outcome['outcome']
}

/** The load of Redis during a measurement. */
interface Load {
  what: string
  /** @returns microseconds inside Redis of one decision */
  perDecision(bed: TestBed, task: Task): Promise<number>
  against: readonly Exclude<Name, 'Sluice'>[]
}

const LOADS: readonly Load[] = [
  { what: 'Redis idle in between', perDecision: oneAtATime, against: ['in turn', 'at once'] },
  // Without waiting for replies, calls in turn and at once are the same.
  { what: 'Redis busy', perDecision: backToBack, against: ['in turn'] },
]

export async function serverTime(bed: TestBed): Promise<Findings> {
  const rows: Row[] = []
  const all: Rounds[] = []
  for (const [limits, call] of Object.entries(CALLS) as [Comparable, string][]) {
    for (const { what: load, perDecision, against } of countsInstructions ? LOADS.slice(1) : LOADS) {
      for (const { outcome, scale } of OUTCOMES) {
        const what = `Redis server time per decision, six ${limits}, ${outcome}, ${load}`
        const six = (order: 'in turn' | 'at once') => (transport: Transport) =>
          // With the cache of refusals of @upstash/ratelimit, refused calls would not reach Redis.
          sixCalls(transport, scale, { limits, order, cache: outcome === 'allowed' })
        const makers: [Name, Task['make']][] = [
          ['Sluice', transport => sluice(transport, scale, limits)],
          ['in turn', six('in turn')],
          ['at once', six('at once')],
        ]
        const tasks = makers
          .filter(([name]) => name === 'Sluice' || against.includes(name))
          .map(([name, make]) => [
            name,
            () => withinSecond(() => perDecision(bed, { make, expected: outcome })),
          ])
        const rounds: Record<string, number[]> = await inRounds(ROUNDS, Object.fromEntries(tasks))
        for (const name of against) {
          rows.push(
            roundsRow(what, [`six ${call} ${name}`, rounds.Sluice!, rounds[name]!], {
              unit: 'µs',
              most: mostOf(name),
              why: WHY,
            }),
          )
        }
        all.push({ title: what, columns: rounds })
      }
    }
  }
  return { rows, rounds: all }
}

/** Decisions through the bridge, one after the other. */
async function oneAtATime(bed: TestBed, { make, expected }: Task): Promise<number> {
  const contender = make(throughBridge(bed.near))
  // Few, so that all refusals fit into the second even on a slow machine.
  const [count, visits] = expected === 'refused' ? [10, 3] : [20, 6]
  const callers = await primed(count, bed, contender, expected)
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

/** Callers with state in Redis. If refusals are measured, their limits of one request are spent. */
async function primed(
  count: number,
  bed: TestBed,
  contender: Contender,
  expected: Outcome['outcome'],
): Promise<Caller[]> {
  const callers = await newCallers(count, bed)
  // The limits refuse only until the second ends.
  if (expected === 'refused') await roomInSecond(600)
  await eachOnce(contender, callers, 'allowed')
  return callers
}
