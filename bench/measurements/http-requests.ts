/** HTTP requests to the store for one decision, counted where they leave: at fetch. */
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
  { what: 'allowed, Redis has not the script', scale: 'admits all', withoutScript: true },
]

export async function httpRequests(bed: TestBed): Promise<Findings> {
  const rows: Row[] = []
  for (const situation of SITUATIONS) {
    const { what, scale } = situation
    const requests = (newClient: () => Contender) => withinSecond(() => requestsOf(bed, situation, newClient))
    const own = await requests(() => sluice(throughBridge(bed.near), scale))
    const inTurn = await requests(() => sixCalls(throughBridge(bed.near), scale, { order: 'in turn' }))
    const atOnce = await requests(() => sixCalls(throughBridge(bed.near), scale, { order: 'at once' }))
    rows.push({
      what: `HTTP requests per decision, new client, ${what}`,
      sluice: String(own),
      comparison: `six calls: ${inTurn} in turn, ${atOnce} at once`,
      ratio: own / inTurn,
      target: { text: '1', isReached: own <= 1 },
    })
  }
  return { rows }
}

/** Of a client's first decision, about a caller whom another client has let through just before. */
async function requestsOf(
  bed: TestBed,
  { scale, withoutScript }: Situation,
  newClient: () => Contender,
): Promise<number> {
  const [caller] = await newCallers(1, bed)
  await roomInSecond(500)
  await newClient()(caller!)
  if (withoutScript) await bed.redis.send(['SCRIPT', 'FLUSH'])

  const contender = newClient()
  const realFetch = globalThis.fetch
  let requests = 0
  globalThis.fetch = (...args) => {
    requests += 1
    return realFetch(...args)
  }
  try {
    await eachOnce(contender, [caller!], scale === 'refuses all' ? 'refused' : 'allowed')
  } finally {
    globalThis.fetch = realFetch
  }
  return requests
}
