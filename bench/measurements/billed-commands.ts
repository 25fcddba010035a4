/**
 * Counts the Redis commands of a decision as Upstash bills them: the EVALSHA, and each command that the script calls. Reads the
 * counters of Redis, for a few callers at the beginning of a second, so that no window ends in between.
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
import { roomInSecond } from '../measure.ts'
import { commandsOf } from '../redis-statistics.ts'
import { countsRow, type Findings, type Row } from '../report.ts'
import type { Scale } from '../rules.ts'
import { newCallers, type TestBed } from '../test-bed.ts'
import { throughBridge } from '../transport.ts'

const CALLERS = 20

export async function billedCommands(bed: TestBed): Promise<Findings> {
  const rows: Row[] = []
  for (const limits of Object.keys(CALLS) as Comparable[]) rows.push(...(await rowsFor(bed, limits)))
  return { rows }
}

async function rowsFor(bed: TestBed, limits: Comparable): Promise<Row[]> {
  const bridge = throughBridge(bed.near)
  const six = (scale: Scale) => sixCalls(bridge, scale, { limits, order: 'in turn', cache: false })
  const counted = (contender: Contender, second: 'allowed' | 'refused') =>
    withinSecond(() => visits(bed, contender, ['allowed', second]))
  const own = await counted(sluice(bridge, 'admits all', limits), 'allowed')
  const theirs = await counted(six('admits all'), 'allowed')
  const [, ownRefused] = await counted(sluice(bridge, 'refuses all', limits), 'refused')
  const [, theirsRefused] = await counted(six('refuses all'), 'refused')

  const row = (what: string, ours: number, others: number, most: number) =>
    countsRow(
      `billed commands per decision, six ${limits}, ${what}`,
      [`six ${CALLS[limits]}`, ours, others],
      { most },
    )
  return [
    row('allowed, first in every window', own[0]!, theirs[0]!, 5),
    row('allowed, later ones', own[1]!, theirs[1]!, 5),
    row('refused', ownRefused!, theirsRefused!, 3),
  ]
}

/** Commands per decision for the first request of each caller, the second, and so on. */
async function visits(
  bed: TestBed,
  contender: Contender,
  expected: readonly ('allowed' | 'refused')[],
): Promise<number[]> {
  await eachOnce(contender, await newCallers(1, bed), 'allowed')
  const callers = await newCallers(CALLERS, bed)
  await roomInSecond(500)
  const counts: number[] = []
  for (const answer of expected) {
    const { commands } = await commandsOf(bed.redis, () => eachOnce(contender, callers, answer))
    counts.push(commands / CALLERS)
  }
  return counts
}
