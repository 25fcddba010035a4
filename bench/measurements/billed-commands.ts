/**
 * Counts the Redis commands of a decision as Upstash bills them: the EVALSHA, and each command that the script calls. Reads the
 * counters of Redis, for a few callers at the beginning of a second, so that no window ends in between.
 */
import { type Contender, eachOnce, sixCalls, sluice, withinSecond } from '../contenders.ts'
import { roomInSecond } from '../measure.ts'
import { commandsOf } from '../redis-statistics.ts'
import type { Findings, Row } from '../report.ts'
import { newCallers, type TestBed } from '../test-bed.ts'
import { throughBridge } from '../transport.ts'

const CALLERS = 20

export async function billedCommands(bed: TestBed): Promise<Findings> {
  const bridge = throughBridge(bed.near)
  const own = { admitting: sluice(bridge, 'admits all'), refusing: sluice(bridge, 'refuses all') }
  const six = {
    admitting: sixCalls(bridge, 'admits all', { order: 'in turn' }),
    refusing: sixCalls(bridge, 'refuses all', { order: 'in turn', cache: false }),
  }
  const ownAllowed = await withinSecond(() => visits(bed, own.admitting, ['allowed', 'allowed']))
  const sixAllowed = await withinSecond(() => visits(bed, six.admitting, ['allowed', 'allowed']))
  const [, ownRefused] = await withinSecond(() => visits(bed, own.refusing, ['allowed', 'refused']))
  const [, sixRefused] = await withinSecond(() => visits(bed, six.refusing, ['allowed', 'refused']))

  const row = (what: string, ours: number, theirs: number, most?: number): Row => ({
    what: `billed commands per decision, ${what}`,
    sluice: String(ours),
    comparison: `six calls: ${theirs}`,
    ...(theirs > 0 && { ratio: ours / theirs }),
    ...(most && { target: { text: `≤ ${most}`, isReached: ours <= most } }),
  })
  return {
    rows: [
      row('allowed, first in every window', ownAllowed[0]!, sixAllowed[0]!, 5),
      row('allowed, later ones', ownAllowed[1]!, sixAllowed[1]!, 5),
      row('refused', ownRefused!, sixRefused!, 3),
    ],
  }
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
