/**
 * Measures the latency of a decision in its client, compared with a PING by the same client: with the bridge on this machine, and with
 * a bridge at a round trip of 20 ms.
 */
import { CALLS, type Comparable, type Contender, ping, sixCalls, sluice } from '../contenders.ts'
import { inRounds, measureTimes, median } from '../measure.ts'
import { type Findings, latencyRow, type Rounds, type Row } from '../report.ts'
import { newCallers, type Rest, type TestBed } from '../test-bed.ts'
import { throughBridge } from '../transport.ts'

interface Distance {
  what: string
  rest: (bed: TestBed) => Rest
  rounds: number
  /** Decisions in a round. */
  decisions: number
  /** Fewer, because six calls in turn take six times as long. */
  inTurnDecisions: number
}

const DISTANCES: readonly Distance[] = [
  { what: '0 ms away', rest: bed => bed.near, rounds: 2, decisions: 200, inTurnDecisions: 80 },
  { what: '20 ms away', rest: bed => bed.far, rounds: 1, decisions: 40, inTurnDecisions: 15 },
]

export async function latency(bed: TestBed): Promise<Findings> {
  const rows: Row[] = []
  const all: Rounds[] = []
  for (const [limits, call] of Object.entries(CALLS) as [Comparable, string][]) {
    for (const { what: place, rest: restOf, rounds, decisions, inTurnDecisions } of DISTANCES) {
      const bridge = throughBridge(restOf(bed))
      const callers = await newCallers(20, bed)
      const caller = (i: number) => callers[i % callers.length]!
      const task = (decide: Contender, count: number) => async () => {
        // Opens connections and compiles code before the measurement.
        for (let i = 0; i < 5; i++) await decide(caller(i))
        return await measureTimes(count, i => decide(caller(i)))
      }
      const six = (order: 'in turn' | 'at once') => sixCalls(bridge, 'admits all', { limits, order })
      const samples = await inRounds(rounds, {
        PING: task(ping(bridge), decisions),
        Sluice: task(sluice(bridge, 'admits all', limits), decisions),
        'in turn': task(six('in turn'), inTurnDecisions),
        'at once': task(six('at once'), decisions),
      })
      const medians = Object.fromEntries(
        Object.entries(samples).map(([name, round]) => [name, round.map(median)]),
      ) as Record<keyof typeof samples, number[]>
      const what = `decision p50 / p99, six ${limits}, bridge ${place}`
      for (const name of ['PING', 'in turn', 'at once'] as const) {
        const comparison = name === 'PING' ? name : `six ${call} ${name}`
        rows.push(latencyRow(what, [comparison, samples.Sluice, samples[name]]))
      }
      all.push({ title: what, columns: medians })
    }
  }
  return { rows, rounds: all }
}
