/** HTTP requests to the store for one decision, counted where they leave: at fetch. */
import { type Contender, sixCalls, sluice } from '../contenders.ts'
import type { Row } from '../report.ts'
import type { Scale } from '../rules.ts'
import { newCallers, type TestBed } from '../test-bed.ts'

interface Case {
  what: string
  scale: Scale
  state: 'cold' | 'warm' | 'warm, refused before'
}

const CASES: readonly Case[] = [
  { what: 'new client, script in Redis, allowed', scale: 'admits all', state: 'warm' },
  { what: 'new client, script in Redis, refused', scale: 'refuses all', state: 'warm, refused before' },
  { what: 'new client, Redis without the script', scale: 'admits all', state: 'cold' },
]

export async function httpRequests(bed: TestBed): Promise<Row[]> {
  const rows: Row[] = []
  for (const { what, scale, state } of CASES) {
    const count = (contender: () => Contender) => requestsOf(bed, contender, state)
    const own = await count(() => sluice(bed.near, scale))
    const six = await count(() => sixCalls(bed.near, scale, { order: 'in turn' }))
    const sixAtOnce = await count(() => sixCalls(bed.near, scale, { order: 'at once' }))
    rows.push({
      what: `HTTP requests per decision: ${what}`,
      sluice: String(own),
      comparison: `six calls: ${six} in turn, ${sixAtOnce} at once`,
      ratio: own / six,
      target: '1',
      isReached: own <= 1,
    })
  }
  return rows
}

/** Of one decision by a client made for it, for a caller who has been there before. */
async function requestsOf(bed: TestBed, make: () => Contender, state: Case['state']): Promise<number> {
  const [caller] = await newCallers(1, bed)
  // By another client: this one's memory is empty.
  await make()(caller!)
  await bed.redis.send(state === 'cold' ? ['SCRIPT', 'FLUSH'] : ['PING'])

  const contender = make()
  const realFetch = globalThis.fetch
  let requests = 0
  globalThis.fetch = (...args) => {
    requests += 1
    return realFetch(...args)
  }
  try {
    const answer = await contender(caller!)
    const expected = state === 'warm, refused before' ? 'refused' : 'allowed'
    if (answer !== expected) throw new Error(`Expected a decision that is ${expected}, and it was ${answer}.`)
  } finally {
    globalThis.fetch = realFetch
  }
  return requests
}
