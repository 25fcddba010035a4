/** Measures the times of hot callers with different ways to decide them. hot-callers.ts counts their trips and commands. */
import { type Cell, cell, measured } from '../figures.ts'
import { CONTENDERS, SHAPES, type Shape, sendTraffic } from '../hot-traffic.ts'
import { inRounds, quantile } from '../measure.ts'
import type { Findings } from '../report.ts'
import type { TestBed } from '../test-bed.ts'

/** Those with the most decisions. */
const TIMED = ['1,000 a second, one isolate', '500 a second from 1,000 callers']

export async function hotCallerTimes(bed: TestBed): Promise<Findings> {
  const rows: Cell[][] = []
  for (const shape of SHAPES.filter(({ what }) => TIMED.includes(what)))
    rows.push(...(await rowsFor(bed, shape)))
  return {
    tables: [
      {
        title: 'Hot caller times, per request',
        head: ['requests', 'decided by', 'µs in Redis', 'CPU of the client, µs', 'p50 / p99, ms'],
        rows,
      },
    ],
    notes: [
      'Hot caller times: for the traffic of "Hot callers". CPU is that of the client, including the loop that starts the requests. 1,000 requests a ' +
        'second are decided in one process, which shares two cores with the bridge and Redis.',
    ],
  }
}

async function rowsFor(bed: TestBed, shape: Shape): Promise<Cell[][]> {
  const tasks = Object.entries(CONTENDERS).map(
    ([name, make]) => [name, () => sendTraffic(bed, shape, make)] as const,
  )
  const rounds = await inRounds(1, Object.fromEntries(tasks))
  return Object.entries(rounds).map(([name, traffic], i) => {
    const perRequest = (of: 'redis' | 'cpu') => traffic.map(({ [of]: cost, requests }) => cost / requests)
    const waits = (share: number) =>
      measured(
        traffic.map(({ waits }) => quantile(waits, share)),
        { digits: 2 },
      )
    return [
      ...[i === 0 ? shape.what : '', name, measured(perRequest('redis'), { digits: 2 })],
      ...[measured(perRequest('cpu'), { digits: 0 }), cell`${waits(0.5)} / ${waits(0.99)}`],
    ]
  })
}
