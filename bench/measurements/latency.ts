/**
 * Measures the latency of a decision in its client, compared with a PING by the same client: with the bridge on this machine, and with
 * a bridge at a round trip of 20 ms.
 */
import { ping, sixCalls, sluice } from '../contenders.ts'
import { inRounds, measureTimes, median, quantile } from '../measure.ts'
import type { Findings, Row } from '../report.ts'
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
  { what: '0 ms away', rest: bed => bed.near, rounds: 10, decisions: 300, inTurnDecisions: 150 },
  { what: '20 ms away', rest: bed => bed.far, rounds: 6, decisions: 50, inTurnDecisions: 17 },
]

export async function latency(bed: TestBed): Promise<Findings> {
  const findings = { rows: [] as Row[], raw: [] as NonNullable<Findings['raw']>[number][] }
  for (const { what, rest: restOf, rounds, decisions, inTurnDecisions } of DISTANCES) {
    const bridge = throughBridge(restOf(bed))
    const callers = await newCallers(20, bed)
    const caller = (i: number) => callers[i % callers.length]!
    const contenders = {
      PING: { decide: ping(bridge), count: decisions },
      Sluice: { decide: sluice(bridge, 'admits all'), count: decisions },
      'six in turn': { decide: sixCalls(bridge, 'admits all', { order: 'in turn' }), count: inTurnDecisions },
      'six at once': { decide: sixCalls(bridge, 'admits all', { order: 'at once' }), count: decisions },
    }
    const task = (name: keyof typeof contenders) => async () => {
      const { decide, count } = contenders[name]
      // Opens connections and compiles code before the measurement.
      for (let i = 0; i < 5; i++) await decide(caller(i))
      return await measureTimes(count, i => decide(caller(i)))
    }
    const samples = await inRounds(rounds, {
      PING: task('PING'),
      Sluice: task('Sluice'),
      'six in turn': task('six in turn'),
      'six at once': task('six at once'),
    })

    const p50 = (name: keyof typeof samples) => median(samples[name].map(median))
    const both = (name: keyof typeof samples) =>
      `${p50(name).toFixed(2)} / ${quantile(samples[name].flat(), 0.99).toFixed(2)} ms`
    for (const name of ['PING', 'six in turn', 'six at once'] as const) {
      findings.rows.push({
        what: `decision p50 / p99, bridge ${what}`,
        sluice: both('Sluice'),
        comparison: `${name}: ${both(name)}`,
        ratio: p50('Sluice') / p50(name),
      })
    }
    findings.raw.push({
      title: `Latency, bridge ${what}, ms, median of each round`,
      columns: Object.fromEntries(Object.entries(samples).map(([name, round]) => [name, round.map(median)])),
      digits: 3,
    })
  }
  return findings
}
