/**
 * Counts what hot callers cost with different ways to decide them: trips to the store, billed commands, and requests above the limit.
 * hot-caller-times.ts measures the times of some of them.
 */
import { bindingLimitOf, startBinding } from '../binding-traffic.ts'
import { type Cell, counted } from '../figures.ts'
import { CONTENDERS, type Load, SHAPES, type Shape, sendTraffic } from '../hot-traffic.ts'
import type { Findings } from '../report.ts'
import type { TestBed } from '../test-bed.ts'

/** USD for a command (Upstash, pay as you go: $0.20 per 100,000). */
const DOLLARS = 0.2 / 1e5

export async function hotCallers(bed: TestBed): Promise<Findings> {
  const rows: Cell[][] = []
  const ofBinding = await aboveLimitOfBinding(bed)
  for (const shape of SHAPES) {
    for (const [name, make] of Object.entries(CONTENDERS)) {
      const traffic = await sendTraffic(bed, shape, make)
      const { requests, trips, commands } = traffic
      rows.push([
        ...[shape.what, name, counted(trips / requests, { digits: 3 })],
        shape.exceeds ? aboveLimit(traffic, { limit: shape.limit, period: 1 }) : '-',
        counted((1e6 * DOLLARS * commands) / requests, { digits: 2 }),
      ])
    }
    const above = ofBinding.get(shape)
    if (above) rows.push([shape.what, 'binding, simulated', '0', above, '-'])
  }
  return {
    tables: [
      {
        title: 'Hot callers: one fixed window, by kind of traffic',
        head: ['requests', 'decided by', 'trips', 'above the limit', '$ per million'],
        rows: rows.map(([what, ...cells], i) => [what === rows[i - 1]?.[0] ? '' : what!, ...cells]),
      },
    ],
    notes: NOTES,
  }
}

const NOTES = [
  'Hot callers: all figures are per request, over 1 s of requests, or 2 s above the limit. Trips are HTTP requests to the store, including those ' +
    'that only give units back. All requests are from one caller, unless the row names a number of callers. "Store only": Sluice without leases and ' +
    'without remembered refusals. When 1,000 requests a second all go to the store, client and bridge use two cores fully. Decisions then wait for ' +
    'their turn, and several share a trip. The client @upstash/redis, as @upstash/ratelimit uses it, sends simultaneous calls in one HTTP request ' +
    '(auto-pipelining), but each call is billed. Requests that come at once all go to the store, even with leases, because the isolate has no units ' +
    'before the first answer. $: $0.20 per 100,000 commands (Upstash, pay as you go).',
  'Hot callers: the isolates are limiters of their own in one process, each with its own client and its own memory.',
  'Hot callers: "above the limit" are admitted requests that no window had room for. Traffic above the limit starts when a window begins. At the end of each ' +
    'window, the requests that were admitted until then are compared with the limit times the number of windows. A dash: the traffic stays below the limit.',
  'Hot callers: "binding, simulated" is the rate limiting binding of Workers as miniflare simulates it, in a Durable Object on this machine. In production, ' +
    'the binding makes no trip to a store and has no price of its own, but counts separately in each location of Cloudflare, and is documented as permissive ' +
    'and eventually consistent. A Worker calls the binding on the same schedule. The binding has periods of 10 and 60 s only. Instead of 500 a second and 10 ' +
    'a second, its limits were 5,000 and 100 in 10 s, over 12 s of requests at the same rate.',
]

async function aboveLimitOfBinding(bed: TestBed): Promise<ReadonlyMap<Shape, Cell>> {
  const binding = await startBinding(bed)
  try {
    const found = new Map<Shape, Cell>()
    for (const shape of SHAPES.filter(({ exceeds }) => exceeds))
      found.set(shape, aboveLimit(await binding.run(shape), bindingLimitOf(shape)))
    return found
  } finally {
    await binding.close()
  }
}

/** The most admitted requests that no window had room for. A request is counted in the window in which it is answered, or before. */
function aboveLimit(
  { admittedAt }: Pick<Load, 'admittedAt'>,
  { limit, period }: { limit: number; period: number },
): Cell {
  const windows = new Map<number, number>()
  for (const at of admittedAt) {
    const window = Math.floor(at / (1000 * period))
    windows.set(window, (windows.get(window) ?? 0) + 1)
  }
  let [admitted, most] = [0, 0]
  const first = Math.min(...windows.keys())
  for (const [window, count] of [...windows].sort(([a], [b]) => a - b)) {
    admitted += count
    most = Math.max(most, admitted - limit * (window - first + 1))
  }
  return counted(most)
}
