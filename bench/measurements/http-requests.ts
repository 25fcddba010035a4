/** Counts the HTTP requests to the store for one decision, and their bytes, in a wrapper of fetch. */
import { type Contender, eachOnce, sixCalls, sluice, withinSecond } from '../contenders.ts'
import { roomInSecond } from '../measure.ts'
import type { Findings, Row } from '../report.ts'
import type { Scale } from '../rules.ts'
import { newCallers, type TestBed } from '../test-bed.ts'
import { throughBridge } from '../transport.ts'

interface Situation {
  what: string
  scale: Scale
  /** Redis was restarted, or its script cache flushed, since the last decision. */
  withoutScript: boolean
}

const SITUATIONS: readonly Situation[] = [
  { what: 'allowed', scale: 'admits all', withoutScript: false },
  { what: 'refused', scale: 'refuses all', withoutScript: false },
  { what: 'allowed, Redis without the script', scale: 'admits all', withoutScript: true },
]

/** Half of the bytes that a request had before policies were compiled, when it still carried the numbers of all rules. */
const MAX_BYTES = 336

/** The HTTP requests for one decision. */
interface Sent {
  requests: number
  /** Bytes of the bodies. */
  bytes: number
}

export async function httpRequests(bed: TestBed): Promise<Findings> {
  const rows: Row[] = []
  for (const situation of SITUATIONS) {
    const { what, scale, withoutScript } = situation
    const requests = (newClient: () => Contender) => withinSecond(() => requestsOf(bed, situation, newClient))
    const own = await requests(() => sluice(throughBridge(bed.near), scale))
    const inTurn = await requests(() => sixCalls(throughBridge(bed.near), scale, { order: 'in turn' }))
    const atOnce = await requests(() => sixCalls(throughBridge(bed.near), scale, { order: 'at once' }))
    rows.push({
      what: `HTTP requests per decision, first in an isolate, ${what}`,
      sluice: String(own.requests),
      comparison: `six calls: ${inTurn.requests} in turn, ${atOnce.requests} at once`,
      ratio: own.requests / inTurn.requests,
      target: { text: '1', isReached: own.requests <= 1 },
    })
    if (withoutScript) continue
    rows.push({
      what: `bytes sent to the store per decision, ${what}`,
      sluice: `${own.bytes} B`,
      comparison: `six calls at once: ${atOnce.bytes} B`,
      ratio: own.bytes / atOnce.bytes,
      target: { text: `≤ ${MAX_BYTES} B`, isReached: own.bytes <= MAX_BYTES },
    })
  }
  return { rows }
}

/** Counts the requests for the first decision of an isolate. Another isolate has just admitted the same caller. */
async function requestsOf(
  bed: TestBed,
  { scale, withoutScript }: Situation,
  newClient: () => Contender,
): Promise<Sent> {
  const [caller] = await newCallers(1, bed)
  await roomInSecond(500)
  await newClient()(caller!)
  if (withoutScript) await bed.redis.send(['SCRIPT', 'FLUSH'])

  const contender = newClient()
  const realFetch = globalThis.fetch
  const sent: Sent = { requests: 0, bytes: 0 }
  globalThis.fetch = (...args) => {
    sent.requests += 1
    sent.bytes += String(args[1]?.body ?? '').length
    return realFetch(...args)
  }
  try {
    await eachOnce(contender, [caller!], scale === 'refuses all' ? 'refused' : 'allowed')
  } finally {
    globalThis.fetch = realFetch
  }
  return sent
}
