/** Counts the HTTP requests to the store for one decision in a wrapper of fetch, and the bytes also on the connection. */
import { type ByteCounter, startByteCounter } from '../byte-counter.ts'
import {
  CALLS,
  type Comparable,
  type Contender,
  eachOnce,
  sixCalls,
  sluice,
  withinSecond,
} from '../contenders.ts'
import { cell, counted, countedRatio } from '../figures.ts'
import { roomInSecond } from '../measure.ts'
import { atMost, countsRow, type Findings, type Row } from '../report.ts'
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

/** Half of the bytes that a request had before rule sets were compiled, when it still carried the numbers of all rules. */
const MAX_BYTES = 336

/** The HTTP requests for one decision. */
interface Sent {
  requests: number
  /** Bytes of the bodies. */
  bodies: number
  /** Bytes of the bodies and the headers, without TLS. */
  bytes: number
  /** Bytes of the replies, as the bridge sends them, with headers and without TLS. */
  received: number
}

export async function httpRequests(bed: TestBed): Promise<Findings> {
  const rows: Row[] = []
  const counter = await startByteCounter(Number(new URL(bed.near.url).port))
  const rest = { ...bed.near, url: `http://127.0.0.1:${counter.port}` }
  for (const [limits, call] of Object.entries(CALLS) as [Comparable, string][]) {
    for (const situation of SITUATIONS) {
      const { scale, withoutScript } = situation
      const what = `six ${limits}, ${situation.what}`
      const sent = (newClient: () => Contender) =>
        withinSecond(() => sentFor(bed, counter, situation, newClient))
      const own = await sent(() => sluice(throughBridge(rest), scale, limits))
      const six = (order: 'in turn' | 'at once') =>
        sent(() => sixCalls(throughBridge(rest), scale, { limits, order }))
      const [inTurn, atOnce] = [await six('in turn'), await six('at once')]
      const requests = counted(own.requests)
      rows.push({
        what: `HTTP requests per decision, ${what}, first in an isolate`,
        sluice: requests,
        comparison: cell`six ${call}: ${counted(inTurn.requests)} in turn, ${counted(atOnce.requests)} at once`,
        ratio: countedRatio(own.requests, inTurn.requests),
        ...(!withoutScript && { target: atMost(requests, 1) }),
      })
      if (withoutScript) continue
      const row = (measured: string, of: 'bodies' | 'bytes' | 'received', most?: number) =>
        countsRow(measured, [`six ${call} at once`, own[of], atOnce[of]], {
          unit: 'B',
          ...(most && { most }),
        })
      rows.push(
        row(`bytes sent to the store per decision, ${what}, bodies only`, 'bodies', MAX_BYTES),
        row(`bytes sent to the store per decision, ${what}, with headers`, 'bytes'),
        row(`bytes received from the store per decision, ${what}, with headers`, 'received'),
      )
    }
  }
  return { rows }
}

/** Counts the requests for the first decision of an isolate. Another isolate has just admitted the same caller. */
async function sentFor(
  bed: TestBed,
  counter: ByteCounter,
  { scale, withoutScript }: Situation,
  newClient: () => Contender,
): Promise<Sent> {
  const [caller] = await newCallers(1, bed)
  await roomInSecond(500)
  await newClient()(caller!)
  if (withoutScript) await bed.redis.send(['SCRIPT', 'FLUSH'])

  const contender = newClient()
  const realFetch = globalThis.fetch
  const sent = { requests: 0, bodies: 0 }
  counter.take()
  globalThis.fetch = (...args) => {
    sent.requests += 1
    sent.bodies += String(args[1]?.body ?? '').length
    return realFetch(...args)
  }
  try {
    await eachOnce(contender, [caller!], scale === 'refuses all' ? 'refused' : 'allowed')
  } finally {
    globalThis.fetch = realFetch
  }
  const { sent: bytes, received } = counter.take()
  return { ...sent, bytes, received }
}
